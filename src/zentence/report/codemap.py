"""Codes of many sentences in two dimensions: principal components, and t-SNE (van der Maaten and Hinton 2008)."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zentence.latent.maps import principal_components, tsne
from zentence.report.picture import RAMP, SERIES, Picture, dots, draw_picture, shown_name
from zentence.report.record import Numbers

MOST_LABELS = len(SERIES) - 1


@dataclass(frozen=True)
class CodeMap:
    """Places of N sentences' codes, and the group that each belongs to: its label, or how long it is."""

    principal: Numbers  # [N, 2]
    explained: tuple[float, float]  # shares of the variance
    neighbours: Numbers | None  # [N, 2] by t-SNE
    groups: NDArray[np.int64]  # [N]
    names: list[str]
    by: str  # "label" or "length"


def map_codes(
    codes: NDArray[np.float32],
    lengths: NDArray[np.int64],
    labels: NDArray[np.int32] | None,
    label_names: Sequence[str] | None,
    seed: int,
) -> CodeMap:
    """Lay codes [N, D] out in two dimensions; colour by label where there are labels, else by fifths of length."""
    principal, shares = principal_components(codes)
    if labels is not None and label_names is not None:
        groups, names = _label_groups(labels, label_names)
        by = "label"
    else:
        groups, names = _length_groups(lengths)
        by = "length"
    return CodeMap(principal, (float(shares[0]), float(shares[1])), _tsne(codes, seed), groups, names, by)


def _label_groups(labels: NDArray[np.int32], names: Sequence[str]) -> tuple[NDArray[np.int64], list[str]]:
    """Return groups by falling count; beyond seven labels the rest is one group."""
    counts = np.bincount(labels, minlength=len(names))
    order = [int(label) for label in np.argsort(-counts, kind="stable") if counts[label]]
    shown = order if len(order) <= MOST_LABELS else order[: MOST_LABELS - 1]
    place = {label: number for number, label in enumerate(shown)}
    groups = np.array([place.get(int(label), len(shown)) for label in labels], dtype=np.int64)
    rest = [f"{len(order) - len(shown)} other labels"] if len(shown) < len(order) else []
    return groups, [*(names[label] for label in shown), *rest]


def _length_groups(lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[str]]:
    """Return fifths by length; equal lengths stay together, so there may be fewer."""
    edges = np.unique(np.quantile(lengths, [0.2, 0.4, 0.6, 0.8], method="inverted_cdf"))
    groups = np.searchsorted(edges, lengths, side="left")
    used, groups = np.unique(groups, return_inverse=True)
    names = []
    for number in range(len(used)):
        mine = lengths[groups == number]
        names.append(f"{mine.min()}" if mine.min() == mine.max() else f"{mine.min()}–{mine.max()}")
    return groups.astype(np.int64), names


def _tsne(codes: NDArray[np.float32], seed: int) -> Numbers | None:
    """Return t-SNE places; None without scikit-learn, or for too few different codes."""
    if len(np.unique(codes, axis=0)) < 10 or importlib.util.find_spec("sklearn") is None:
        return None
    return tsne(codes, seed)


def draw_map(codes: CodeMap, number: int, unit: str, neighbours: bool) -> Picture | None:
    """Draw the principal components, or the t-SNE places; None if there are none."""
    places = codes.neighbours if neighbours else codes.principal
    if places is None:
        return None
    colors = SERIES if codes.by == "label" else RAMP[len(RAMP) - len(codes.names) :]

    def draw(axes: Any) -> None:
        for group, name in enumerate(codes.names):
            mine = places[codes.groups == group]
            dots(axes, mine[:, 0].tolist(), mine[:, 1].tolist(), colors[group], 3.4, shown_name(name, 18))
        low, high = places.min(0), places.max(0)
        margin = 0.04 * np.maximum(high - low, 1e-6)
        axes.set_xlim(low[0] - margin[0], high[0] + margin[0])
        axes.set_ylim(low[1] - margin[1], high[1] + margin[1])
        axes.grid(False)
        if neighbours:
            axes.set_xticks([])
            axes.set_yticks([])
        else:
            axes.set_xlabel(f"first component, {codes.explained[0]:.0%} of the variance")
            axes.set_ylabel(f"second, {codes.explained[1]:.0%}")
        title = "label" if codes.by == "label" else unit
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16 if not neighbours else -0.03), ncols=3, title=title)

    count = len(codes.groups)
    if neighbours:
        title, name = "Code map: t-SNE", "code-map-tsne"
        caption = f"{count:,} codes; near points are near codes, but sizes and gaps of clusters mean little."
    else:
        title, name = "Code map: principal components", "code-map-pca"
        caption = f"The means of {count:,} sentences’ codes, in the plane where they differ most."
    return draw_picture(f"{name}-{number + 1}", title, caption, draw, (5.0, 4.6))
