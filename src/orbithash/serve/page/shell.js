// Shared by both views: errors, announcements, the key dialog, and cached index information.

import * as api from "./api.js";
import { byId } from "./dom.js";

export const about = memoize(api.about);
export const stats = memoize(api.stats); // takes a while for a large index

// Call a function once and reuse its promise; call it again only after a failure.
function memoize(request) {
  let cached = null;
  return () => {
    cached ??= request().catch((error) => {
      cached = null;
      throw error;
    });
    return cached;
  };
}

let latest = new AbortController();

// Abort the previous request of either view and return the signal for a new one.
export function startRequest() {
  latest.abort();
  latest = new AbortController();
  return latest.signal;
}

export function announce(text) {
  byId("announcer").textContent = text;
}

// Run an action. Show its error at the top; on a 401, ask for the key and run it once more.
export async function runAndReport(action, hasKey = false) {
  showProblem(null);
  try {
    await action();
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === 401 && !hasKey) {
      await askForKey();
      await runAndReport(action, true);
      return;
    }
    if (!(error instanceof api.ApiError)) throw error;
    const noCookie = "The key is valid, but this browser did not send the session cookie. Are cookies disabled?";
    showProblem(error.status === 401 ? noCookie : error.message);
  }
}

function showProblem(text) {
  byId("problem").hidden = text === null;
  byId("problem").textContent = text ?? "";
}

let keyDialog = null; // shared promise: several requests may get a 401 at once

function askForKey() {
  keyDialog ??= new Promise((resolve) => {
    const dialog = byId("key-dialog");
    byId("key-problem").hidden = true;
    dialog.onclose = () => keyDialog && !dialog.open && dialog.showModal(); // Escape would leave an empty page
    byId("key-form").onsubmit = async (event) => {
      event.preventDefault();
      event.submitter.disabled = true; // a second Enter would submit a dialog that opens later
      const key = byId("key").value;
      try {
        await api.openSession(key);
      } catch (error) {
        byId("key-problem").hidden = false;
        byId("key-problem").textContent = error.message;
        byId("key").focus();
        if (byId("key").value === key) byId("key").select();
        return;
      } finally {
        event.submitter.disabled = false;
      }
      byId("key").value = "";
      keyDialog = null;
      dialog.close();
      resolve();
    };
    dialog.showModal();
  });
  return keyDialog;
}
