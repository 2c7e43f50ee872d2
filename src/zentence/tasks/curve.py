"""Accuracy against the number of labels, as a picture."""

import io
from pathlib import Path

from zentence.errors import ZentenceError
from zentence.files import write_atomically
from zentence.tasks.classify import Accuracy, Classification

TITLES = {"linear": "linear, codes", "mlp": "network, codes", "gmm": "mixture, codes"}
STYLES = {"linear": ("#4477aa", "o"), "mlp": ("#228833", "s"), "gmm": ("#aa3377", "D"), "words": ("#ccaa44", "^")}


def draw_curve(found: Classification, path: Path) -> None:
    """Draw mean accuracy with its standard deviation over runs, beside the words' and the majority class's."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import PercentFormatter
    except ImportError as error:
        raise ZentenceError("Pictures need matplotlib: pip install 'zentence[plots]'") from error
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    counts = sorted({labels for labels, _ in found.results})
    places = {labels: float(place) for place, labels in enumerate(counts)}  # even steps, with room for 0

    def line(name: str, title: str, values: dict[int, Accuracy]) -> None:
        figures = [(places[n], a.to_dict()) for n, a in sorted(values.items())]
        color, marker = STYLES[name]
        axes.errorbar(
            [x for x, _ in figures],
            [a["mean"] for _, a in figures],
            yerr=[a["std"] or 0.0 for _, a in figures],
            label=title,
            color=color,
            marker=marker,
            capsize=3,
        )

    for name in dict.fromkeys(name for _, name in found.results):
        line(name, TITLES[name], {n: a for (n, which), a in found.results.items() if which == name})
    if found.words:
        line("words", "linear, TF-IDF of words", found.words)
    axes.axhline(found.majority[1], color="#777777", linestyle=":", label=f"majority class ({found.majority[0]})")
    axes.set_xticks(list(places.values()), [f"{n:,}" for n in counts])
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("labelled sentences" + (" a class" if found.per_class else ""))
    axes.set_ylabel(f"accuracy on {found.sentences[1]:,} test sentences")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False)
    buffer = io.BytesIO()
    try:
        figure.savefig(buffer, dpi=120, format=path.suffix[1:] or "png")
    except ValueError as error:
        raise ZentenceError(f"Cannot write {path}: {error}") from error
    write_atomically(path, buffer.getvalue())
