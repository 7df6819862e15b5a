// What is shown, as the address says it: every state can be kept, shared and gone back to.

export const DEFAULT_K = 24;
const REST = 150; // ms that a place in the page, or a knob, stays as it is before it is taken as meant

export function readState(address = location.search) {
  const given = new URLSearchParams(address);
  const whole = (name, otherwise) => (/^-?\d{1,19}$/.test(given.get(name) ?? "") ? given.get(name) : otherwise);
  return {
    view: given.get("view") === "collection" ? "collection" : "search",
    id: whole("id", null), // a string: an id may be larger than the numbers of a browser
    code: /^([0-9a-f]{2})+$/.test(given.get("code") ?? "") ? given.get("code") : null,
    seed: whole("seed", null), // of the random pictures to start from
    k: Math.max(1, Number(whole("k", DEFAULT_K))),
    radius: given.has("radius") ? Math.max(0, Number(whole("radius", 0))) : null,
    labels: given.getAll("label"),
  };
}

export function addressOf(state) {
  const shown = new URLSearchParams();
  if (state.view === "collection") shown.set("view", "collection");
  else {
    if (state.id !== null) shown.set("id", state.id);
    else if (state.code !== null) shown.set("code", state.code);
    else if (state.seed !== null) shown.set("seed", state.seed);
    if (state.k !== DEFAULT_K) shown.set("k", state.k);
    if (state.radius !== null) shown.set("radius", state.radius);
    for (const label of state.labels) shown.append("label", label);
  }
  return `?${shown}`;
}

const listeners = [];

export const onState = (listener) => listeners.push(listener);

// `moved` tells listeners that somebody went somewhere, rather than turned a knob.
function tell(moved) {
  told = addressOf(readState());
  arriving ||= moved;
  listeners.forEach((listener) => listener(readState(), moved));
}

let told = null; // the address that listeners know

export function go(change) {
  settle();
  if (!arriving) keepPlace();
  const address = addressOf({ ...readState(), ...change });
  if (address !== (location.search || "?")) history.pushState(null, "", address);
  tell(true);
}

export function adjust(change) {
  settle();
  replace(change);
  tell(false);
}

// Name what is shown already.
export function replace(change) {
  history.replaceState(history.state, "", addressOf({ ...readState(), ...change }));
  told = addressOf(readState());
}

let turned = {}; // by knobs that still move: browsers do not take an address for every pixel
let turning;

export function turn(change) {
  turned = { ...turned, ...change };
  clearTimeout(turning);
  turning = setTimeout(() => adjust({}), REST);
}

// What the knobs show: an answer to what was asked before takes nothing back.
export const withTurned = (state) => ({ ...state, ...turned });

// Whatever is done next counts with the knobs as they are now. Returns whether any had moved.
export function settle() {
  clearTimeout(turning);
  const names = Object.keys(turned);
  replace(turned);
  turned = {};
  return names.length > 0;
}

let arriving = false; // somebody, at what is not shown yet: the page is scrolled as the one before
let scrolling;

// What the address names is shown. Scrolls to where somebody was who comes back to it, else to the
// top; returns whether anybody had come, rather than turned a knob.
export function arrive() {
  const came = arriving;
  if (came) scrollTo({ top: history.state?.scroll ?? 0 });
  arriving = false;
  return came;
}

function keepPlace() {
  clearTimeout(scrolling);
  history.replaceState({ scroll: scrollY }, "");
}

function onScroll() {
  clearTimeout(scrolling);
  if (!arriving) scrolling = setTimeout(keepPlace, REST);
}

let haveStarted;
export const started = new Promise((resolve) => (haveStarted = resolve));

export function start() {
  history.scrollRestoration = "manual"; // the browser's own comes before the results do
  addEventListener("scroll", onScroll, { passive: true });
  addEventListener("popstate", () => {
    if (addressOf(readState()) === told) return; // a link inside the page changes nothing
    clearTimeout(scrolling);
    clearTimeout(turning);
    turned = {}; // by knobs of an address that is left already
    tell(true);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-route]");
    if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    const there = readState(new URL(link.href).search);
    // A card may be older than the knobs.
    go(there.id === null ? there : { view: there.view, id: there.id, code: null });
  });
  tell(true);
  haveStarted();
}
