// Items as cards. Each card is a link to a search by its item, so it can be opened in a new tab.

import { thumbnailUrl } from "./api.js";
import { bitStrip } from "./bits.js";
import { bits, distanceText, element, svg } from "./dom.js";
import { readState, urlOf } from "./state.js";

const MAX_ATTEMPTS = 3; // to load an image
const RETRY_DELAY = 700; // ms, times the number of attempts
const TINY_PIXELS = 64; // narrower images are enlarged without smoothing

export function itemCard(item) {
  const name = [item.labels.join(", ") || item.name, "search for similar images"].join(": ");
  return element(
    "li",
    {},
    element(
      "a",
      { class: "card", href: itemUrl(item), "data-route": true, "aria-label": name, title: item.name },
      itemImage(item),
      element("span", { class: "facts" }, labelText(item)),
    ),
  );
}

export function hitCard(hit, { query, ranking, n_bits: nBits }) {
  return element(
    "li",
    {},
    element(
      "a",
      {
        class: "card",
        href: itemUrl(hit),
        "data-route": true,
        "data-id": hit.text_id,
        "aria-label": describe(hit, ranking, nBits),
        title: hit.name,
      },
      itemImage(hit),
      element(
        "span",
        { class: "facts" },
        element("span", { class: "distance" }, distanceText(hit, ranking)),
        ranking === "hamming" ? null : element("span", { class: "faint" }, bits(hit.hamming)),
        labelText(hit),
        matchMark(hit.matches),
      ),
      bitStrip(hit.code, nBits, query.code),
    ),
  );
}

export const itemUrl = (item) => urlOf({ ...readState(), view: "search", id: item.text_id, code: null });

export function itemImage(item, alt = "") {
  const placeholder = () =>
    element("span", { class: "picture placeholder" }, element("span", {}, shortName(item.name)));
  if (!item.picture) return placeholder();
  const image = element("img", { src: thumbnailUrl(item), alt, loading: "lazy", decoding: "async" });
  const frame = element("span", { class: "picture" }, image);
  image.addEventListener("load", () => image.classList.toggle("tiny", image.naturalWidth < TINY_PIXELS));
  let attempts = 1;
  image.addEventListener("error", () => {
    // A busy server rejects images before searches.
    if (attempts++ < MAX_ATTEMPTS) setTimeout(() => (image.src = image.src), RETRY_DELAY * attempts);
    else frame.replaceWith(placeholder());
  });
  return frame;
}

const shortName = (name) => name.split("/").pop().slice(-24) || "no image";

// Without labels the name, unless the placeholder of the image shows it already.
function labelText(item) {
  const labels = item.labels.join(", ");
  const text = labels || element("span", { class: "faint" }, item.picture ? shortName(item.name) : "no label");
  return element("span", { class: "label", title: labels || item.name }, text);
}

function matchMark(matches) {
  if (matches === null) return null;
  const path = matches ? "M4 8.5l2.7 2.7L12 5.5" : "M5 5l6 6M11 5l-6 6";
  return svg(
    "svg",
    { class: `mark ${matches ? "same" : "other"}`, viewBox: "0 0 16 16", role: "img", "aria-label": matchText(matches) },
    svg("path", { d: path }),
  );
}

const matchText = (matches) => (matches ? "same label" : "other label");

function describe(hit, ranking, nBits) {
  const parts = [`Rank ${hit.rank}`, hit.labels.join(", ") || hit.name];
  if (ranking !== "hamming") parts.push(`distance ${distanceText(hit, ranking)}`);
  parts.push(`${hit.hamming} of ${nBits} bits differ`);
  if (hit.matches !== null) parts.push(matchText(hit.matches));
  return parts.join("; ");
}
