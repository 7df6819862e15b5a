// The collection view: how much there is, of what, and how the codes spread.

import * as api from "./api.js";
import { strip } from "./bits.js";
import { addressOfItem, itemCard, picture } from "./cards.js";
import { balance, histogram } from "./charts.js";
import { byId, counted, element, newSeed, number, shuffled } from "./dom.js";
import { attempt, begin } from "./shell.js";
import { arrive } from "./state.js";

const LABELS = 24; // that are shown at first
const SAMPLE = 24;

export function showCollection() {
  const signal = begin();
  document.title = "Collection · orbithash";
  return attempt(async () => {
    if (signal.aborted) return; // while a key was asked for
    const about = await api.stats(signal).catch((error) => {
      if (!signal.aborted && error.status !== 401) arrive(); // the problem is at the top
      throw error;
    });
    if (signal.aborted) return;
    const [sample, drawSample] = sampleOf(about, signal);
    byId("collection").replaceChildren(
      element("h1", { id: "collection-title", tabindex: "-1" }, "The collection"),
      tiles(about),
      element("div", { class: "columns" }, labels(about), element("div", {}, distances(about), bits(about))),
      pairs("Nearest pairs", "Of the sample, those that differ least: duplicates and near ones show here.", about.nearest, about),
      pairs("Farthest pairs", "Of the sample, those that differ most.", about.farthest, about),
      sample,
    );
    if (arrive()) byId("collection-title").focus({ preventScroll: true });
    await drawSample();
  });
}

function panel(title, note, ...children) {
  return element(
    "section",
    { class: "panel", "aria-label": title },
    element("h2", {}, title),
    note ? element("p", { class: "faint note" }, note) : null,
    ...children,
  );
}

function tiles(about) {
  const facts = [
    [number(about.count), about.count === 1 ? "image" : "images"],
    [number(about.n_bits), "bits each"],
    [number(about.n_labels), about.n_labels === 1 ? "label" : "labels"],
    [bytes(about.memory_bytes || (about.count * about.n_bits) / 8), "of codes"],
    [about.engine, "searches"],
  ];
  return element(
    "dl",
    { class: "tiles panel" },
    ...facts.map(([value, name]) => element("div", {}, element("dt", { class: "faint" }, name), element("dd", {}, value))),
  );
}

function bytes(n) {
  const units = ["bytes", "kB", "MB", "GB"];
  let at = 0;
  for (; n >= 1000 && at < units.length - 1; at++) n /= 1000;
  return `${n < 10 && at ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
}

function labels({ labels: counts, n_labels: total }) {
  if (!counts.length) return panel("Labels", "Nothing here has a label.");
  const most = counts[0].count;
  const rows = counts.map(({ label, count }) => {
    const bar = element("span", { class: "share" });
    bar.style.setProperty("--share", `${(100 * count) / most}%`);
    return element("li", {}, element("span", { class: "label", title: label }, label), bar, element("span", { class: "faint count" }, number(count)));
  });
  const list = element("ul", { class: "bars" }, ...rows.slice(0, LABELS));
  const rest = rows.slice(LABELS);
  const more = element("button", {
    type: "button",
    class: "quiet",
    click: () => {
      list.append(...rest);
      more.remove();
    },
  }, `Show ${number(rest.length)} more`);
  const note = total > counts.length ? `The ${number(counts.length)} most frequent of ${number(total)}.` : null;
  return panel("Labels", note, list, rest.length ? more : null);
}

function bits({ bit_balance: shares, sample_size: n }) {
  if (!shares.length) return panel("Balance of bits", "There is nothing to count yet.");
  const leaning = shares.reduce((worst, share, i) => (Math.abs(share - 0.5) > Math.abs(shares[worst] - 0.5) ? i : worst), 0);
  const label = `The most one-sided is bit ${leaning + 1}, which is one in ${Math.round(100 * shares[leaning])} % of ${counted(n, "item")}.`;
  return panel("Balance of bits", "Up: more ones than zeros. Down: more zeros. A bit that is always the same tells nothing.", balance(shares, { label }));
}

function distances({ distances: counts, n_bits: nBits, sample_size: n }) {
  const pairsSeen = counts.reduce((sum, count) => sum + count, 0);
  if (!pairsSeen) return panel("Distances", "Two items are needed for a distance.");
  const mean = counts.reduce((sum, count, i) => sum + i * count, 0) / pairsSeen;
  const label = `Between ${counted(n, "item")} chosen at random: ${mean.toFixed(1)} of ${nBits} bits on average.`;
  return panel("Distances", null, histogram(counts, { label, marks: [{ at: mean, text: `mean ${mean.toFixed(1)}` }] }));
}

function pairs(title, note, found, { n_bits: nBits }) {
  if (!found.length) return null;
  const one = (item, other) =>
    element(
      "a",
      { class: "card", href: addressOfItem(item), "data-route": true, "aria-label": `${item.labels.join(", ") || item.name}: search for similar ones`, title: item.name },
      picture(item),
      element("span", { class: "facts" }, element("span", { class: "label" }, item.labels.join(", ") || item.name)),
      strip(item.code, nBits, other.code),
    );
  return panel(
    title,
    note,
    element(
      "ul",
      { class: "pairs" },
      ...found.map(({ first, second, distance }) =>
        element(
          "li",
          {},
          element("p", { class: "apart" }, element("strong", {}, String(distance)), distance === 1 ? " bit apart" : " bits apart"),
          element("div", { class: "pair" }, one(first, second), one(second, first)),
        ),
      ),
    ),
  );
}

// Its panel, and what draws another sample into it.
function sampleOf(about, signal) {
  const grid = element("ul", { class: "grid small", "aria-label": "A sample" });
  const draw = async () => {
    const seed = newSeed();
    const { items } = about.count ? await api.sample(SAMPLE, seed, signal) : { items: [] };
    grid.replaceChildren(...shuffled(items, seed).map(itemCard));
  };
  const others = element("button", { type: "button", class: "quiet", click: () => attempt(draw) }, "Show others");
  return [panel("A sample", null, grid, others), draw];
}
