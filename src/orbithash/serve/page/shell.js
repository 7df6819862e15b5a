// What both views share: problems, announcements, the key, and the figures of the index.

import * as api from "./api.js";
import { byId } from "./dom.js";

// Ask for something once; again only if it failed.
function once(ask) {
  let known = null;
  return () => {
    known ??= ask().catch((error) => {
      known = null;
      throw error;
    });
    return known;
  };
}

let latest = new AbortController();

// What is asked last is shown: the signal ends whatever was asked before, in either view.
export function begin() {
  latest.abort();
  latest = new AbortController();
  return latest.signal;
}

export const about = once(api.about);
export const stats = once(api.stats); // of a large index it takes a while

export function announce(text) {
  byId("announcer").textContent = text;
}

// Do something that may fail; what went wrong is shown where everyone sees it.
export async function attempt(action, hasKey = false) {
  showProblem(null);
  try {
    await action();
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === 401 && !hasKey) {
      await askForKey();
      await attempt(action, true);
      return;
    }
    if (!(error instanceof api.ApiError)) throw error;
    const lost = "The key is right, but this browser does not send its cookie back. Are cookies switched off?";
    showProblem(error.status === 401 ? lost : error.message);
  }
}

function showProblem(text) {
  byId("problem").hidden = text === null;
  byId("problem").textContent = text ?? "";
}

let asking = null; // several requests may find out at once that a key is needed

export function askForKey() {
  asking ??= new Promise((resolve) => {
    const dialog = byId("key-dialog");
    byId("key-problem").hidden = true;
    dialog.onclose = () => asking && !dialog.open && dialog.showModal(); // Escape leaves nothing to look at
    byId("key-form").onsubmit = async (event) => {
      event.preventDefault();
      event.submitter.disabled = true; // a second Enter would close the dialog of a later question
      const given = byId("key").value;
      try {
        await api.openSession(given);
      } catch (error) {
        byId("key-problem").hidden = false;
        byId("key-problem").textContent = error.message;
        byId("key").focus();
        if (byId("key").value === given) byId("key").select();
        return;
      } finally {
        event.submitter.disabled = false;
      }
      byId("key").value = "";
      asking = null;
      dialog.close();
      resolve();
    };
    dialog.showModal();
  });
  return asking;
}
