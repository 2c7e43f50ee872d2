"""Maps: codes in two dimensions, as a picture and as a page that shows the sentence under the pointer.

Principal components keep the largest variances and can be read as axes; t-SNE (van der Maaten and Hinton 2008) keeps
neighbourhoods, and its axes and distances between groups mean nothing.
"""

import html
import importlib.util
import io
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from zentence.errors import ZentenceError
from zentence.files import write_atomically

MAX_POINTS = 20_000
MAX_LABELS = 20  # with a colour each; rarer ones share the last
OTHER = "other labels"
_HOVER_COLUMNS, _HOVER_LINES = 70, 6
_GL_POINTS = 3_000  # beyond, a page draws with WebGL

Method = Literal["pca", "tsne"]
Points = NDArray[np.float64]
TITLES = {"pca": "principal components", "tsne": "t-SNE"}


@dataclass(frozen=True)
class Colour:
    """What colours points: a text each (labels), or a number each, and its name."""

    name: str
    values: Sequence[str] | NDArray[np.float64]

    @property
    def is_label(self) -> bool:
        """Whether points have labels, not numbers."""
        return len(self.values) > 0 and isinstance(self.values[0], str)

    def groups(self) -> list[tuple[str, NDArray[np.int64]]]:
        """Return labels and the places of their points, frequent labels first; rare ones beyond the limit together."""
        counts = Counter(cast(Sequence[str], self.values))
        names = sorted(counts, key=lambda name: (-counts[name], name))
        own = names if len(names) <= MAX_LABELS else names[: MAX_LABELS - 1]
        number = {name: place for place, name in enumerate(own)}
        which = np.array([number.get(str(value), len(own)) for value in self.values])
        return [(name, np.flatnonzero(which == place)) for place, name in enumerate([*own, OTHER]) if place in which]


@dataclass(frozen=True)
class Map:
    """Sentences as points, by one method or more; `note` is a line about them, `title` says what stands for them."""

    sentences: Sequence[str]
    points: dict[Method, Points]  # [N, 2]
    colour: Colour
    note: str = ""
    axes: dict[Method, tuple[str, str]] = field(default_factory=dict)
    title: str = ""


def need_libraries(methods: Sequence[Method]) -> None:
    """Complain of the optional libraries that a map needs and that are missing."""
    needed = ["matplotlib", "plotly", *(["sklearn"] if "tsne" in methods else [])]
    if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
        names = " and ".join(missing).replace("sklearn", "scikit-learn")
        raise ZentenceError(f"A map needs {names}: pip install 'zentence[plots,tasks]'")


def choose(sentences: Iterable[Any], limit: int, seed: int) -> tuple[list[Any], int]:
    """Return at most `limit` of a stream's items, in their order, each subset as likely; and how many there were."""
    random, kept, count = np.random.default_rng(seed), list[tuple[int, Any]](), 0
    for count, item in enumerate(sentences, 1):
        if count <= limit:
            kept.append((count, item))
        elif (place := int(random.integers(count))) < limit:
            kept[place] = (count, item)
    return [item for _, item in sorted(kept, key=lambda pair: pair[0])], count


class Axes(NamedTuple):
    """Principal axes of codes: where they cross, their directions, and their shares of the variance."""

    center: NDArray[np.float64]  # [D]
    directions: NDArray[np.float64]  # [D, 2]
    shares: NDArray[np.float64]  # [2]

    def place(self, codes: NDArray[Any]) -> Points:
        """Return the components [N, 2] of codes [N, D]."""
        points: Points = (np.asarray(codes, dtype=np.float64) - self.center) @ self.directions
        return points


def principal_axes(codes: NDArray[Any]) -> Axes:
    """Return the two axes of largest variance of codes [N, D]; a code of one dimension has an empty second.

    The sign of a direction is such that its largest weight is positive.
    """
    x = np.asarray(codes, dtype=np.float64)
    center = x.mean(0)
    x = x - center
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    order = np.argsort(-values, kind="stable")[:2]
    directions = vectors[:, order]  # [D, ≤ 2]
    largest = np.abs(directions).argmax(0)
    directions = directions * np.where(directions[largest, np.arange(len(order))] < 0.0, -1.0, 1.0)
    shares = np.maximum(values[order], 0.0) / max(float(values.sum()), np.finfo(np.float64).tiny)
    missing = 2 - len(order)
    return Axes(center, np.pad(directions, ((0, 0), (0, missing))), np.pad(shares, (0, missing)))


def principal_components(codes: NDArray[Any]) -> tuple[Points, NDArray[np.float64]]:
    """Return the first two principal components [N, 2] of codes [N, D], and their shares of the variance."""
    axes = principal_axes(codes)
    return axes.place(codes), axes.shares


def tsne(codes: NDArray[Any], seed: int = 0) -> Points:
    """Return t-SNE coordinates [N, 2] of codes [N, D], begun at their principal components."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    x = np.asarray(codes, dtype=np.float64)
    if len(x) < 4:
        raise ZentenceError("t-SNE needs at least 4 sentences: use --method pca")
    start = principal_components(x)[0]
    spread = float(start[:, 0].std())
    start = start * (1e-4 / spread) if spread > 0.0 else np.random.default_rng(seed).normal(0.0, 1e-4, (len(x), 2))
    perplexity = min(30.0, (len(x) - 1) / 3.0)
    method = TSNE(2, perplexity=perplexity, init=start.astype(np.float32), random_state=seed)
    with threadpool_limits(1):  # sums in one order: the same map on any number of cores
        return np.asarray(method.fit_transform(x), dtype=np.float64)


def make_map(
    sentences: Sequence[str],
    codes: NDArray[Any],
    colour: Colour,
    methods: Sequence[Method] = ("pca", "tsne"),
    *,
    seed: int = 0,
    note: str = "",
    title: str = "",
) -> Map:
    """Return a map of sentences by their codes [N, D], or by any other vectors."""
    if len(sentences) < 2:
        raise ZentenceError("A map needs at least 2 sentences")
    if len(sentences) > MAX_POINTS:
        raise ZentenceError(f"A map has at most {MAX_POINTS:,} points: give fewer sentences")
    points: dict[Method, Points] = {}
    axes: dict[Method, tuple[str, str]] = {}
    for method in methods:
        if method == "pca":
            points[method], shares = principal_components(codes)
            first, second = (f"component {i} ({share:.0%} of the variance)" for i, share in enumerate(shares, 1))
            axes[method] = first, second
        else:
            points[method], axes[method] = tsne(codes, seed), ("", "")
    return Map(sentences, points, colour, note, axes, title)


def write_picture(drawn: Map | Sequence[Map], path: Path) -> None:
    """Write a PNG with one panel a method; maps of the same sentences side by side, with a row a method."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    maps = _same_sentences(drawn)
    first = maps[0]
    grid = [[(one, method) for one in maps] for method in first.points]
    if len(maps) == 1:
        grid = [[cell for row in grid for cell in row]]
    size = (6.4 * len(grid[0]) + (1.6 if first.colour.is_label else 0.8), 6.0 * len(grid))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(grid), len(grid[0]), squeeze=False)
    dot = float(np.clip(4e4 / len(first.sentences), 3.0, 40.0))
    for panel, (one, method) in zip(panels.flat, (cell for row in grid for cell in row), strict=True):
        panel.set_title(_plain(_panel_title(one, method)))
        panel.set_xlabel(one.axes[method][0])
        panel.set_ylabel(one.axes[method][1])
        if method == "tsne":
            panel.set_xticks([])
            panel.set_yticks([])
        _draw_points(panel, one.points[method], one.colour, dot)
    last = panels.flat[-1]
    if first.colour.is_label:
        handles, names = last.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside right upper", title=_plain(first.colour.name), markerscale=2.0)
    else:
        figure.colorbar(last.collections[0], ax=list(panels.flat), label=_plain(first.colour.name), shrink=0.8)
    if first.note:
        figure.supxlabel(_plain(first.note), fontsize=8, color="#555555")
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)  # a box is shown instead
        figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    write_atomically(path, buffer.getvalue())


def _same_sentences(drawn: Map | Sequence[Map]) -> list[Map]:
    """Return maps to be drawn together: of the same sentences by the same methods."""
    maps = [drawn] if isinstance(drawn, Map) else list(drawn)
    if any(one.sentences != maps[0].sentences or list(one.points) != list(maps[0].points) for one in maps):
        raise ValueError("maps side by side must be of the same sentences, by the same methods")
    return maps


def _panel_title(drawn: Map, method: Method) -> str:
    return f"{drawn.title}: {TITLES[method]}" if drawn.title else TITLES[method]


def _draw_points(panel: Any, points: Points, colour: Colour, size: float) -> None:
    style = {"s": size, "linewidths": 0.0, "alpha": 0.8}
    if not colour.is_label:
        panel.scatter(points[:, 0], points[:, 1], c=np.asarray(colour.values, dtype=float), cmap="viridis", **style)
        return
    for (name, places), shade in zip(colour.groups(), _shades(colour), strict=True):
        shown = textwrap.shorten(name, 30, placeholder=" …") or name[:30]
        panel.scatter(points[places, 0], points[places, 1], color=shade, label=_plain(shown), **style)


def _shades(colour: Colour) -> list[str]:
    """Return a colour for each group: tab10's, then tab20's; grey for what shares one."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    names = [name for name, _ in colour.groups()]
    own = colormaps["tab10" if len(names) <= 10 else "tab20"].colors  # type: ignore[attr-defined]
    return ["#bbbbbb" if name == OTHER else to_hex(own[place]) for place, name in enumerate(names)]


def _plain(text: str) -> str:
    """Return text that matplotlib shows as it is: no mathematics between dollars, and no name that hides a legend."""
    return text.replace("$", r"\$").lstrip("_") or " "


def write_page(drawn: Map | Sequence[Map], path: Path) -> None:
    """Write a page that needs nothing else, also offline: plotly is inside, and all text of the corpus is escaped.

    Maps of the same sentences stand side by side; a click in the legend hides a label in all of them.
    """
    import plotly.graph_objects as plotly

    maps = _same_sentences(drawn)
    first = maps[0]
    methods = list(first.points)
    kind = plotly.Scattergl if len(first.sentences) > _GL_POINTS else plotly.Scatter
    hover = np.array([_hover(text) for text in first.sentences], dtype=object)
    figure = plotly.Figure()
    shown: list[Method] = []
    for method in methods:
        for place, one in enumerate(maps, 1):
            for trace in _traces(one, one.points[method], hover, place):
                figure.add_trace(kind(**trace, visible=method == methods[0]))
                shown.append(method)
    figure.update_layout(
        title={"text": _escaped(first.note), "font": {"size": 13}},
        template="plotly_white",
        legend={"title": {"text": _escaped(first.colour.name)}, "itemsizing": "constant"},
        hoverlabel={"align": "left"},
        hovermode="closest",
        **_layout(maps, methods[0]),
    )
    if len(methods) > 1:
        buttons = [
            {
                "label": TITLES[method],
                "method": "update",
                "args": [{"visible": [one == method for one in shown]}, _layout(maps, method)],
            }
            for method in methods
        ]
        where = {"x": 1.0, "xanchor": "right", "y": 1.02 if len(maps) == 1 else 1.06, "yanchor": "bottom"}
        figure.update_layout(updatemenus=[{"type": "buttons", "direction": "right", "buttons": buttons, **where}])
    options = {"responsive": True, "displaylogo": False, "scrollZoom": True}
    body = figure.to_html(include_plotlyjs=True, full_html=False, config=options, div_id="map", default_height="95vh")
    head = '<meta charset="utf-8"><title>Map of sentences</title>'
    write_atomically(path, f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n')


def _traces(drawn: Map, points: Points, hover: NDArray[Any], place: int) -> list[dict[str, Any]]:
    """Return what plotly draws of one panel, the `place`-th from 1; the first one's legend speaks for all."""
    marker: dict[str, Any] = {"size": float(np.clip(400.0 / np.sqrt(len(points)), 4.0, 9.0)), "opacity": 0.8}
    common: dict[str, Any] = {"mode": "markers", "hoverinfo": "text"}
    if place > 1:
        common |= {"xaxis": f"x{place}", "yaxis": f"y{place}", "showlegend": False}
    if drawn.colour.is_label:
        traces = []
        for number, ((name, places), shade) in enumerate(
            zip(drawn.colour.groups(), _shades(drawn.colour), strict=True)
        ):
            labels = [f"<b>{_escaped(str(drawn.colour.values[place])[:60])}</b>" for place in places]
            text = [f"{label}<br>{sentence}" for label, sentence in zip(labels, hover[places], strict=True)]
            where = {"x": points[places, 0].tolist(), "y": points[places, 1].tolist(), "legendgroup": str(number)}
            traces.append(
                {**common, **where, "text": text, "name": _escaped(name[:60]), "marker": {**marker, "color": shade}}
            )
        return traces
    numbers = np.asarray(drawn.colour.values, dtype=float)
    text = [f"{sentence}<br><i>{value:.4g}</i>" for sentence, value in zip(hover, numbers, strict=True)]
    bar = {"title": {"text": _escaped(drawn.colour.name), "side": "right"}}
    marker |= {"color": numbers.tolist(), "colorscale": "Viridis", "showscale": place == 1, "colorbar": bar}
    where = {"x": points[:, 0].tolist(), "y": points[:, 1].tolist()}
    return [{**common, **where, "text": text, "marker": marker, "showlegend": False}]


def _layout(maps: Sequence[Map], method: Method) -> dict[str, Any]:
    """Return the axes of all panels, and their titles where there are several."""
    layout: dict[str, Any] = {}
    notes = []
    for place, one in enumerate(maps):
        number = str(place + 1) if place else ""
        axis: dict[str, Any] = {"zeroline": False, "showticklabels": method != "tsne"}
        first, second = one.axes[method]
        layout[f"xaxis{number}"] = {**axis, "title": {"text": first}}
        layout[f"yaxis{number}"] = {**axis, "title": {"text": second}}
        if len(maps) > 1:
            start, end = (place + 0.02) / len(maps), (place + 0.98) / len(maps)
            layout[f"xaxis{number}"] |= {"domain": [start, end], "anchor": f"y{number}"}
            layout[f"yaxis{number}"] |= {"anchor": f"x{number}"}
            text = {"text": _escaped(_panel_title(one, method)), "showarrow": False}
            notes.append(
                {**text, "x": (start + end) / 2, "y": 1.0, "yanchor": "bottom", "xref": "paper", "yref": "paper"}
            )
    return {**layout, "annotations": notes} if notes else layout


def _escaped(text: str) -> str:
    """Return text that plotly shows as it is: it reads tags and these three entities, but not those of quotes."""
    return html.escape(text, quote=False)


def _hover(sentence: str) -> str:
    """Return a sentence in lines, escaped."""
    lines = textwrap.wrap(sentence, _HOVER_COLUMNS, max_lines=_HOVER_LINES, placeholder=" …") or [sentence]
    return "<br>".join(_escaped(line) for line in lines)
