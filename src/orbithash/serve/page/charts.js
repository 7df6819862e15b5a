// Two small charts, drawn to be read at a glance; each says in words what it shows.

import { element, number, svg } from "./dom.js";

const WIDTH = 640;
const HEIGHT = 150;
const AXIS = 22;

// How many pairs are how far apart; `marks` are places with a name.
export function histogram(counts, { label, marks = [] }) {
  const most = Math.max(1, ...counts);
  const step = WIDTH / counts.length;
  const bars = counts.map((count, i) =>
    svg(
      "rect",
      {
        class: "bar",
        x: i * step + step * 0.08,
        width: step * 0.84,
        y: HEIGHT - (count / most) * HEIGHT,
        height: (count / most) * HEIGHT,
      },
      svg("title", {}, `${i} bits: ${number(count)} pairs`),
    ),
  );
  const lines = marks.map(({ at, text }) => markAt((at + 0.5) * step, text));
  return chart(label, [...bars, ...lines.flat(), ...axis(counts.length - 1, step)]);
}

// The share of ones of each bit: half is best, and what leans far is coloured.
export function balance(shares, { label }) {
  const step = WIDTH / shares.length;
  const middle = HEIGHT / 2;
  const bars = shares.map((share, i) => {
    const lean = (share - 0.5) * HEIGHT;
    return svg(
      "rect",
      {
        class: Math.abs(share - 0.5) > 0.25 ? "bar far" : "bar",
        x: i * step + step * 0.12,
        width: step * 0.76,
        y: lean > 0 ? middle - lean : middle,
        height: Math.max(1, Math.abs(lean)),
      },
      svg("title", {}, `bit ${i + 1}: ${Math.round(100 * share)} % ones`),
    );
  });
  const grid = [0, 0.5, 1].map((share) =>
    svg("line", { class: share === 0.5 ? "middle" : "line", x1: 0, x2: WIDTH, y1: (1 - share) * HEIGHT, y2: (1 - share) * HEIGHT }),
  );
  return chart(label, [...grid, ...bars, ...axis(shares.length, step, 1)]);
}

function chart(label, drawn) {
  return element(
    "figure",
    { class: "chart" },
    svg("svg", { viewBox: `0 -14 ${WIDTH} ${HEIGHT + AXIS + 14}`, role: "img", "aria-label": label }, ...drawn),
    element("figcaption", { class: "faint" }, label),
  );
}

function markAt(x, text) {
  const anchor = x > WIDTH * 0.7 ? "end" : "start";
  return [
    svg("line", { class: "mark-line", x1: x, x2: x, y1: -2, y2: HEIGHT }),
    svg("text", { class: "tick", x: x + (anchor === "end" ? -5 : 5), y: -3, "text-anchor": anchor }, text),
  ];
}

function axis(last, step, first = 0) {
  const every = niceStep(last / 8);
  const ticks = [svg("line", { class: "line", x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT })];
  for (let i = first ? every : 0; i <= last; i += every) {
    const x = (i - first + 0.5) * step;
    ticks.push(svg("text", { class: "tick", x, y: HEIGHT + 16, "text-anchor": "middle" }, String(i)));
  }
  return ticks;
}

const niceStep = (about) => [1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128].find((step) => step >= about) ?? 256;
