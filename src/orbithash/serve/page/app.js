// Two views of one index; the address says which, and of what.

import { session } from "./api.js";
import { showCollection } from "./collection.js";
import { byId } from "./dom.js";
import { showSearch, startSearch } from "./search.js";
import { attempt } from "./shell.js";
import { onState, start } from "./state.js";

function show(state, moved) {
  byId("search").hidden = state.view !== "search";
  byId("collection").hidden = state.view !== "collection";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  return state.view === "search" ? showSearch(state, moved) : showCollection();
}

startSearch();
onState(show);
await attempt(session); // asks for the key first, where one is needed
start();
