// Uploaded query images, by code: a preview, and the embedding that ranked their results. They are
// stored in this tab only; the preview is never sent.

const MAX_SIDE = 320;

export async function savePreview(code, file) {
  try {
    const image = await createImageBitmap(file);
    const scale = Math.min(1, MAX_SIDE / Math.max(image.width, image.height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(image.width * scale));
    canvas.height = Math.max(1, Math.round(image.height * scale));
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    sessionStorage.setItem(`preview ${code}`, canvas.toDataURL("image/webp", 0.85));
  } catch {
    // The browser cannot decode the format, or the storage is full: search without a preview.
  }
}

export function saveEmbedding(code, embedding) {
  try {
    sessionStorage.setItem(`embedding ${code}`, JSON.stringify(embedding));
  } catch {
    // The storage is full: later searches go by the code.
  }
}

export const loadPreview = (code) => load(`preview ${code}`);

export const loadEmbedding = (code) => JSON.parse(load(`embedding ${code}`));

function load(key) {
  try {
    return sessionStorage.getItem(key);
  } catch {
    return null;
  }
}
