"""Pictures from stored results: time to quality, and figures against the target of the rate (paper 2, Fig. 2 and 3)."""

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zentence.errors import ZentenceError
from zentence.files import write_atomically
from zentence.reproduce.results import Results, last_stage, only_ended_early
from zentence.reproduce.rows import Row, rows_of

COLORS = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#ccaa44", "#66ccee")
SWEEPS = {"FB": "fb-{}", "MDR, Gauss": "mdr-{}", "MDR, Vamp": "vamp-{}", "MDR, IAF-MoG": "iaf-mog-{}"}
NAMED = {"vamp-5": "vamp", "iaf-mog-5": "iaf-mog"}  # rows of Table 4
TARGETS = (1, 5, 10, 20, 50)


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ZentenceError("Pictures need matplotlib: pip install 'zentence[plots]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Any, path: Path) -> Path:
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=120, format="png")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())
    return path


def _tidy(axes: Any) -> None:
    axes.grid(alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def draw_time(row: str, variants: Mapping[str, Results], path: Path) -> Path | None:
    """Draw what validation said in the last stage of a row against the time of training, variant by variant.

    Of results kept apart for changed settings, runs are drawn whose training was only ended early.
    """
    curves = {}
    for variant, results in variants.items():
        for seed, run in results.rows.get(row, {}).get("seeds", {}).items():
            last = last_stage(run)
            if last and (variant == results.variant or only_ended_early(run)):
                curves[variant, seed] = last
    if not curves:
        return None
    figure = _figure(8, 4.5)
    axes = figure.subplots()
    colors = dict(zip(variants, COLORS, strict=False))
    for (variant, seed), points in curves.items():
        minutes = [point["seconds"] / 60.0 for point in points]
        values = [point["value"] for point in points]
        axes.plot(minutes, values, color=colors[variant], marker=".", label=f"{variant}, seed {seed}")
    first = next(iter(curves.values()))[0]
    axes.set_xlabel("minutes of training")
    axes.set_ylabel(f"{first['figure']} on validation, nats per sentence")
    axes.set_title(f"{row}: time to quality", loc="left")
    _tidy(axes)
    axes.legend(frameon=False)
    return _save(figure, path)


def draw_sweep(results: Results, path: Path) -> Path | None:
    """Draw perplexity, accuracy gap, and achieved minus target rate against the target, for each technique."""
    lines: dict[str, list[tuple[int, dict[str, float]]]] = {}
    values = results.values()
    for title, pattern in SWEEPS.items():
        rows = [(target, NAMED.get(pattern.format(target), pattern.format(target))) for target in TARGETS]
        found = [(target, values[name]) for target, name in rows if name in values]
        if len(found) > 1:
            lines[title] = found
    if not lines:
        return None
    panels: list[tuple[str, Callable[[int, dict[str, float]], float | None]]] = [
        ("perplexity (importance-weighted bound)", lambda _, v: v.get("ppl")),
        ("accuracy gap, percentage points", lambda _, v: v.get("accuracy_gap")),
        ("rate − target, nats", lambda target, v: v["rate"] - target if "rate" in v else None),
    ]
    figure = _figure(13, 4)
    for axes, (label, value) in zip(figure.subplots(1, 3), panels, strict=True):
        for color, (title, points) in zip(COLORS, lines.items(), strict=False):
            drawn = [(target, y) for target, v in points if (y := value(target, v)) is not None]
            axes.plot([x for x, _ in drawn], [y for _, y in drawn], color=color, marker="o", label=title)
        axes.set_xlabel("target of the rate, nats")
        axes.set_title(label, loc="left", fontsize=10)
        _tidy(axes)
    figure.axes[0].legend(frameon=False)
    return _save(figure, path)


def draw_all(paper: str, variants: Mapping[str, Results], folder: Path) -> list[Path]:
    """Draw every picture that a paper's stored results allow."""
    rows: Sequence[Row] = rows_of(paper)
    drawn = [draw_time(row.name, variants, folder / f"time-{row.name}.png") for row in rows]
    whole = {variant: results for variant, results in variants.items() if variant == results.variant}
    drawn += [draw_sweep(results, folder / f"sweep-{variant}.png") for variant, results in whole.items()]
    found = [path for path in drawn if path is not None]
    if not found:
        raise ZentenceError(f"There are no results of {paper} to draw: make some with zentence reproduce {paper}")
    return found
