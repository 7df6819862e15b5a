// Images from the user: chosen, dropped anywhere on the page, or pasted.

import { byId } from "./dom.js";

export function onImage(handle) {
  const input = byId("file");
  input.addEventListener("change", () => {
    if (input.files.length) handle(input.files[0]);
    input.value = ""; // so that the same file can be chosen again
  });
  addEventListener("paste", (event) => {
    const file = firstImage(event.clipboardData);
    if (file) {
      event.preventDefault();
      handle(file);
    }
  });
  onDrop(handle);
}

function onDrop(handle) {
  const overlay = byId("drop-overlay");
  const onFile = (name, action) =>
    addEventListener(name, (event) => event.dataTransfer?.types.includes("Files") && action(event));
  onFile("dragenter", () => (overlay.hidden = false));
  // Without a related target the pointer has left the window, not just one element.
  onFile("dragleave", (event) => (overlay.hidden = !event.relatedTarget));
  onFile("dragover", (event) => {
    event.preventDefault();
    overlay.hidden = false;
  });
  onFile("drop", (event) => {
    event.preventDefault();
    overlay.hidden = true;
    const file = firstImage(event.dataTransfer) ?? event.dataTransfer.files[0];
    if (file) handle(file);
  });
}

const firstImage = (data) => [...(data?.files ?? [])].find((file) => file.type.startsWith("image/"));
