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
  let inside = 0; // elements that were entered and not left: each child sends its own events
  const show = (change) => {
    inside = Math.max(0, inside + change);
    veil.hidden = inside === 0;
  };
  const holdsFile = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragenter", (event) => holdsFile(event) && show(1));
  addEventListener("dragleave", (event) => holdsFile(event) && show(-1));
  addEventListener("dragover", (event) => holdsFile(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!holdsFile(event)) return;
    event.preventDefault();
    show(-inside);
    const file = firstImage(event.dataTransfer) ?? event.dataTransfer.files[0];
    if (file) take(file);
  });
}

const firstImage = (data) => [...(data?.files ?? [])].find((file) => file.type.startsWith("image/"));
