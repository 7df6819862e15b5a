// The state of the page, which is its URL: it can be bookmarked, shared and returned to.

export const DEFAULT_K = 24;
const OTHER_VIEWS = ["collection", "duplicates"]; // besides the search
const DEBOUNCE = 150; // ms without a change before a slider or scroll position is applied

export function readState(search = location.search) {
  const parameters = new URLSearchParams(search);
  const integer = (name, fallback) => (/^-?\d{1,19}$/.test(parameters.get(name) ?? "") ? parameters.get(name) : fallback);
  return {
    view: OTHER_VIEWS.includes(parameters.get("view")) ? parameters.get("view") : "search",
    id: integer("id", null), // a string: JavaScript rounds integers above 2^53
    code: /^([0-9a-f]{2})+$/.test(parameters.get("code") ?? "") ? parameters.get("code") : null,
    seed: integer("seed", null), // of the random images on the start page
    k: Math.max(1, Number(integer("k", DEFAULT_K))),
    radius: parameters.has("radius") ? Math.max(0, Number(integer("radius", 0))) : null,
    labels: parameters.getAll("label"),
    within: parameters.has("within") ? Math.max(0, Number(integer("within", 0))) : null, // bits, of near-duplicates
    from: Math.max(0, Number(integer("from", 0))), // the first group of near-duplicates that is shown
  };
}

export function urlOf(state) {
  const parameters = new URLSearchParams();
  if (state.view !== "search") parameters.set("view", state.view);
  if (state.view === "duplicates") {
    if (state.within !== null) parameters.set("within", state.within);
    if (state.from) parameters.set("from", state.from);
  } else if (state.view === "search") {
    if (state.id !== null) parameters.set("id", state.id);
    else if (state.code !== null) parameters.set("code", state.code);
    else if (state.seed !== null) parameters.set("seed", state.seed);
    if (state.k !== DEFAULT_K) parameters.set("k", state.k);
    if (state.radius !== null) parameters.set("radius", state.radius);
    for (const label of state.labels) parameters.append("label", label);
  }
  return `?${parameters}`;
}

const listeners = [];
let notifiedUrl = null; // the URL that listeners know

export const onStateChange = (listener) => listeners.push(listener);

// `isNavigation` distinguishes a new history entry, or moving in the history, from a changed option.
function notify(isNavigation) {
  notifiedUrl = urlOf(readState());
  isNavigating ||= isNavigation;
  listeners.forEach((listener) => listener(readState(), isNavigation));
}

// Change the state in a new history entry.
export function navigate(change) {
  flushPending();
  if (!isNavigating) saveScroll();
  const url = urlOf({ ...readState(), ...change });
  if (url !== (location.search || "?")) history.pushState(null, "", url);
  notify(true);
}

// Change the state in the current history entry.
export function updateState(change) {
  flushPending();
  replaceUrl(change);
  notify(false);
}

// Change the URL without notifying listeners, who show its state already.
export function replaceUrl(change) {
  history.replaceState(history.state, "", urlOf({ ...readState(), ...change }));
  notifiedUrl = urlOf(readState());
}

// Changes by sliders that still move: browsers limit how often the URL may change.
let pending = {};
let pendingTimer;

export function updateLater(change) {
  pending = { ...pending, ...change };
  clearTimeout(pendingTimer);
  pendingTimer = setTimeout(() => updateState({}), DEBOUNCE);
}

// What the sliders show: the response to an earlier request must not move them back.
export const withPending = (state) => ({ ...state, ...pending });

// Write pending changes to the URL; returns whether there were any.
export function flushPending() {
  clearTimeout(pendingTimer);
  const names = Object.keys(pending);
  replaceUrl(pending);
  pending = {};
  return names.length > 0;
}

let isNavigating = false; // until the new state is shown; the scroll position is the old one's
let scrollTimer;

// Called when the new state is shown. Restores its scroll position after a navigation, and returns
// whether there was one.
export function finishNavigation() {
  const wasNavigating = isNavigating;
  if (wasNavigating) scrollTo({ top: history.state?.scroll ?? 0 });
  isNavigating = false;
  return wasNavigating;
}

function saveScroll() {
  clearTimeout(scrollTimer);
  history.replaceState({ scroll: scrollY }, "");
}

function onScroll() {
  clearTimeout(scrollTimer);
  if (!isNavigating) scrollTimer = setTimeout(saveScroll, DEBOUNCE);
}

let resolveStarted;
export const started = new Promise((resolve) => (resolveStarted = resolve));

export function start() {
  history.scrollRestoration = "manual"; // the browser would restore it before the results are shown
  addEventListener("scroll", onScroll, { passive: true });
  addEventListener("popstate", () => {
    if (urlOf(readState()) === notifiedUrl) return; // only the fragment changed
    clearTimeout(scrollTimer);
    clearTimeout(pendingTimer);
    pending = {}; // belongs to the state that was left
    notify(true);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-route]");
    if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    const target = readState(new URL(link.href).search);
    // A card may be older than the current options, so only its id is taken from it.
    navigate(target.id === null ? target : { view: target.view, id: target.id, code: null });
  });
  notify(true);
  resolveStarted();
}
