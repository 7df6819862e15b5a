// The view of near-duplicates: groups by size, page by page.

import * as api from "./api.js";
import { hitCard } from "./cards.js";
import { bits, byId, element, formatNumber, plural } from "./dom.js";
import { announce, runAndReport, startRequest } from "./shell.js";
import { finishNavigation, readState, updateLater, urlOf, withPending } from "./state.js";

const GROUPS = 20; // on a page
const ITEMS = 12; // of a group, before "Show more"
const MORE_ITEMS = 100;

export function initDuplicates() {
  byId("within").addEventListener("input", () => {
    showRadius();
    updateLater({ within: Number(byId("within").value), from: 0 });
  });
}

export function showDuplicates(state) {
  const signal = startRequest();
  document.title = "Duplicates · orbithash";
  return runAndReport(async () => {
    if (signal.aborted) return; // while the key dialog was open
    byId("groups").setAttribute("aria-busy", true);
    try {
      const response = await api.duplicates(parameters(state), signal);
      if (signal.aborted) return;
      showGroups(state, response, signal);
      if (finishNavigation()) byId("duplicates-title").focus({ preventScroll: true });
    } catch (error) {
      if (!signal.aborted) {
        clear();
        if (error.status !== 401) finishNavigation(); // the error is shown at the top
      }
      throw error;
    } finally {
      if (!signal.aborted) byId("groups").setAttribute("aria-busy", false);
    }
  });
}

function parameters({ within, from }, more = {}) {
  return { ...(within === null ? {} : { radius: within }), offset: from, limit: GROUPS, items: ITEMS, ...more };
}

function clear() {
  byId("duplicates-summary").textContent = "";
  byId("groups").replaceChildren();
  byId("pager").hidden = true;
}

function showGroups(state, response, signal) {
  const { groups, n_groups: nGroups, n_items: nItems, count, radius, largest_radius: largest } = response;
  byId("within").max = largest;
  byId("within").value = withPending(state).within ?? radius;
  showRadius();
  const summary = nGroups
    ? `${plural(nGroups, "group")} with ${formatNumber(nItems)} of ${plural(count, "image")}`
    : count
      ? `No two of ${plural(count, "image")} are within ${bits(radius)}`
      : "The index is empty";
  byId("duplicates-summary").textContent = summary;
  announce(`${summary}.`);
  byId("groups").replaceChildren(
    ...groups.map((group, i) => groupPanel({ ...group, number: state.from + i }, response, signal)),
  );
  showPager(state, groups.length, nGroups);
}

function groupPanel(group, { n_bits: nBits, radius }, signal) {
  const title = `${formatNumber(group.number + 1)}. ${plural(group.size, "image")}`;
  const query = { code: group.items[0]?.code }; // all may have been removed since
  const cards = (items, rank) =>
    items.map((item, i) =>
      hitCard({ ...item, hamming: item.distance, rank: rank + i, matches: null }, { query, ranking: "hamming", n_bits: nBits }),
    );
  const grid = element("ul", { class: "grid small", "aria-label": title }, ...cards(group.items, 1));
  let nRead = ITEMS;
  const more = element("button", { type: "button", class: "quiet", click: () => runAndReport(readMore) });
  const showRest = () => {
    more.hidden = nRead >= group.size;
    more.textContent = `Show ${formatNumber(Math.min(MORE_ITEMS, group.size - nRead))} more`;
  };
  const readMore = async () => {
    const request = { radius, offset: group.number, limit: 1, items: MORE_ITEMS, item_offset: nRead };
    const { groups } = await api.duplicates(request, signal);
    if (signal.aborted) return;
    grid.append(...cards(groups[0]?.items ?? [], nRead + 1));
    nRead += MORE_ITEMS;
    showRest();
  };
  showRest();
  const spread = group.spread ? `up to ${bits(group.spread)} from the first` : "with the same code";
  return element(
    "section",
    { class: "panel", "aria-label": title },
    element("h2", {}, title, element("span", { class: "faint" }, `, ${spread}`)),
    grid,
    more,
  );
}

function showPager({ from }, nShown, nGroups) {
  const link = (text, start) =>
    element("a", { href: urlOf({ ...readState(), view: "duplicates", from: start }), "data-route": true }, text);
  const parts = [
    from > 0 ? link("Previous", Math.max(0, Math.min(from, nGroups) - GROUPS)) : null,
    nShown && element("span", { class: "faint" }, `Groups ${formatNumber(from + 1)} to ${formatNumber(from + nShown)} of ${formatNumber(nGroups)}`),
    from + nShown < nGroups ? link("Next", from + GROUPS) : null,
  ];
  byId("pager").replaceChildren(...parts.filter(Boolean));
  byId("pager").hidden = nShown === nGroups;
}

function showRadius() {
  const input = byId("within");
  const text = bits(Number(input.value));
  byId("within-shown").value = text;
  input.setAttribute("aria-valuetext", text);
  input.style.setProperty("--filled", `${(100 * input.value) / Math.max(1, input.max)}%`);
}
