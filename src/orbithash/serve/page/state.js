// What is shown, as the address says it: every state can be kept, shared and gone back to.

export const DEFAULT_K = 24;
const REST = 150; // ms

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
  listeners.forEach((listener) => listener(readState(), moved));
}

let told = null; // the address that listeners know
let scrolling; // a timer: the place in a page is kept with it when it rests there

export function go(change) {
  const address = addressOf({ ...readState(), ...change });
  clearTimeout(scrolling);
  if (address !== (location.search || "?")) history.pushState(null, "", address);
  tell(true);
}

export function adjust(change) {
  replace(change);
  tell(false);
}

// Name what is shown already.
export function replace(change) {
  history.replaceState(history.state, "", addressOf({ ...readState(), ...change }));
  told = addressOf(readState());
}

// Where somebody was in the page who comes back to it; the top of a new one.
export const backToPlace = () => scrollTo({ top: history.state?.scroll ?? 0 });

function keepPlace() {
  clearTimeout(scrolling);
  scrolling = setTimeout(() => history.replaceState({ scroll: scrollY }, ""), REST);
}

export function start() {
  history.scrollRestoration = "manual"; // the browser's own comes before the results do
  addEventListener("scroll", keepPlace, { passive: true });
  addEventListener("popstate", () => {
    clearTimeout(scrolling);
    if (addressOf(readState()) !== told) tell(true); // a link inside the page changes nothing
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-route]");
    if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(readState(new URL(link.href).search));
  });
  tell(true);
}
