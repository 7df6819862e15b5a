// How many, how near, and of which labels.

import { byId, counted, element } from "./dom.js";
import { adjust, readState } from "./state.js";

const PAUSE = 120; // ms after the last move of a slider
const moved = new Set(); // sliders whose last move was not acted on yet

export function startControls() {
  slider("k", (value) => ({ k: value }));
  slider("radius", (value, most) => ({ radius: value >= most ? null : value }));
  byId("filter").addEventListener("submit", (event) => {
    event.preventDefault();
    choose(byId("label").value, true);
  });
  // A choice from the list needs no Enter.
  byId("label").addEventListener("input", (event) => {
    if (event.inputType === "insertReplacementText" || !event.inputType) choose(event.target.value);
  });
}

function slider(name, change) {
  const input = byId(name);
  let timer;
  input.addEventListener("input", () => {
    showValue(name);
    moved.add(name);
    clearTimeout(timer);
    timer = setTimeout(() => {
      moved.delete(name);
      adjust(change(Number(input.value), Number(input.max)));
    }, PAUSE);
  });
}

// The list holds the most frequent labels; others can be typed.
function choose(label, isComplete = false) {
  const known = [...byId("labels").options].map((option) => option.value);
  const chosen = known.find((each) => each.toLowerCase() === label.trim().toLowerCase());
  const taken = chosen ?? (isComplete ? label.trim() : "");
  if (!taken) return;
  byId("label").value = "";
  const { labels } = readState();
  if (!labels.includes(taken)) adjust({ labels: [...labels, taken] });
}

export function showControls(state, about) {
  const { n_bits: nBits, largest_k: largest, count } = about;
  const k = byId("k");
  k.max = Math.max(state.k, Math.min(100, largest, Math.max(1, count)));
  const radius = byId("radius");
  radius.max = nBits;
  // An answer to what was asked before must not take back what somebody has moved since.
  if (!moved.has("k")) k.value = state.k;
  if (!moved.has("radius")) radius.value = state.radius ?? nBits;
  showValue("k");
  showValue("radius");
  showChosen(state);
}

function showValue(name) {
  const input = byId(name);
  const everything = name === "radius" && Number(input.value) >= Number(input.max);
  const text = name === "k" ? input.value : everything ? "any" : counted(Number(input.value), "bit");
  byId(`${name}-shown`).value = text;
  input.setAttribute("aria-valuetext", text);
  const share = (input.value - input.min) / Math.max(1, input.max - input.min);
  input.style.setProperty("--filled", `${100 * share}%`);
}

export function showLabels({ labels }) {
  const list = byId("labels");
  if (list.childElementCount !== labels.length) {
    list.replaceChildren(
      ...labels.map(({ label, count }) => element("option", { value: label }, counted(count, "item"))),
    );
  }
  byId("filter").hidden = !labels.length;
}

function showChosen(state) {
  byId("chosen").replaceChildren(
    ...state.labels.map((label) =>
      element(
        "li",
        {},
        element(
          "button",
          {
            type: "button",
            class: "chip",
            "aria-label": `Do not ask for ${label} any more`,
            click: () => {
              adjust({ labels: readState().labels.filter((each) => each !== label) });
              byId("label").focus();
            },
          },
          label,
          element("span", { "aria-hidden": "true" }, "×"),
        ),
      ),
    ),
  );
}
