// The collection view: statistics of the index and a random sample.

import * as api from "./api.js";
import { bitStrip } from "./bits.js";
import { itemCard, itemImage, itemUrl } from "./cards.js";
import { balanceChart, distanceHistogram } from "./charts.js";
import { bits, byId, element, formatNumber, plural, randomSeed, shuffled } from "./dom.js";
import { runAndReport, startRequest } from "./shell.js";
import { finishNavigation, readState, urlOf } from "./state.js";

const LABELS_SHOWN = 24; // before "Show more"
const SAMPLE_SIZE = 24;

export function showCollection() {
  const signal = startRequest();
  document.title = "Collection · orbithash";
  return runAndReport(async () => {
    if (signal.aborted) return; // while the key dialog was open
    const stats = await api.stats(signal).catch((error) => {
      if (!signal.aborted && error.status !== 401) finishNavigation(); // the error is shown at the top
      throw error;
    });
    if (signal.aborted) return;
    const [sample, drawSample] = samplePanel(stats, signal);
    const parts = [
      element("h1", { id: "collection-title", tabindex: "-1" }, "Collection"),
      tiles(stats),
      element("div", { class: "columns" }, labelPanel(stats), element("div", {}, distancePanel(stats), bitPanel(stats))),
      pairPanel(
        "Nearest pairs",
        "Pairs of the sample with the smallest distances: duplicates and near-duplicates appear here.",
        stats.nearest,
        stats,
      ),
      pairPanel("Farthest pairs", "Pairs of the sample with the largest distances.", stats.farthest, stats),
      stats.count ? sample : null,
    ];
    byId("collection").replaceChildren(...parts.filter(Boolean));
    if (finishNavigation()) byId("collection-title").focus({ preventScroll: true });
    if (stats.count) await drawSample();
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

function tiles(stats) {
  const facts = [
    [formatNumber(stats.count), stats.count === 1 ? "image" : "images"],
    [formatNumber(stats.n_bits), "bits each"],
    [formatNumber(stats.n_labels), stats.n_labels === 1 ? "label" : "labels"],
    [formatBytes(stats.memory_bytes || (stats.count * stats.n_bits) / 8), "of codes"],
    [stats.engine, "search engine"],
  ];
  return element(
    "dl",
    { class: "tiles panel" },
    ...facts.map(([value, name]) => element("div", {}, element("dt", { class: "faint" }, name), element("dd", {}, value))),
  );
}

function formatBytes(n) {
  const units = ["bytes", "kB", "MB", "GB"];
  let unit = 0;
  for (; n >= 1000 && unit < units.length - 1; unit++) n /= 1000;
  return `${n < 10 && unit ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

function labelPanel({ labels, n_labels: nLabels }) {
  if (!labels.length) return panel("Labels", "No image has a label.");
  const maxCount = labels[0].count;
  const rows = labels.map(({ label, count }) => {
    const bar = element("span", { class: "share" });
    bar.style.setProperty("--share", `${(100 * count) / maxCount}%`);
    return element(
      "li",
      {},
      element("a", { class: "label", href: labelUrl(label), "data-route": true, title: `Images with the label ${label}` }, label),
      bar,
      element("span", { class: "faint count" }, formatNumber(count)),
    );
  });
  const list = element("ul", { class: "bars", "aria-label": "Labels" }, ...rows.slice(0, LABELS_SHOWN));
  const hiddenRows = rows.slice(LABELS_SHOWN);
  const more = element("button", {
    type: "button",
    class: "quiet",
    click: () => {
      list.append(...hiddenRows);
      more.remove();
    },
  }, `Show ${formatNumber(hiddenRows.length)} more`);
  const note = nLabels > labels.length ? `The ${formatNumber(labels.length)} most frequent of ${formatNumber(nLabels)}.` : null;
  return panel("Labels", note, list, hiddenRows.length ? more : null);
}

// The search view with random images that have the label; other options have their defaults.
const labelUrl = (label) => urlOf({ ...readState("?"), labels: [label] });

function bitPanel({ bit_balance: fractions, sample_size: sampleSize }) {
  if (!fractions.length) return panel("Bit balance", "The index is empty.");
  const imbalance = (i) => Math.abs(fractions[i] - 0.5);
  const worst = fractions.reduce((worst, _, i) => (imbalance(i) > imbalance(worst) ? i : worst), 0);
  const caption = `Least balanced: bit ${worst + 1}, which is 1 in ${Math.round(100 * fractions[worst])} % of ${plural(sampleSize, "image")}.`;
  const note = "Up: more ones than zeros. Down: more zeros than ones. A constant bit carries no information.";
  return panel("Bit balance", note, balanceChart(fractions, { caption }));
}

function distancePanel({ distances: counts, n_bits: nBits, sample_size: sampleSize }) {
  const nPairs = counts.reduce((sum, count) => sum + count, 0);
  if (!nPairs) return panel("Distances", "At least two images are needed.");
  const mean = counts.reduce((sum, count, distance) => sum + distance * count, 0) / nPairs;
  const caption = `Pairs of ${plural(sampleSize, "random image")}, by the number of bits that differ: ${mean.toFixed(1)} of ${nBits} on average.`;
  return panel("Distances", null, distanceHistogram(counts, { caption, marks: [{ at: mean, text: `mean ${mean.toFixed(1)} bits` }] }));
}

function pairPanel(title, note, pairs, { n_bits: nBits }) {
  if (!pairs.length) return null;
  const card = (item, other) => {
    const name = item.labels.join(", ") || item.name;
    return element(
      "a",
      { class: "card", href: itemUrl(item), "data-route": true, "aria-label": `${name}: search for similar images`, title: item.name },
      itemImage(item),
      element("span", { class: "facts" }, element("span", { class: "label" }, name)),
      bitStrip(item.code, nBits, other.code),
    );
  };
  return panel(
    title,
    note,
    element(
      "ul",
      { class: "pairs" },
      ...pairs.map(({ first, second, distance }) =>
        element(
          "li",
          {},
          element("p", { class: "apart" }, element("strong", {}, bits(distance)), " apart"),
          element("div", { class: "pair" }, card(first, second), card(second, first)),
        ),
      ),
    ),
  );
}

// Returns the panel and a function that draws a new sample into it.
function samplePanel(stats, signal) {
  const grid = element("ul", { class: "grid small", "aria-label": "Random sample" });
  const draw = async () => {
    const seed = randomSeed();
    const { items } = await api.sample(SAMPLE_SIZE, seed, [], signal);
    grid.replaceChildren(...shuffled(items, seed).map(itemCard));
  };
  const others = element("button", { type: "button", class: "quiet", click: () => runAndReport(draw) }, "Show others");
  return [panel("Random sample", null, grid, others), draw];
}
