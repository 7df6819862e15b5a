// What was asked with, when it was an image of the user's: kept in this tab, never sent again.

const SIDE = 320;

export async function keepPreview(code, file) {
  try {
    const image = await createImageBitmap(file);
    const scale = Math.min(1, SIDE / Math.max(image.width, image.height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(image.width * scale));
    canvas.height = Math.max(1, Math.round(image.height * scale));
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    sessionStorage.setItem(`preview ${code}`, canvas.toDataURL("image/webp", 0.85));
  } catch {
    // A format that the browser cannot show, or no room left: the search works without.
  }
}

export function preview(code) {
  try {
    return sessionStorage.getItem(`preview ${code}`);
  } catch {
    return null;
  }
}
