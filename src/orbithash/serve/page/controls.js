// Search options: number of results, radius and labels.

import { bits, byId, element, plural } from "./dom.js";
import { readState, updateLater, updateState, withPending } from "./state.js";

const MAX_SLIDER_K = 100;

export function initControls() {
  initSlider("k", (value) => ({ k: value }));
  initSlider("radius", (value, max) => ({ radius: value >= max ? null : value }));
  byId("filter").addEventListener("submit", (event) => {
    event.preventDefault();
    addLabel(byId("label").value, { acceptsUnlisted: true });
  });
  // Choosing from the list needs no Enter; those events have no or another input type.
  byId("label").addEventListener("input", (event) => {
    if (event.inputType === "insertReplacementText" || !event.inputType) addLabel(event.target.value);
  });
}

function initSlider(name, stateChange) {
  const input = byId(name);
  input.addEventListener("input", () => {
    showValue(name);
    updateLater(stateChange(Number(input.value), Number(input.max)));
  });
}

// The list holds the most frequent labels only; others can be typed.
function addLabel(text, { acceptsUnlisted = false } = {}) {
  const listed = [...byId("labels").options].map((option) => option.value);
  const match = listed.find((label) => label.toLowerCase() === text.trim().toLowerCase());
  const label = match ?? (acceptsUnlisted ? text.trim() : "");
  if (!label) return;
  byId("label").value = "";
  const { labels } = readState();
  updateState({ labels: labels.includes(label) ? labels : [...labels, label] });
}

export function showSliders(state, about) {
  const { n_bits: nBits, largest_k: largestK, count } = about;
  const { k, radius } = withPending(state);
  byId("k").max = Math.max(k, Math.min(MAX_SLIDER_K, largestK, Math.max(1, count)));
  byId("k").value = k;
  byId("radius").max = nBits;
  byId("radius").value = radius ?? nBits;
  showValue("k");
  showValue("radius");
}

function showValue(name) {
  const input = byId(name);
  const isUnlimited = name === "radius" && Number(input.value) >= Number(input.max);
  const text = name === "k" ? input.value : isUnlimited ? "any" : bits(Number(input.value));
  byId(`${name}-shown`).value = text;
  input.setAttribute("aria-valuetext", text);
  const fraction = (input.value - input.min) / Math.max(1, input.max - input.min);
  input.style.setProperty("--filled", `${100 * fraction}%`);
}

export function showLabelList({ labels }) {
  const list = byId("labels");
  if (list.childElementCount !== labels.length) {
    list.replaceChildren(
      ...labels.map(({ label, count }) => element("option", { value: label }, plural(count, "item"))),
    );
  }
  byId("filter").hidden = !labels.length;
}

// Called before the search, so that a label can be removed even if the server does not respond.
export function showSelectedLabels(state) {
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
            "aria-label": `Remove the label ${label}`,
            click: () => {
              updateState({ labels: readState().labels.filter((other) => other !== label) });
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
