"""What code can see of a figure.

Faults are words that leave it or cover each other, letters too small, marks that are alike in grey or explained
nowhere, and bars that leave their axes.
"""

from itertools import combinations, pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from stemrepro.report.style import SMALL, ink

APART = 12
"""Of CIE lightness, 0 to 100, by which two colours differ that nothing else tells apart."""
GREYISH = 0.04
"""Difference of the channels of a colour that is no arm's."""


def lightness(colour: object) -> float:
    """CIE L* of a colour: what is left of it in grey."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    y = float(np.dot((0.2126, 0.7152, 0.0722), linear))
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def panels(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_visible()]


def legends(figure: Figure, *of: Axes) -> list[Legend]:
    return [*filter(None, (axes.get_legend() for axes in of)), *figure.legends]


def texts(figure: Figure) -> list[tuple[str, Text, Bbox]]:
    """Every visible text with its letters and its place in pixels."""
    found = list(figure.texts)
    for legend in legends(figure, *panels(figure)):
        found += [*legend.get_texts(), legend.get_title()]
    for axes in panels(figure):
        found += [axes.title, axes._left_title, axes._right_title, *axes.texts]
        for axis in (axes.xaxis, axes.yaxis) if axes.axison else ():
            low, high = sorted(axis.get_view_interval())
            ticks = [tick for tick in axis.get_major_ticks() if low - 1e-9 <= tick.get_loc() <= high + 1e-9]
            found += [axis.label, *(tick.label1 for tick in ticks)]
    seen = [text for text in found if text.get_visible() and text.get_text().strip()]
    return [(text.get_text(), text, text.get_window_extent()) for text in seen]


def overlapping(boxes: list[Bbox], slack: float = 1.0) -> list[tuple[int, int]]:
    """Return pairs of boxes that share more than a hair, in pixels."""
    corners = np.array([box.extents for box in boxes]).reshape(-1, 4)
    low, high = corners[:, :2], corners[:, 2:]
    shared = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
    return np.argwhere(np.triu((shared > slack).all(axis=-1), 1)).tolist()


def about_words(figure: Figure) -> list[str]:
    seen, edge = texts(figure), figure.bbox.padded(1)
    outside = [words for words, _, box in seen if (box.p0 < edge.p0).any() or (box.p1 > edge.p1).any()]
    problems = [f"'{words}' leaves the figure" for words in outside]
    problems += [f"'{words}' has {text.get_fontsize():g} points" for words, text, _ in seen if text.get_size() < SMALL]
    coloured = [(words, to_rgb(text.get_color())) for words, text, _ in seen]
    light = [words for words, colour in coloured if np.ptp(colour) > GREYISH and lightness(colour) > 50]
    problems += [f"'{words}' is too light to read" for words in light]
    pairs = overlapping([box for *_, box in seen])
    return problems + [f"'{seen[one][0]}' and '{seen[two][0]}' overlap" for one, two in pairs]


def mark(artist: object) -> tuple[object, tuple] | None:
    """Colour of a handle, and what else tells it apart."""
    if isinstance(artist, ErrorbarContainer):
        artist = artist.lines[0]
    if isinstance(artist, BarContainer):
        artist = artist.patches[0]
    if isinstance(artist, Line2D):
        marker = artist.get_marker() if artist.get_marker() not in ("None", "", " ", None) else ""
        full = to_rgba(artist.get_markerfacecolor()) == to_rgba(artist.get_color())
        fill = (full, artist.get_fillstyle()) if marker else None
        return artist.get_color(), (marker, fill, str(artist._unscaled_dash_pattern), round(artist.get_linewidth(), 1))
    if isinstance(artist, Patch):
        return artist.get_facecolor(), ("patch", artist.get_hatch())
    return None


def alike(handles: list, labels: list[str]) -> list[str]:
    """Pairs that only a colour tells apart, and not in grey."""
    marks = [(label, mark(handle)) for handle, label in zip(handles, labels, strict=True) if mark(handle)]
    return [
        f"'{one}' and '{two}' are alike in grey"
        for (one, (colour, shape)), (two, (other, form)) in combinations(marks, 2)
        if shape == form and abs(lightness(colour) - lightness(other)) < APART
    ]


def lines_of(axes: Axes) -> list[Line2D]:
    """Lines of data, without the caps of error bars and rules across the panel."""
    caps = {cap for bars in axes.containers if isinstance(bars, ErrorbarContainer) for cap in bars.lines[1]}
    own = [line for line in axes.lines if line not in caps and line.get_visible() and len(line.get_xdata())]
    return [line for line in own if line.get_transform() == axes.transData]


def segments(axes: Axes) -> list[np.ndarray]:
    """Error bars and other collections of lines in the coordinates of the data."""
    collections = [lines for lines in axes.collections if isinstance(lines, LineCollection)]
    own = [lines for lines in collections if lines.get_transform() == axes.transData]
    return [np.asarray(segment, float) for lines in own for segment in lines.get_segments()]


def named(labels: list[Text]) -> bool:
    """Are ticks words?"""
    return any("mathdefault" not in (text := label.get_text()) and any(map(str.isalpha, text)) for label in labels)


def about_marks(figure: Figure) -> list[str]:
    problems = []
    for legend in legends(figure, *panels(figure)):
        problems += alike(legend.legend_handles, [text.get_text() for text in legend.get_texts()])
    rows = {" ".join(label.get_text().split()) for axes in panels(figure) for label in axes.get_yticklabels()}
    for axes in panels(figure):
        handles, labels = axes.get_legend_handles_labels()
        problems += alike(handles, labels)
        explaining = [*handles, *(handle for legend in legends(figure, axes) for handle in legend.legend_handles)]
        explained = {to_rgb(mark(handle)[0]) for handle in explaining if mark(handle)}
        explained |= {to_rgb(text.get_color()) for text in axes.texts}
        colours = {to_rgb(line.get_color()) for line in lines_of(axes)}
        colours = {colour for colour in colours if np.ptp(colour) > GREYISH}
        explained |= {colour for colour in colours if to_rgb(ink(colour)) in explained}
        shared = axes.get_shared_y_axes().get_siblings(axes)
        ticks = [*axes.get_xticklabels(), *(label for one in shared for label in one.get_yticklabels())]
        if colours - explained and len(colours) > 1 and not named(ticks):
            problems.append(f"'{axes.get_title('left')}': {len(colours - explained)} colours are explained nowhere")
        names = {text.get_text() for legend in legends(figure, axes) for text in legend.get_texts()}
        if set(labels) - names - rows:
            problems.append(f"'{axes.get_title('left')}' labels marks and has no legend")
    return problems


def points(axes: Axes) -> np.ndarray:
    """Points along everything that is drawn as a line or a mark, in pixels, [n, 2]."""
    dense = [np.zeros((0, 2))]
    for path in (*(line.get_xydata().astype(float) for line in lines_of(axes)), *segments(axes)):
        pixels = axes.transData.transform(path)
        pixels = pixels[np.isfinite(pixels).all(axis=1)]
        dense.append(pixels)
        for one, two in pairwise(pixels):
            steps = min(500, int(np.abs(two - one).max() / 2) + 1)
            dense.append(np.linspace(one, two, steps))
    return np.concatenate(dense)


def about_axes(figure: Figure) -> list[str]:
    problems = []
    for axes in panels(figure):
        name, drawn, inside = axes.get_title("left"), points(axes), axes.bbox.padded(1.5)
        for axis in (axes.xaxis, axes.yaxis) if axes.axison else ():
            ticks = [label for label in axis.get_ticklabels() if label.get_text()]
            if ticks and not axis.label.get_text() and not named(ticks):
                problems.append(f"'{name}': {axis.axis_name} has no label")
        if legend := axes.get_legend():
            boxes = [artist.get_window_extent() for artist in (*legend.get_texts(), *legend.legend_handles)]
            if any(((drawn > box.p0) & (drawn < box.p1)).all(axis=1).any() for box in boxes):
                problems.append(f"'{name}': the legend covers what is drawn")
        bars = [one for one in axes.containers if isinstance(one, BarContainer)]
        ends = [*segments(axes), *(patch.get_bbox().get_points() for bar in bars for patch in bar.patches)]
        pixels = axes.transData.transform(np.concatenate([np.zeros((0, 2)), *ends]))
        pixels = pixels[np.isfinite(pixels).all(axis=1)]
        if ((pixels < inside.p0) | (pixels > inside.p1)).any():
            problems.append(f"'{name}': a bar leaves its axes")
    return problems + ["two panels overlap"] * len(overlapping([axes.bbox for axes in panels(figure) if axes.axison]))


def faults(figure: Figure) -> list[str]:
    """What is wrong with a figure that is settled, in words; empty where nothing is seen to be."""
    return [*about_words(figure), *about_marks(figure), *about_axes(figure)]
