"""Accuracy against the number of labels, as a picture."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zentence.errors import ZentenceError
from zentence.files import write_atomically
from zentence.tasks.classify import Accuracy, Classification

TITLES = {
    "linear": "linear, codes",
    "raw": "linear, codes as they are",
    "mlp": "network, codes",
    "gmm": "mixture, codes",
}
STYLES = {
    "linear": ("#4477aa", "o"),
    "raw": ("#66ccee", "v"),
    "mlp": ("#228833", "s"),
    "gmm": ("#aa3377", "D"),
    "words": ("#ccaa44", "^"),
}
SHADES = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#66ccee", "#555555", "#dd8833", "#88aa22")
MARKERS = ("o", "s", "D", "v", "P", "X", "<", ">")


@dataclass(frozen=True)
class CurveLine:
    """Accuracies by number of labels, and how they are drawn."""

    title: str
    values: dict[int, Accuracy]
    color: str
    marker: str


def words_line(values: dict[int, Accuracy]) -> CurveLine:
    """Return the line of a classifier that knows the words only."""
    return CurveLine("linear, TF-IDF of words", values, *STYLES["words"])


def draw_curve(found: Classification, path: Path) -> None:
    """Draw mean accuracy with its standard deviation over runs, beside the words' and the majority class's."""
    lines = [
        CurveLine(TITLES[name], {n: a for (n, which), a in found.results.items() if which == name}, *STYLES[name])
        for name in dict.fromkeys(name for _, name in found.results)
    ]
    if found.words:
        lines.append(words_line(found.words))
    draw_lines(lines, path, majority=found.majority, per_class=found.per_class, tested=found.sentences[1])


def draw_lines(
    lines: Sequence[CurveLine], path: Path, *, majority: tuple[str, float], per_class: bool, tested: int
) -> None:
    """Draw lines of mean accuracy with its standard deviation over runs, and the majority class's share."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import PercentFormatter
    except ImportError as error:
        raise ZentenceError("Pictures need matplotlib: pip install 'zentence[plots]'") from error
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    counts = sorted({labels for line in lines for labels in line.values})
    places = {labels: float(place) for place, labels in enumerate(counts)}  # even steps, with room for 0
    for line in lines:
        figures = [(places[n], a.to_dict()) for n, a in sorted(line.values.items())]
        axes.errorbar(
            [x for x, _ in figures],
            [a["mean"] for _, a in figures],
            yerr=[a["std"] or 0.0 for _, a in figures],
            label=line.title.replace("$", r"\$").lstrip("_") or " ",
            color=line.color,
            marker=line.marker,
            capsize=3,
        )
    axes.axhline(majority[1], color="#777777", linestyle=":", label=f"majority class ({majority[0]})")
    axes.set_xticks(list(places.values()), [f"{n:,}" for n in counts])
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("labelled sentences" + (" a class" if per_class else ""))
    axes.set_ylabel(f"accuracy on {tested:,} test sentences")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False)
    buffer = io.BytesIO()
    try:
        figure.savefig(buffer, dpi=120, format=path.suffix[1:] or "png")
    except ValueError as error:
        raise ZentenceError(f"Cannot write {path}: {error}") from error
    write_atomically(path, buffer.getvalue())
