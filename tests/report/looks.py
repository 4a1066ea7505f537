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

from stemrepro.report.style import SMALLEST

APART = 12
"""Of CIE lightness, 0 to 100, by which two colours differ that nothing else tells apart."""
GREYISH = 0.04
"""Difference of the channels of a colour that is no arm's."""


def lightness(colour: object) -> float:
    """CIE L* of a colour: what is left of it in grey."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    y = float(np.dot((0.2126, 0.7152, 0.0722), linear))
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def coloured(colour: object) -> bool:
    """Is it more than a shade of grey?"""
    return max(to_rgb(colour)) - min(to_rgb(colour)) > GREYISH


def visible(artist: object, axes: Axes | None) -> bool:
    return artist.get_visible() and (axes is None or axes.get_visible())


def words(figure: Figure) -> list[tuple[str, Text, Bbox]]:
    """Every visible text, with its kind and place."""
    texts = [("note", text) for text in figure.texts]
    for legend in figure.legends:
        texts += [("legend", text) for text in (*legend.get_texts(), legend.get_title())]
    for axes in filter(Axes.get_visible, figure.axes):
        texts += [("title", title) for title in (axes.title, axes._left_title, axes._right_title)]
        texts += [("note", text) for text in axes.texts]
        if axes.get_legend():
            texts += [("legend", text) for text in (*axes.get_legend().get_texts(), axes.get_legend().get_title())]
        for axis in (axes.xaxis, axes.yaxis) if axes.axison else ():
            texts += [("label", axis.label)]
            low, high = sorted(axis.get_view_interval())
            ticks = [tick for tick in axis.get_major_ticks() if low - 1e-9 <= tick.get_loc() <= high + 1e-9]
            texts += [("tick", tick.label1) for tick in ticks]
    seen = [(kind, text) for kind, text in texts if text.get_visible() and text.get_text().strip()]
    return [(kind, text, text.get_window_extent()) for kind, text in seen]


def overlapping(boxes: list[Bbox], slack: float = 1.0) -> list[tuple[int, int]]:
    """Return pairs of boxes that share more than a hair, in pixels."""
    corners = np.array([box.extents for box in boxes]).reshape(-1, 4)
    low, high = corners[:, :2], corners[:, 2:]
    shared = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
    return np.argwhere(np.triu((shared > slack).all(axis=-1), 1)).tolist()


def about_words(figure: Figure) -> list[str]:
    problems, seen, edge = [], words(figure), figure.bbox
    for kind, text, box in seen:
        if box.x0 < edge.x0 - 1 or box.y0 < edge.y0 - 1 or box.x1 > edge.x1 + 1 or box.y1 > edge.y1 + 1:
            problems.append(f"{kind} '{text.get_text()}' leaves the figure")
        if text.get_fontsize() < SMALLEST:
            problems.append(f"{kind} '{text.get_text()}' has {text.get_fontsize():g} points")
    for one, two in overlapping([box for _, _, box in seen]):
        (kind, text, _), (other, more, _) = seen[one], seen[two]
        problems.append(f"{kind} '{text.get_text()}' and {other} '{more.get_text()}' overlap")
    return problems


def solid(line: Line2D) -> bool:
    """Has it full marks?"""
    return to_rgba(line.get_markerfacecolor()) == to_rgba(line.get_color()) and line.get_fillstyle() == "full"


def mark(artist: object) -> tuple[object, tuple] | None:
    """Colour of a handle, and what else tells it apart."""
    if isinstance(artist, ErrorbarContainer):
        artist = artist.lines[0]
    if isinstance(artist, BarContainer):
        artist = artist.patches[0]
    if isinstance(artist, Line2D):
        marker = artist.get_marker() if artist.get_marker() not in ("None", "", " ", None) else ""
        fill = (solid(artist), artist.get_fillstyle()) if marker else None
        return artist.get_color(), (
            "line",
            marker,
            fill,
            str(artist._unscaled_dash_pattern),
            round(artist.get_linewidth(), 1),
        )
    if isinstance(artist, Patch):
        return artist.get_facecolor(), ("patch", artist.get_hatch())
    return None


def alike(handles: list, labels: list[str]) -> list[str]:
    """Pairs that only a colour tells apart, and not in grey."""
    marks = [(label, mark(handle)) for handle, label in zip(handles, labels, strict=True)]
    marks = [(label, look) for label, look in marks if look]
    return [
        f"'{one}' and '{two}' are alike in grey"
        for (one, (colour, shape)), (two, (other, form)) in combinations(marks, 2)
        if shape == form and abs(lightness(colour) - lightness(other)) < APART
    ]


def lines_of(axes: Axes) -> list[Line2D]:
    """Lines of data, without the caps of error bars and rules across the panel."""
    caps = {cap for bars in axes.containers if isinstance(bars, ErrorbarContainer) for cap in bars.lines[1]}
    return [
        line
        for line in axes.lines
        if line not in caps and line.get_visible() and len(line.get_xdata()) and line.get_transform() == axes.transData
    ]


def names_rows(axes: Axes) -> bool:
    """Are rows or columns called by name?"""
    rows = axes.get_shared_y_axes().get_siblings(axes)
    every = [axes.xaxis, *(row.yaxis for row in rows)]
    axis = [label.get_text() for one in every for label in one.get_ticklabels() if label.get_text()]
    return any(any(c.isalpha() for c in text) and "mathdefault" not in text for text in axis)


def rows_called(figure: Figure) -> set[str]:
    """What the rows of panels are called, where these explain marks of another panel."""
    panels = filter(Axes.get_visible, figure.axes)
    return {" ".join(label.get_text().split()) for axes in panels for label in axes.get_yticklabels()}


def about_marks(figure: Figure) -> list[str]:
    problems = []
    for legend in (*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_visible())):
        if isinstance(legend, Legend):
            problems += alike(legend.legend_handles, [text.get_text() for text in legend.get_texts()])
    for axes in filter(Axes.get_visible, figure.axes):
        handles, labels = axes.get_legend_handles_labels()
        problems += alike(handles, labels)
        explained = {to_rgb(look[0]) for look in map(mark, handles) if look}
        for legend in filter(None, (axes.get_legend(), *figure.legends)):
            explained |= {to_rgb(look[0]) for look in map(mark, legend.legend_handles) if look}
        explained |= {to_rgb(text.get_color()) for text in axes.texts}
        drawn = {to_rgb(line.get_color()) for line in lines_of(axes) if coloured(line.get_color())}
        unexplained = drawn - explained
        if unexplained and len(drawn) > 1 and not names_rows(axes):
            problems.append(f"'{axes.get_title('left')}': {len(unexplained)} colours are explained nowhere")
        legends = filter(None, (axes.get_legend(), *figure.legends))
        names = {text.get_text() for legend in legends for text in legend.get_texts()} | rows_called(figure)
        if set(labels) - names:
            problems.append(f"'{axes.get_title('left')}' labels marks and has no legend")
    return problems


def points(axes: Axes) -> np.ndarray:
    """Points along everything that is drawn as a line or a mark, in pixels, [n, 2]."""
    paths = [line.get_xydata().astype(float) for line in lines_of(axes)]
    paths += [
        path
        for lines in axes.collections
        if isinstance(lines, LineCollection)
        for path in map(np.asarray, lines.get_segments())
        if lines.get_transform() == axes.transData
    ]
    dense = [np.zeros((0, 2))]
    for path in paths:
        pixels = axes.transData.transform(path)
        pixels = pixels[np.isfinite(pixels).all(axis=1)]
        dense.append(pixels)
        for one, two in pairwise(pixels):
            steps = min(500, int(np.abs(two - one).max() / 2) + 1)
            dense.append(one + (two - one) * np.linspace(0, 1, steps)[:, None])
    return np.concatenate(dense)


def about_axes(figure: Figure) -> list[str]:
    problems = []
    for axes in filter(Axes.get_visible, figure.axes):
        name = axes.get_title("left")
        for axis in (axes.xaxis, axes.yaxis) if axes.axison else ():
            ticks = [tick.get_text() for tick in axis.get_ticklabels() if tick.get_text()]
            named = any(any(c.isalpha() for c in text) and "mathdefault" not in text for text in ticks)
            if not axis.label.get_text() and ticks and not named:
                problems.append(f"'{name}': {axis.axis_name} has no label")
        legend, inside = axes.get_legend(), axes.bbox.padded(1.5)
        drawn = points(axes)
        if legend:
            boxes = [text.get_window_extent() for text in legend.get_texts()]
            boxes += [handle.get_window_extent() for handle in legend.legend_handles]
            if any(((drawn > (box.x0, box.y0)) & (drawn < (box.x1, box.y1))).all(axis=1).any() for box in boxes):
                problems.append(f"'{name}': the legend covers what is drawn")
        ends = [
            segment
            for lines in axes.collections
            if isinstance(lines, LineCollection) and lines.get_transform() == axes.transData
            for segment in lines.get_segments()
        ]
        bars = [
            patch.get_bbox().get_points()
            for container in axes.containers
            if isinstance(container, BarContainer)
            for patch in container.patches
        ]
        for end in (*ends, *bars):
            pixels = axes.transData.transform(np.asarray(end, float))
            pixels = pixels[np.isfinite(pixels).all(axis=1)]
            if ((pixels < (inside.x0, inside.y0)) | (pixels > (inside.x1, inside.y1))).any():
                problems.append(f"'{name}': a bar leaves its axes")
                break
    panels = [axes.bbox for axes in figure.axes if axes.get_visible() and axes.axison]
    return problems + ["two panels overlap"] * len(overlapping(panels))


def faults(figure: Figure) -> list[str]:
    """What is wrong with a figure that is settled, in words; empty where nothing is seen to be."""
    return [*about_words(figure), *about_marks(figure), *about_axes(figure)]
