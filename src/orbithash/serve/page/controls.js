// How many, how near, and of which labels.

import { byId, counted, element } from "./dom.js";
import { adjust, readState, turn, withTurned } from "./state.js";

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
  input.addEventListener("input", () => {
    showValue(name);
    turn(change(Number(input.value), Number(input.max)));
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
  adjust({ labels: labels.includes(taken) ? labels : [...labels, taken] });
}

export function showSliders(state, about) {
  const { n_bits: nBits, largest_k: largest, count } = about;
  const { k, radius } = withTurned(state);
  byId("k").max = Math.max(k, Math.min(100, largest, Math.max(1, count)));
  byId("k").value = k;
  byId("radius").max = nBits;
  byId("radius").value = radius ?? nBits;
  showValue("k");
  showValue("radius");
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

// At once, so that a label can be taken back even if nothing answers.
export function showChosen(state) {
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
