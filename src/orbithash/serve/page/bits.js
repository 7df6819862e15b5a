// A code as a strip of bits; where it differs from another, the bit is coloured and taller.

import { svg } from "./dom.js";

const PER_ROW = 64;
const WIDTH = 4;
const HEIGHT = 13;
const MORE = 5; // by which a differing bit is taller
const ROW = HEIGHT + MORE + 3;

export function bitsOf(code, n) {
  const bits = [];
  for (let i = 0; i < n; i++) bits.push((parseInt(code.slice(2 * (i >> 3), 2 * (i >> 3) + 2), 16) >> (7 - (i & 7))) & 1);
  return bits;
}

export function strip(code, n, other = null) {
  const bits = bitsOf(code, n);
  const others = other === null ? bits : bitsOf(other, n);
  const columns = Math.min(n, PER_ROW);
  const rows = Math.ceil(n / PER_ROW);
  const paths = { on: "", off: "", "differs on": "", "differs off": "" };
  const different = [];
  bits.forEach((bit, i) => {
    const differs = bit !== others[i];
    if (differs) different.push(i + 1);
    const x = (i % PER_ROW) * WIDTH;
    const y = Math.floor(i / PER_ROW) * ROW;
    const height = HEIGHT + (differs ? MORE : 0);
    paths[(differs ? "differs " : "") + (bit ? "on" : "off")] += `M${x} ${y}h${WIDTH - 1}v${height}h${1 - WIDTH}z`;
  });
  const drawn = Object.entries(paths).filter(([, path]) => path);
  return svg(
    "svg",
    {
      class: "strip",
      viewBox: `0 0 ${columns * WIDTH - 1} ${rows * ROW - 3}`,
      role: "img",
      "aria-label": spoken(different, n, other !== null),
      preserveAspectRatio: "none",
    },
    ...drawn.map(([kind, path]) => svg("path", { class: kind, d: path })),
  );
}

function spoken(different, n, compared) {
  if (!compared) return `code of ${n} bits`;
  if (!different.length) return `all ${n} bits agree`;
  const shown = different.slice(0, 8).join(", ") + (different.length > 8 ? ", …" : "");
  return `${different.length} of ${n} bits differ: ${shown}`;
}
