// Helpers to create elements and format numbers. Text from the server is never parsed as HTML.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG_NAMESPACE, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const formatNumber = (value) => value.toLocaleString("en");

export const plural = (n, noun) => `${formatNumber(n)} ${n === 1 ? noun : `${noun}s`}`;

export const bits = (n) => plural(n, "bit");

// The distance of a result: bits, or the sum that an embedding ranks by.
export const distanceText = (hit, ranking) => (ranking === "hamming" ? bits(hit.distance) : hit.distance.toFixed(3));

// The condition of a filter, to put after a noun: "with the label wren or robin".
export const withLabels = (labels) =>
  labels.length > 3 ? `with one of ${labels.length} labels` : `with the label ${labels.join(" or ")}`;

export const randomSeed = () => String(Math.floor(Math.random() * 2 ** 31));

// Samples arrive in the order of ids, that is, folder by folder. The same seed gives the same order.
export function shuffled(items, seed) {
  const result = [...items];
  let state = Number(seed) % 2147483647 || 1;
  for (let i = result.length - 1; i > 0; i--) {
    state = (state * 48271) % 2147483647;
    const j = state % (i + 1);
    [result[i], result[j]] = [result[j], result[i]];
  }
  return result;
}
