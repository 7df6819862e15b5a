"""Draw pictures of twelve kinds, one folder per kind: images to try the commands on.

    python examples/draw_pictures.py pictures/       # 50 of each kind
    python examples/draw_pictures.py pictures/ 2     # 2 of each kind

A picture depends only on its kind and its number. The pictures may be used for anything.
"""

import colorsys
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SIZE = 320  # pixels of a side; drawn twice as large, for smooth edges
CANVAS = 2 * SIZE
WHITE, BLACK, BROWN = (250, 248, 240), (25, 22, 24), (90, 60, 40)


def main(folder: str, per_kind: str = "50") -> None:
    for seed, (kind, draw) in enumerate(KINDS.items()):
        (Path(folder) / kind).mkdir(parents=True, exist_ok=True)
        for number in range(int(per_kind)):
            sketch = Sketch(np.random.default_rng([seed, number]), dark=kind == "night sky")
            draw(sketch)
            picture = sketch.image.resize((SIZE, SIZE), Image.Resampling.LANCZOS)
            picture.save(Path(folder) / kind / f"{number:03d}.jpg", quality=90)
    print(f"{len(KINDS)} kinds with {per_kind} pictures each in {folder}")


class Sketch:
    """A canvas, and a random place, size, angle and hue of the object on it.

    `polygon`, `ellipse` and `line` take coordinates of the object: its centre is (0, 0), its
    radius is 1, and y points down.
    """

    def __init__(self, rng: np.random.Generator, *, dark: bool) -> None:
        self.rng = rng
        self.centre = rng.uniform(0.4, 0.6, 2) * CANVAS
        self.radius = rng.uniform(0.2, 0.33) * CANVAS
        self.angle = rng.uniform(-0.45, 0.45)
        self.hue, sky = rng.random(2)
        top, bottom = colour(sky, 0.2, 0.95), colour(sky + 0.05, 0.35, rng.uniform(0.65, 0.9))
        if dark:
            top, bottom = colour(0.62 + 0.1 * sky, 0.7, 0.12), colour(0.6 + 0.2 * sky, 0.6, 0.35)
        share = np.linspace(0, 1, CANVAS)[:, None, None]
        rows = np.array(top) * (1 - share) + np.array(bottom) * share
        self.image = Image.fromarray(np.repeat(rows, CANVAS, axis=1).astype(np.uint8))
        self.on_canvas = ImageDraw.Draw(self.image)

    def colour(self, *, turn: float = 0, saturation=(0.5, 0.95), value=(0.55, 0.95)) -> tuple:
        """Return the object's hue, turned on the colour wheel, in a random shade."""
        return colour(self.hue + turn, self.rng.uniform(*saturation), self.rng.uniform(*value))

    def polygon(self, points, fill: tuple) -> None:
        self.on_canvas.polygon(self.place(points), fill=fill)

    def ellipse(self, x: float, y: float, width: float, height: float, fill: tuple, angle=0.0):
        around = np.linspace(0, 2 * np.pi, 60)
        outline = np.stack([width * np.cos(around), height * np.sin(around)], axis=1)
        self.polygon(rotated(outline, angle) + np.array([x, y]), fill)

    def line(self, points, fill: tuple, width: float) -> None:
        self.on_canvas.line(self.place(points), fill, round(width * self.radius), joint="curve")

    def ground(self, heights: np.ndarray, fill: tuple) -> None:
        """Fill the canvas below a curve, given by its heights in pixels from left to right."""
        across = np.linspace(0, CANVAS, len(heights))
        corners = [(CANVAS, CANVAS), (0, CANVAS)]
        self.on_canvas.polygon([*zip(across, heights, strict=True), *corners], fill=fill)

    def place(self, points) -> list[tuple[float, float]]:
        placed = rotated(np.asarray(points, dtype=float), self.angle) * self.radius + self.centre
        return list(map(tuple, placed.tolist()))


def colour(hue: float, saturation: float, value: float) -> tuple[int, ...]:
    return tuple(round(255 * part) for part in colorsys.hsv_to_rgb(hue % 1, saturation, value))


def rotated(points: np.ndarray, angle: float) -> np.ndarray:
    cosine, sine = np.cos(angle), np.sin(angle)
    return points @ np.array([[cosine, sine], [-sine, cosine]])


def balloon(sketch: Sketch) -> None:
    sketch.angle /= 3
    stripes = [sketch.colour(), sketch.colour(turn=sketch.rng.uniform(0.15, 0.5))]
    for side in (-0.35, 0.35):
        sketch.line([(side, 0.9), (0.6 * side, 1.55)], BROWN, 0.03)
    around = np.linspace(0, 2 * np.pi, 80)
    height = np.where(np.sin(around) > 0, 1.25, 1) * np.sin(around) - 0.2
    for stripe, width in enumerate(np.linspace(1, 0, sketch.rng.integers(4, 7), endpoint=False)):
        sketch.polygon(np.stack([width * np.cos(around), height], axis=1), stripes[stripe % 2])
    sketch.polygon([(-0.25, 1.5), (0.25, 1.5), (0.2, 1.85), (-0.2, 1.85)], colour(0.08, 0.6, 0.5))


def butterfly(sketch: Sketch) -> None:
    wing, spot = sketch.colour(), sketch.colour(turn=sketch.rng.uniform(0.1, 0.5))
    for side in (-1, 1):
        sketch.ellipse(side * 0.65, -0.45, 0.7, 0.48, wing, angle=-0.6 * side)
        sketch.ellipse(side * 0.5, 0.5, 0.5, 0.38, wing, angle=0.6 * side)
        sketch.ellipse(side * 0.75, -0.5, 0.32, 0.2, spot, angle=-0.6 * side)
        sketch.ellipse(side * 0.52, 0.52, 0.2, 0.15, spot, angle=0.6 * side)
        sketch.line([(0, -0.7), (0.3 * side, -1.2)], BLACK, 0.04)
    sketch.ellipse(0, 0, 0.1, 0.8, BLACK)


def checkers(sketch: Sketch) -> None:
    dark = sketch.colour()
    light = sketch.colour(turn=0.4, saturation=(0.05, 0.4), value=(0.85, 1))
    grid = np.stack(np.mgrid[:CANVAS, :CANVAS], axis=-1) / CANVAS * sketch.rng.uniform(4, 9)
    squares = np.floor(rotated(grid, 2 * sketch.angle)).sum(axis=-1) % 2 == 0
    sketch.image.paste(Image.fromarray(np.where(squares[..., None], dark, light).astype(np.uint8)))


def fish(sketch: Sketch) -> None:
    body, fin = sketch.colour(), sketch.colour(turn=0.08)
    swims = sketch.rng.choice([-1, 1])  # to the left or to the right
    for x, y in sketch.rng.uniform(-1.4, 1.4, (6, 2)):
        bubble = sketch.rng.uniform(0.04, 0.1)
        sketch.ellipse(x, y, bubble, bubble, (235, 245, 255))
    tail = [(-0.8, 0), (-1.45, -0.5), (-1.25, 0), (-1.45, 0.5)]
    for part in (tail, [(0.1, -0.4), (-0.35, -0.85), (-0.4, -0.3)]):
        sketch.polygon(np.array(part) * (swims, 1), fin)
    sketch.ellipse(0, 0, 1, sketch.rng.uniform(0.42, 0.6), body)
    for x in (-0.4, -0.1, 0.2):
        sketch.line(np.array([(x, -0.3), (x - 0.12, 0), (x, 0.3)]) * (swims, 1), fin, 0.05)
    sketch.ellipse(0.6 * swims, -0.1, 0.12, 0.12, WHITE)
    sketch.ellipse(0.63 * swims, -0.1, 0.06, 0.06, BLACK)


def flower(sketch: Sketch) -> None:
    petal, width = sketch.colour(), sketch.rng.uniform(0.24, 0.34)
    green = colour(sketch.rng.uniform(0.25, 0.4), 0.7, 0.55)
    sketch.line([(0, 0), (0.1, 0.9), (0, 2.6)], green, 0.12)
    sketch.ellipse(0.4, 1.25, 0.4, 0.15, green, angle=-0.5)
    for angle in np.linspace(0, 2 * np.pi, sketch.rng.integers(5, 11), endpoint=False):
        sketch.ellipse(0.62 * np.cos(angle), 0.62 * np.sin(angle), 0.48, width, petal, angle)
    sketch.ellipse(0, 0, 0.32, 0.32, colour(sketch.rng.uniform(0.1, 0.16), 0.9, 0.95))


def leaf(sketch: Sketch) -> None:
    hue, value = sketch.rng.uniform(0.05, 0.4), sketch.rng.uniform(0.35, 0.7)
    blade, vein = colour(hue, 0.7, value), colour(hue, 0.4, value + 0.3)
    sketch.angle *= 2.5
    half_width = sketch.rng.uniform(0.45, 0.75)
    y = np.linspace(-1.3, 1.1, 50)
    x = half_width * np.sin(np.pi * (y + 1.3) / 2.4).clip(0) ** 0.8
    sketch.polygon([*zip(x, y, strict=True), *zip(-x[::-1], y[::-1], strict=True)], blade)
    sketch.line([(0, -1.25), (0, 1.6)], vein, 0.06)
    for start in np.arange(-0.7, 0.9, 0.3):
        end = 0.75 * half_width * np.sin(np.pi * (start + 1) / 2.4)
        sketch.line([(-end, start - 0.3), (0, start), (end, start - 0.3)], vein, 0.035)


def mountain(sketch: Sketch) -> None:
    for turn in np.arange(sketch.rng.integers(2, 4)) / 20:
        rock = sketch.colour(turn=turn, saturation=(0.2, 0.6), value=(0.35, 0.7))
        peak = np.array([sketch.rng.uniform(0.15, 0.85), sketch.rng.uniform(0.2, 0.5)]) * CANVAS
        slope = np.array([sketch.rng.uniform(0.5, 0.9) * CANVAS, CANVAS - peak[1]])
        snow = [(0, 0), (-0.22, 0.22), (-0.09, 0.16), (0, 0.26), (0.09, 0.18), (0.22, 0.22)]
        for outline, fill in (([(0, 0), (-1, 1), (1, 1)], rock), (snow, WHITE)):
            sketch.on_canvas.polygon([tuple(peak + slope * point) for point in outline], fill=fill)


def mushroom(sketch: Sketch) -> None:
    sketch.angle /= 2
    sketch.hue = sketch.rng.uniform(-0.05, 0.1)
    sketch.polygon([(-0.28, 0), (0.28, 0), (0.36, 1.25), (-0.36, 1.25)], WHITE)
    half = np.linspace(np.pi, 2 * np.pi, 40)
    height = sketch.rng.uniform(0.8, 1.1)
    sketch.polygon(np.stack([1.1 * np.cos(half), height * np.sin(half) + 0.1], 1), sketch.colour())
    for x, y, size in [(-0.55, -0.3, 0.14), (0, -0.6, 0.17), (0.5, -0.35, 0.12), (0.1, -0.15, 0.1)]:
        sketch.ellipse(x, y, size * sketch.rng.uniform(0.6, 1.2), 0.85 * size, WHITE)


def night_sky(sketch: Sketch) -> None:
    for x, y in sketch.rng.uniform(-3, 3, (sketch.rng.integers(80, 240), 2)):
        size = sketch.rng.uniform(0.01, 0.03)
        sketch.ellipse(x, y, size, size, colour(0.15, 0.1, sketch.rng.uniform(0.6, 1)))
    background = sketch.image.getpixel(sketch.place([(0.9, 0.9)])[0])
    sketch.ellipse(0, 0, 0.7, 0.7, colour(0.14, sketch.rng.uniform(0.1, 0.4), 0.97))
    if sketch.rng.random() < 0.75:  # a crescent; otherwise the moon is full
        sketch.ellipse(sketch.rng.uniform(0.25, 0.5), -0.12, 0.62, 0.62, background)
    waves = np.sin(np.linspace(0, sketch.rng.uniform(4, 9), 60) + sketch.rng.uniform(0, 6))
    sketch.ground((0.88 + 0.06 * waves) * CANVAS, BLACK)


def rings(sketch: Sketch) -> None:
    fills = [sketch.colour(), sketch.colour(turn=0.35, saturation=(0.1, 0.6), value=(0.8, 1))]
    for ring, size in enumerate(np.linspace(1.25, 0, sketch.rng.integers(4, 8), endpoint=False)):
        sketch.ellipse(0, 0, size, size, fills[ring % 2])


def sailboat(sketch: Sketch) -> None:
    sketch.angle /= 4
    jib = sketch.colour(turn=0.3, saturation=(0.1, 0.6), value=(0.85, 1))
    sketch.polygon([(0.05, -1.5), (0.05, 0.5), (1, 0.5)], sketch.colour())
    sketch.polygon([(-0.1, -1.3), (-0.1, 0.5), (-0.75, 0.5)], jib)
    sketch.line([(0, -1.6), (0, 0.7)], BROWN, 0.06)
    hull = colour(sketch.rng.uniform(0, 0.1), 0.7, sketch.rng.uniform(0.35, 0.6))
    sketch.polygon([(-1.1, 0.6), (1.2, 0.6), (0.8, 1.05), (-0.7, 1.05)], hull)
    waves = np.sin(np.linspace(0, sketch.rng.uniform(20, 40), 80))
    sea = colour(sketch.rng.uniform(0.5, 0.62), 0.6, sketch.rng.uniform(0.5, 0.8))
    sketch.ground(sketch.centre[1] + 0.8 * sketch.radius + 12 * waves, sea)


def tree(sketch: Sketch) -> None:
    sketch.angle /= 6
    meadow = colour(sketch.rng.uniform(0.2, 0.35), 0.5, 0.7)
    sketch.ground(np.full(2, sketch.centre[1] + 1.3 * sketch.radius), meadow)
    trunk = [(-0.12, 0.3), (0.12, 0.3), (0.18, 1.45), (-0.18, 1.45)]
    sketch.polygon(trunk, colour(0.07, 0.6, sketch.rng.uniform(0.3, 0.5)))
    hue, value = sketch.rng.uniform(0.22, 0.42), sketch.rng.uniform(0.3, 0.5)
    n_layers = sketch.rng.integers(2, 5)
    for layer in np.arange(n_layers) / n_layers:
        top, bottom, width = 1.5 * layer - 1.6, 1.5 * layer - 1.25 + 2.2 / n_layers, 0.5 + layer / 2
        fill = colour(hue, 0.65, value + 0.2 * layer)
        sketch.polygon([(0, top), (width, bottom), (-width, bottom)], fill)


KINDS = {
    "balloon": balloon,
    "butterfly": butterfly,
    "checkers": checkers,
    "fish": fish,
    "flower": flower,
    "leaf": leaf,
    "mountain": mountain,
    "mushroom": mushroom,
    "night sky": night_sky,
    "rings": rings,
    "sailboat": sailboat,
    "tree": tree,
}


if __name__ == "__main__":
    main(*sys.argv[1:])
