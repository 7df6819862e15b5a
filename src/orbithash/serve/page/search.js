// The search view: the query and its nearest items.

import * as api from "./api.js";
import { bitStrip } from "./bits.js";
import { hitCard, itemCard, itemImage } from "./cards.js";
import { initControls, showLabelList, showSelectedLabels, showSliders } from "./controls.js";
import { bits, byId, element, formatNumber, plural, randomSeed, shuffled, withLabels } from "./dom.js";
import { onImage } from "./images.js";
import { loadEmbedding, loadPreview, saveEmbedding, savePreview } from "./previews.js";
import { about, announce, runAndReport, startRequest, stats } from "./shell.js";
import { finishNavigation, flushPending, navigate, readState, replaceUrl, started, updateState, urlOf } from "./state.js";

const SAMPLE_SIZE = 24; // items on the start page

let currentAction = null; // a running action that ends with a navigation
let uploadResponse = null; // response to an image upload, with the URL of its results

export function initSearch() {
  initControls();
  onImage(searchByImage);
  byId("random").addEventListener("click", () =>
    runThenNavigate(async (signal) => {
      const { items } = await api.sample(1, randomSeed(), [], signal);
      if (signal.aborted) return;
      if (!items.length) throw new api.ApiError(0, "The index is empty.");
      navigate({ view: "search", id: items[0].text_id, code: null, labels: [] }); // a filter belongs to the last query
    }),
  );
  byId("grid").addEventListener("keydown", moveFocusInGrid);
}

export function showSearch(state, isNavigation) {
  showSelectedLabels(state);
  if (currentAction && !isNavigation) return runThenNavigate(currentAction); // restart with the new options
  currentAction = null;
  const signal = startRequest();
  return runAndReport(async () => {
    if (signal.aborted) return; // while the key dialog was open
    setBusy(true);
    try {
      const isStartPage = state.id === null && state.code === null;
      const results = isStartPage ? null : fetchResults(state, signal);
      results?.catch(() => {}); // thrown below, once the options are shown
      const info = await about();
      if (signal.aborted) return;
      byId("drop").hidden = !info.takes_images;
      byId("random").hidden = !info.count;
      byId("sliders").hidden = isStartPage;
      showSliders(state, info);
      loadLabelList();
      if (isStartPage) await showStartPage(state, info, signal);
      else {
        const response = await results;
        if (signal.aborted) return;
        showResults(state, response);
      }
      if (!signal.aborted && finishNavigation() && !isStartPage) byId("summary").focus({ preventScroll: true });
    } catch (error) {
      if (!signal.aborted) {
        clearResults();
        if (error.status !== 401) finishNavigation(); // after a 401 it continues once the key is entered
      }
      throw error;
    } finally {
      if (!signal.aborted) setBusy(false);
    }
  });
}

// Not awaited: searching works without the list, and labels can be typed.
function loadLabelList() {
  stats().then(showLabelList, () => {});
}

function setBusy(isBusy) {
  byId("grid").setAttribute("aria-busy", isBusy);
}

// Results of an earlier search must not appear below the error of this one.
function clearResults() {
  document.title = "orbithash";
  byId("query").hidden = true;
  byId("legend").hidden = true;
  byId("summary").textContent = "No results";
  byId("latency").textContent = "";
  byId("grid").replaceChildren();
}

async function showStartPage(state, info, signal) {
  document.title = "orbithash";
  const seed = state.seed ?? randomSeed();
  const { labels } = state;
  const { items, count, n_with_labels: nWithLabels } = await api.sample(SAMPLE_SIZE, seed, labels, signal);
  if (signal.aborted) return;
  replaceUrl({ seed });
  byId("query").hidden = true;
  byId("legend").hidden = true;
  byId("summary").textContent = labels.length
    ? `${formatNumber(items.length)} of ${plural(nWithLabels, "image")} ${withLabels(labels)}`
    : items.length
      ? "Start from one of these images"
      : "The index is empty";
  const all = `${plural(count, "image")}${labels.length ? " in all" : ""}`;
  byId("latency").textContent = count ? `${all}, ${bits(info.n_bits)} each` : "Add images with: orbithash index RUN FOLDER --out INDEX";
  byId("grid").replaceChildren(...shuffled(items, seed).map(itemCard));
}

async function fetchResults(state, signal) {
  const start = performance.now();
  const response =
    uploadResponse?.url === urlOf(state)
      ? uploadResponse
      : { ...(await api.search(requestBody(state), signal)), elapsed: performance.now() - start };
  uploadResponse = null;
  return response;
}

function requestBody({ id, code, k, radius, labels }) {
  const body = { k, labels };
  if (radius !== null) body.radius = radius;
  if (id !== null) body.id = id; // a string: JavaScript rounds integers above 2^53
  else {
    // The link holds the code of an uploaded image; this tab has its embedding, which ranks better.
    const embedding = loadEmbedding(code);
    if (embedding) body.embedding = embedding;
    else body.code = code;
  }
  return body;
}

function showResults(state, response) {
  showQuery(response);
  showSummary(state, response);
  byId("grid").replaceChildren(
    ...response.hits.map((hit) => hitCard(hit, response)),
  );
  showLegend(response);
}

function showQuery({ query, n_bits: nBits }) {
  const preview = query.item ? null : loadPreview(query.code);
  const title = query.item ? query.item.labels.join(", ") || query.item.name : preview ? "Your image" : "Code";
  const name = query.item?.name ?? `${query.code.slice(0, 16)}${query.code.length > 16 ? "…" : ""}`;
  document.title = `${title} · orbithash`;
  byId("query").replaceChildren(
    ...[query.item ? linkedImage(query.item) : previewImage(preview)].filter(Boolean),
    element("h2", { title }, title),
    ...(name === title ? [] : [element("p", { class: "faint name", title: name }, name)]),
    bitStrip(query.code, nBits),
  );
  byId("query").hidden = false;
}

const previewImage = (source) =>
  source && element("span", { class: "picture" }, element("img", { src: source, alt: "Your image" }));

function linkedImage(item) {
  if (!item.picture) return itemImage(item);
  return element("a", { href: api.originalUrl(item), "aria-label": "Original image", title: "Original image" }, itemImage(item));
}

function showSummary(state, response) {
  const { hits, took, elapsed } = response;
  const text = hits.length ? resultMessage(state, response) : emptyMessage(state, response);
  byId("summary").textContent = text;
  const parts = [`${milliseconds(took.searching)} to search`];
  if (took.encoding > 1) parts.unshift(`${milliseconds(took.encoding)} to encode`);
  const all = state.labels.length ? `${plural(response.count, "image")} in all. ` : "";
  byId("latency").textContent = `${all}Took ${milliseconds(elapsed)}: ${parts.join(", ")}`;
  announce(hits.length ? `${text}. The nearest differs in ${bits(hits[0].hamming)}.` : `${text}.`);
}

function resultMessage({ k, radius, labels }, { hits, query, count, n_with_labels: nWithLabels }) {
  const isFiltered = labels.length > 0;
  // The query itself is not among the results.
  const isCounted = query.item && (!isFiltered || query.item.labels.some((label) => labels.includes(label)));
  const n = (isFiltered ? nWithLabels : count) - (isCounted ? 1 : 0);
  const searched = `${plural(n, query.item ? "other image" : "image")}${isFiltered ? ` ${withLabels(labels)}` : ""}`;
  const shown = radius === null || hits.length === k ? "nearest of" : "of";
  const within = radius === null ? "" : ` within ${bits(radius)}`;
  const nMatching = hits.filter((hit) => hit.matches).length;
  const matching = !isFiltered && hits.some((hit) => hit.matches !== null) ? `, ${formatNumber(nMatching)} with the same label` : "";
  return `${formatNumber(hits.length)} ${shown} ${searched}${within}${matching}`;
}

function emptyMessage({ labels, radius }, { count, nearest_distance: nearest }) {
  if (!count) return "The index is empty";
  const filter = labels.length ? ` ${withLabels(labels)}` : "";
  if (radius === null || nearest === null) return `The index has no other image${filter}`;
  return `Nothing${filter} within ${bits(radius)}: the nearest is ${bits(nearest)} away`;
}

const milliseconds = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;

function showLegend({ hits, ranking, n_bits: nBits }) {
  byId("legend").hidden = !hits.length;
  byId("legend").replaceChildren(
    ranking === "hamming"
      ? `Distances are Hamming distances: how many of the ${nBits} bits differ from the query. `
      : "Distances are asymmetric: bits that differ count less where your image is uncertain of them. ",
    "The strip shows the bits; ",
    element("span", { class: "key" }, "these"),
    " differ.",
  );
}

function searchByImage(file) {
  return runThenNavigate(async (signal) => {
    const state = { ...readState(), view: "search", id: null };
    const start = performance.now();
    const response = await api.searchImage(file, state, signal);
    const { code, embedding } = response.query;
    saveEmbedding(code, embedding);
    await savePreview(code, file);
    if (signal.aborted) return;
    uploadResponse = { ...response, url: urlOf({ ...state, code }), elapsed: performance.now() - start };
    navigate({ view: "search", id: null, code });
  });
}

// Run an action that ends with a navigation. If it fails, show again what it interrupted.
function runThenNavigate(action) {
  let signal = null;
  let interrupts = false;
  return runAndReport(async () => {
    await started;
    if (signal?.aborted) return; // while the key dialog was open
    const hadPending = flushPending();
    const isBusy = byId("grid").getAttribute("aria-busy") === "true";
    interrupts ||= hadPending || isBusy || readState().view !== "search";
    currentAction = action;
    signal = startRequest();
    setBusy(true);
    try {
      await action(signal);
    } catch (error) {
      if (signal.aborted) throw error;
      currentAction = null;
      if (interrupts && error.status !== 401) updateState({});
      throw error;
    } finally {
      if (!signal.aborted) setBusy(false);
    }
  });
}

// Arrow keys move by one card or one row.
function moveFocusInGrid(event) {
  const cards = [...byId("grid").querySelectorAll(".card")];
  const position = cards.indexOf(event.target);
  if (position < 0) return;
  const secondRow = cards.findIndex((card) => card.offsetTop > cards[0].offsetTop);
  const columns = secondRow < 0 ? cards.length : secondRow;
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
  const next = event.key === "Home" ? 0 : event.key === "End" ? cards.length - 1 : position + (steps[event.key] ?? NaN);
  if (cards[next]) {
    event.preventDefault();
    cards[next].focus();
  }
}
