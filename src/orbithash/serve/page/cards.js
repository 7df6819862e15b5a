// Items as cards: links to a search by each, so that they open in a new tab as well.

import { thumbnail } from "./api.js";
import { strip } from "./bits.js";
import { element, svg } from "./dom.js";
import { addressOf, readState } from "./state.js";

const ATTEMPTS = 3; // for a picture
const PAUSE = 700; // ms, longer each time

export const addressOfItem = (item) =>
  addressOf({ ...readState(), view: "search", id: item.text_id, code: null });

export function picture(item, alt = "") {
  const nothing = () => element("span", { class: "picture nothing" }, element("span", {}, extension(item.name)));
  if (!item.picture) return nothing();
  const image = element("img", { src: thumbnail(item), alt, loading: "lazy", decoding: "async" });
  const frame = element("span", { class: "picture" }, image);
  image.addEventListener("load", () => image.classList.toggle("tiny", image.naturalWidth < 64));
  let attempts = 1;
  image.addEventListener("error", () => {
    // A busy server refuses pictures before searches.
    if (attempts++ < ATTEMPTS) setTimeout(() => (image.src = image.src), PAUSE * attempts);
    else frame.replaceWith(nothing());
  });
  return frame;
}

const extension = (name) => name.split("/").pop().slice(-24) || "no picture";

export function itemCard(item) {
  const name = [item.labels.join(", ") || item.name, "search for similar ones"].join(": ");
  return element(
    "li",
    {},
    element(
      "a",
      { class: "card", href: addressOfItem(item), "data-route": true, "aria-label": name, title: item.name },
      picture(item),
      element("span", { class: "facts" }, label(item)),
    ),
  );
}

export function hitCard(hit, query, nBits) {
  return element(
    "li",
    {},
    element(
      "a",
      {
        class: "card",
        href: addressOfItem(hit),
        "data-route": true,
        "data-id": hit.text_id,
        "aria-label": spoken(hit, nBits),
        title: hit.name,
      },
      picture(hit),
      element(
        "span",
        { class: "facts" },
        element("span", { class: "distance" }, String(hit.distance)),
        label(hit),
        mark(hit.matches),
      ),
      strip(hit.code, nBits, query),
    ),
  );
}

const label = (item) =>
  element("span", { class: "label" }, item.labels.join(", ") || element("span", { class: "faint" }, "no label"));

function mark(matches) {
  if (matches === null) return null;
  const path = matches ? "M4 8.5l2.7 2.7L12 5.5" : "M5 5l6 6M11 5l-6 6";
  return svg(
    "svg",
    { class: `mark ${matches ? "same" : "other"}`, viewBox: "0 0 16 16", role: "img", "aria-label": said(matches) },
    svg("path", { d: path }),
  );
}

const said = (matches) => (matches ? "same label" : "other label");

function spoken(hit, nBits) {
  const parts = [`Rank ${hit.rank}`, hit.labels.join(", ") || hit.name, `${hit.distance} of ${nBits} bits differ`];
  if (hit.matches !== null) parts.push(said(hit.matches));
  return parts.join("; ");
}
