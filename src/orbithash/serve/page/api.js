// Client of the HTTP API. URLs are relative, so that the page also works below a proxy's path.

const API = "api/v1/";

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// The code is part of the URL because browsers cache images, and an id can be reused.
export const thumbnailUrl = (item) => `${API}items/${item.text_id}/thumbnail?of=${item.code}`;
export const originalUrl = (item) => `${API}items/${item.text_id}/image?of=${item.code}`;

export const about = () => call("about");
export const stats = (signal) => call("stats", { signal });
export function sample(n, seed, labels, signal) {
  const parameters = new URLSearchParams([["n", n], ["seed", seed], ...labels.map((label) => ["labels", label])]);
  return call(`sample?${parameters}`, { signal });
}
export function duplicates(parameters, signal) {
  return call(`duplicates?${new URLSearchParams(parameters)}`, { signal });
}
export const session = () => call("session");
export const search = (request, signal) => postJson("search", request, signal);
export const openSession = (key) => postJson("session", { key });

export function searchImage(file, { k, radius, labels }, signal) {
  const form = new FormData();
  form.append("image", file);
  form.append("k", k);
  if (radius !== null) form.append("radius", radius);
  for (const label of labels) form.append("labels", label);
  return call("search/image", { method: "POST", body: form, signal });
}

function postJson(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return call(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

async function call(path, options = {}) {
  let response;
  try {
    response = await fetch(API + path, { credentials: "same-origin", ...options });
    if (response.ok) return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not respond. Is it still running?");
  }
  throw new ApiError(response.status, await errorMessage(response));
}

async function errorMessage(response) {
  try {
    const { detail } = await response.json();
    return asSentence(detail);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return `The server responded with status ${response.status}.`;
  }
}

const asSentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
