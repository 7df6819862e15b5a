// Two small SVG charts, each with a caption that says in words what it shows.

import { bits, element, plural, svg } from "./dom.js";

const WIDTH = 640;
const HEIGHT = 150;
const MARGIN = { top: 26, side: 26, bottom: 28 }; // room for labels, also in the larger type of phones
const MAX_IMBALANCE = 0.25; // bits beyond it are highlighted

// Number of pairs at each distance; `marks` are named positions on the x axis.
export function distanceHistogram(counts, { caption, marks = [] }) {
  const maxCount = Math.max(1, ...counts);
  const step = WIDTH / counts.length;
  const bars = counts.map((count, i) =>
    svg(
      "rect",
      {
        class: "bar",
        x: i * step + step * 0.08,
        width: step * 0.84,
        y: HEIGHT - (count / maxCount) * HEIGHT,
        height: (count / maxCount) * HEIGHT,
      },
      svg("title", {}, `${bits(i)}: ${plural(count, "pair")}`),
    ),
  );
  const lines = marks.map(({ at, text }) => verticalMark((at + 0.5) * step, text));
  return chart(caption, [...bars, ...lines.flat(), ...xAxis(counts.length - 1, step, { firstText: bits })]);
}

// Fraction of ones of each bit, as a deviation from the ideal of one half.
export function balanceChart(fractions, { caption }) {
  const step = WIDTH / fractions.length;
  const middle = HEIGHT / 2;
  const bars = fractions.map((fraction, i) => {
    const deviation = (fraction - 0.5) * HEIGHT;
    return svg(
      "rect",
      {
        class: Math.abs(fraction - 0.5) > MAX_IMBALANCE ? "bar far" : "bar",
        x: i * step + step * 0.12,
        width: step * 0.76,
        y: deviation > 0 ? middle - deviation : middle,
        height: Math.max(1, Math.abs(deviation)),
      },
      svg("title", {}, `bit ${i + 1}: ${Math.round(100 * fraction)} % ones`),
    );
  });
  const gridLines = [0, 0.5, 1].map((fraction) => {
    const y = (1 - fraction) * HEIGHT;
    return svg("line", { class: fraction === 0.5 ? "middle" : "line", x1: 0, x2: WIDTH, y1: y, y2: y });
  });
  return chart(caption, [...gridLines, ...bars, ...xAxis(fractions.length, step, { first: 1, firstText: (i) => `bit ${i}` })]);
}

function chart(caption, shapes) {
  const { top, side, bottom } = MARGIN;
  const viewBox = `${-side} ${-top} ${WIDTH + 2 * side} ${HEIGHT + top + bottom}`;
  return element(
    "figure",
    { class: "chart" },
    svg("svg", { viewBox, role: "img", "aria-label": caption }, ...shapes),
    element("figcaption", { class: "faint" }, caption),
  );
}

function verticalMark(x, text) {
  const anchor = x > WIDTH * 0.7 ? "end" : "start";
  return [
    svg("line", { class: "mark-line", x1: x, x2: x, y1: -2, y2: HEIGHT }),
    svg("text", { class: "tick", x: x + (anchor === "end" ? -5 : 5), y: -3, "text-anchor": anchor }, text),
  ];
}

// The first tick names the unit.
function xAxis(last, step, { first = 0, firstText }) {
  const interval = tickInterval(last / 8);
  const shapes = [svg("line", { class: "line", x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT })];
  const start = first ? interval : 0;
  for (let i = start; i <= last; i += interval) {
    const x = (i - first + 0.5) * step;
    shapes.push(svg("text", { class: "tick", x, y: HEIGHT + 20, "text-anchor": "middle" }, i === start ? firstText(i) : String(i)));
  }
  return shapes;
}

const tickInterval = (minimum) =>
  [1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128].find((interval) => interval >= minimum) ?? 256;
