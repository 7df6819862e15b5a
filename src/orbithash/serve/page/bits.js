// A code as a strip of bits; bits that differ from another code are coloured and taller.

import { svg } from "./dom.js";

const PER_ROW = 64;
const WIDTH = 4;
const HEIGHT = 13;
const EXTRA_HEIGHT = 5; // of a differing bit
const ROW_HEIGHT = HEIGHT + EXTRA_HEIGHT + 3;

export function bitStrip(code, nBits, otherCode = null) {
  const bits = unpack(code, nBits);
  const otherBits = otherCode === null ? bits : unpack(otherCode, nBits);
  const columns = Math.min(nBits, PER_ROW);
  const rows = Math.ceil(nBits / PER_ROW);
  const paths = { on: "", off: "", "differs on": "", "differs off": "" };
  const differing = []; // positions, counted from 1
  bits.forEach((bit, i) => {
    const differs = bit !== otherBits[i];
    if (differs) differing.push(i + 1);
    const x = (i % PER_ROW) * WIDTH;
    const y = Math.floor(i / PER_ROW) * ROW_HEIGHT;
    const height = HEIGHT + (differs ? EXTRA_HEIGHT : 0);
    paths[(differs ? "differs " : "") + (bit ? "on" : "off")] += `M${x} ${y}h${WIDTH - 1}v${height}h${1 - WIDTH}z`;
  });
  const nonEmpty = Object.entries(paths).filter(([, path]) => path);
  return svg(
    "svg",
    {
      class: "strip",
      viewBox: `0 0 ${columns * WIDTH - 1} ${rows * ROW_HEIGHT - 3}`,
      role: "img",
      "aria-label": describe(differing, nBits, otherCode !== null),
      preserveAspectRatio: "none",
    },
    ...nonEmpty.map(([kind, path]) => svg("path", { class: kind, d: path })),
  );
}

// The bits of a hexadecimal code, most significant bit of each byte first.
function unpack(code, nBits) {
  const bits = [];
  for (let i = 0; i < nBits; i++) {
    const byte = parseInt(code.slice(2 * (i >> 3), 2 * (i >> 3) + 2), 16);
    bits.push((byte >> (7 - (i & 7))) & 1);
  }
  return bits;
}

function describe(differing, nBits, isCompared) {
  if (!isCompared) return `code of ${nBits} bits`;
  if (!differing.length) return `all ${nBits} bits are equal`;
  const listed = differing.slice(0, 8).join(", ") + (differing.length > 8 ? ", …" : "");
  return `${differing.length} of ${nBits} bits differ: ${listed}`;
}
