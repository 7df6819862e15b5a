// Images of the user's: chosen, dropped anywhere, or pasted.

import { byId } from "./dom.js";

export function onImage(take) {
  const input = byId("file");
  input.addEventListener("change", () => {
    if (input.files.length) take(input.files[0]);
    input.value = ""; // so that the same file can be chosen again
  });
  addEventListener("paste", (event) => {
    const file = firstImage(event.clipboardData);
    if (file) {
      event.preventDefault();
      take(file);
    }
  });
  dropped(take);
}

function dropped(take) {
  const veil = byId("veil");
  const onFile = (name, action) =>
    addEventListener(name, (event) => event.dataTransfer?.types.includes("Files") && action(event));
  onFile("dragenter", () => (veil.hidden = false));
  // Every element is left for the next; the window, for nothing.
  onFile("dragleave", (event) => (veil.hidden = !event.relatedTarget));
  onFile("dragover", (event) => {
    event.preventDefault();
    veil.hidden = false;
  });
  onFile("drop", (event) => {
    event.preventDefault();
    veil.hidden = true;
    const file = firstImage(event.dataTransfer) ?? event.dataTransfer.files[0];
    if (file) take(file);
  });
}

const firstImage = (data) => [...(data?.files ?? [])].find((file) => file.type.startsWith("image/"));
