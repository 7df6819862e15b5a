// Entry point: shows the view that the URL selects.

import { session } from "./api.js";
import { showCollection } from "./collection.js";
import { byId } from "./dom.js";
import { initDuplicates, showDuplicates } from "./duplicates.js";
import { initSearch, showSearch } from "./search.js";
import { runAndReport } from "./shell.js";
import { onStateChange, start } from "./state.js";

const VIEWS = { search: showSearch, collection: showCollection, duplicates: showDuplicates };

function show(state, isNavigation) {
  for (const view of Object.keys(VIEWS)) byId(view).hidden = state.view !== view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  return VIEWS[state.view](state, isNavigation);
}

initSearch();
initDuplicates();
onStateChange(show);
await runAndReport(session); // asks for the key first if one is required
start();
