// The search view: what was asked with, and what is near.

import * as api from "./api.js";
import { strip } from "./bits.js";
import { hitCard, itemCard, picture } from "./cards.js";
import { showChosen, showLabels, showSliders, startControls } from "./controls.js";
import { byId, counted, element, newSeed, number, shuffled } from "./dom.js";
import { onImage } from "./images.js";
import { keepPreview, preview } from "./previews.js";
import { about, announce, attempt, begin, stats } from "./shell.js";
import { addressOf, adjust, arrive, go, readState, replace, settle, started } from "./state.js";

const SHOWN_AT_START = 24;

let leading = null; // what leads elsewhere, while it is on its way
let uploaded = null; // the answer to an image, by the address that it is shown under

export function startSearch() {
  startControls();
  onImage(takeImage);
  byId("random").addEventListener("click", () =>
    lead(async (signal) => {
      const { items } = await api.sample(1, newSeed(), signal);
      if (signal.aborted) return;
      if (!items.length) throw new api.ApiError(0, "Nothing is indexed yet.");
      go({ view: "search", id: items[0].text_id, code: null });
    }),
  );
  byId("grid").addEventListener("keydown", moveInGrid);
}

export function showSearch(state, moved) {
  showChosen(state);
  if (leading && !moved) return lead(leading); // again, with the knobs as they are now
  leading = null;
  const signal = begin();
  return attempt(async () => {
    if (signal.aborted) return; // while a key was asked for
    busy(true);
    try {
      const isStart = state.id === null && state.code === null;
      const [known, answer] = await Promise.all([about(), isStart ? null : ask(state, signal)]);
      if (signal.aborted) return;
      byId("drop").hidden = !known.takes_images;
      showSliders(state, known);
      listLabels();
      if (isStart) await showStart(state, known, signal);
      else showAnswer(state, known, answer);
      if (!signal.aborted && arrive() && !isStart) byId("summary").focus({ preventScroll: true });
    } catch (error) {
      if (!signal.aborted) {
        showNothing();
        if (error.status !== 401) arrive(); // else only when the key is given
      }
      throw error;
    } finally {
      if (!signal.aborted) busy(false);
    }
  });
}

// Searching does not wait for the labels; without them they can be typed.
function listLabels() {
  stats().then(showLabels, () => {});
}

function busy(is) {
  byId("grid").setAttribute("aria-busy", is);
}

// Results of another search must not stand under a problem of this one.
function showNothing() {
  document.title = "orbithash";
  byId("query").hidden = true;
  byId("legend").hidden = true;
  byId("summary").textContent = "Nothing to show";
  byId("latency").textContent = "";
  byId("grid").replaceChildren();
}

async function showStart(state, about, signal) {
  document.title = "orbithash";
  const seed = state.seed ?? newSeed();
  const { items } = about.count ? await api.sample(SHOWN_AT_START, seed, signal) : { items: [] };
  if (signal.aborted) return;
  replace({ seed });
  byId("query").hidden = true;
  byId("controls").hidden = true;
  byId("legend").hidden = true;
  byId("summary").textContent = items.length ? "Start from one of these" : "Nothing is indexed yet";
  byId("latency").textContent = `${counted(about.count, "image")}, ${about.n_bits} bits each`;
  byId("grid").replaceChildren(...shuffled(items, seed).map(itemCard));
}

async function ask(state, signal) {
  const began = performance.now();
  const address = addressOf(state);
  const answer =
    uploaded?.address === address
      ? uploaded
      : { ...(await api.search(requestOf(state), signal)), waited: performance.now() - began };
  uploaded = null;
  return answer;
}

function showAnswer(state, about, answer) {
  byId("controls").hidden = false;
  showQuery(state, answer);
  showSummary(state, answer, about);
  byId("grid").replaceChildren(
    ...answer.hits.map((hit) => hitCard(hit, answer.query.code, answer.n_bits)),
  );
  showLegend(answer);
}

function requestOf({ id, code, k, radius, labels }) {
  const request = { k, labels };
  if (radius !== null) request.radius = radius;
  if (id !== null) request.id = id; // a string, because numbers of a browser end at 2^53
  else request.code = code;
  return request;
}

function showQuery(state, { query, n_bits: nBits }) {
  const kept = query.item ? null : preview(query.code);
  const image = query.item
    ? element("a", { href: api.original(query.item), "aria-label": "The original image", title: "The original" }, picture(query.item))
    : kept
      ? element("span", { class: "picture" }, element("img", { src: kept, alt: "Your image" }))
      : null;
  const title = query.item ? query.item.labels.join(", ") || query.item.name : kept ? "Your image" : "A code";
  const name = query.item?.name ?? `${query.code.slice(0, 16)}${query.code.length > 16 ? "…" : ""}`;
  document.title = `${title} · orbithash`;
  byId("query").replaceChildren(
    ...[image].filter(Boolean),
    element("h2", {}, title),
    element("p", { class: "faint name" }, name),
    strip(query.code, nBits),
  );
  byId("query").hidden = false;
}

function showSummary(state, { hits, took, waited }, about) {
  const matching = hits.filter((hit) => hit.matches).length;
  const known = hits.some((hit) => hit.matches !== null);
  const share = known ? `, ${matching} with the same label` : "";
  const text = hits.length ? `${number(hits.length)} nearest of ${number(about.count)}${share}` : nothingOf(state);
  byId("summary").textContent = text;
  const parts = [`${milliseconds(took.searching)} to search`];
  if (took.encoding > 1) parts.unshift(`${milliseconds(took.encoding)} to encode`);
  byId("latency").textContent = `Answered in ${milliseconds(waited)}: ${parts.join(", ")}`;
  announce(hits.length ? `${text}. The nearest differs in ${counted(hits[0].distance, "bit")}.` : `${text}.`);
}

function nothingOf({ labels, radius }) {
  if (!labels.length) return "Nothing is that near";
  const wanted = labels.join(" or ");
  return radius === null ? `There is no other image of ${wanted}` : `No image of ${wanted} is that near`;
}

const milliseconds = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;

function showLegend({ hits, n_bits: nBits }) {
  byId("legend").hidden = !hits.length;
  byId("legend").replaceChildren(
    "The number is the distance: how many of the ",
    `${nBits} bits differ from the query's. In each strip, `,
    element("span", { class: "key" }, "these"),
    " are the bits that differ.",
  );
}

function takeImage(file) {
  return lead(async (signal) => {
    const state = { ...readState(), view: "search", id: null };
    const began = performance.now();
    const answer = await api.searchImage(file, state, signal);
    const { code } = answer.query;
    await keepPreview(code, file);
    if (signal.aborted) return;
    uploaded = { ...answer, address: addressOf({ ...state, code }), waited: performance.now() - began };
    go({ view: "search", id: null, code });
  });
}

// Do what leads elsewhere. If it fails, what it interrupted is taken up again.
function lead(action) {
  let signal = null;
  let interrupts = false;
  return attempt(async () => {
    await started;
    if (signal?.aborted) return; // while a key was asked for
    const turned = settle();
    const waits = byId("grid").getAttribute("aria-busy") === "true";
    interrupts ||= turned || waits || readState().view === "collection";
    leading = action;
    signal = begin();
    busy(true);
    try {
      await action(signal);
    } catch (error) {
      if (signal.aborted) throw error;
      leading = null;
      if (interrupts && error.status !== 401) adjust({});
      throw error;
    } finally {
      if (!signal.aborted) busy(false);
    }
  });
}

// Arrow keys move through the grid as the eye does.
function moveInGrid(event) {
  const cards = [...byId("grid").querySelectorAll(".card")];
  const at = cards.indexOf(event.target);
  if (at < 0) return;
  const columns = cards.findIndex((card) => card.offsetTop > cards[0].offsetTop);
  const row = columns < 0 ? cards.length : columns;
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: row, ArrowUp: -row };
  const next = event.key === "Home" ? 0 : event.key === "End" ? cards.length - 1 : at + (steps[event.key] ?? NaN);
  if (cards[next]) {
    event.preventDefault();
    cards[next].focus();
  }
}
