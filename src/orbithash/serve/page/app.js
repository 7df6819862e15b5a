// Entry point: shows the view that the URL selects.

import { session } from "./api.js";
import { showCollection } from "./collection.js";
import { byId } from "./dom.js";
import { initSearch, showSearch } from "./search.js";
import { runAndReport } from "./shell.js";
import { onStateChange, start } from "./state.js";

function show(state, isNavigation) {
  byId("search").hidden = state.view !== "search";
  byId("collection").hidden = state.view !== "collection";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  return state.view === "search" ? showSearch(state, isNavigation) : showCollection();
}

initSearch();
onStateChange(show);
await runAndReport(session); // asks for the key first if one is required
start();
