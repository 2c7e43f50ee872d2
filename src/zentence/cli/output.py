"""What commands print: text for people, or one JSON document."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zentence.errors import ZentenceError
from zentence.special import UNK

if TYPE_CHECKING:
    from zentence.evaluation.measurement import Measurement
    from zentence.latent.space import LatentSpace

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**31 - 1, help="Everything random follows from it.")]
Model = Annotated[Path, typer.Argument(help="Model directory.", show_default=False)]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Threads; default: all cores.")]
FeaturesOption = Annotated[
    str,
    typer.Option("--features", help="code (posterior means), encoder (its features before the posterior), or both."),
]
Beside = Annotated[
    list[str],
    typer.Option(
        "--beside",
        help="What to compare with: a model directory; random (this architecture, untrained); pretrained (its "
        "pre-trained weights alone). May be repeated.",
    ),
]

_SMALL_UNITS = ("share", "correlation", "0 to 1", "BLEU, 0 to 1", "bits per byte")  # shown with three digits


def print_json(document: Any) -> None:
    """Print one JSON document on standard output."""
    print(json.dumps(document, ensure_ascii=False, allow_nan=False))


def print_lines(lines: Sequence[str]) -> None:
    """Print text lines on standard output."""
    for line in lines:
        print(line)


def warn(message: str) -> None:
    """Print a warning on standard error."""
    print(f"warning: {message}", file=sys.stderr)


def load_space(folder: Path, device: str = "auto", threads: int | None = None) -> "LatentSpace":
    """Load a model for use; what the library warns of becomes one line."""
    import warnings

    from zentence.latent.space import LatentSpace

    warnings.showwarning = lambda message, *_, **__: warn(" ".join(str(message).split()))
    return LatentSpace.load(folder, device, threads)


def read_texts(path: Path, labels: str = "auto") -> list[str]:
    """Read the sentences of a file (`-`: standard input), labels dropped."""
    from zentence.corpora.readers import read_sentences

    return [line.text for line in read_sentences(path, labels)]  # type: ignore[arg-type]


def check_words(space: "LatentSpace", sentences: Sequence[str]) -> bool:
    """Warn, in one line, of sentences without a single known word; say whether there were any."""
    encoded = space.vocabulary.encode_batch(list(sentences))
    if any(len(ids) == 0 for ids in encoded):
        raise ZentenceError("A sentence is empty: give at least one word")
    strange = [sentence for sentence, ids in zip(sentences, encoded, strict=True) if (ids == UNK).all()]
    if strange:
        more = f" (nor of {len(strange) - 1:,} more sentences)" if len(strange) > 1 else ""
        warn(f"no word of {strange[0][:60]!r} is in this model's vocabulary{more}")
    return bool(strange)


def metric_lines() -> list[str]:
    """Return every metric with its unit, direction and meaning, group by group."""
    from zentence.evaluation.metrics import METRICS

    names, units = (max(map(len, column)) for column in (METRICS, [metric.unit for metric in METRICS.values()]))
    arrows = {"lower": "lower is better", "higher": "higher is better", "none": ""}
    lines = []
    for group in dict.fromkeys(metric.group for metric in METRICS.values()):
        lines.append(group)
        for name, metric in ((name, metric) for name, metric in METRICS.items() if metric.group == group):
            about = f"{metric.unit:<{units}}  {arrows[metric.direction]:<16}  {metric.meaning}"
            lines.append(f"  {name:<{names}}  {about}")
    return lines


def measurement_lines(measurements: "Sequence[Measurement]") -> list[str]:
    """Return a table of measurements, each with its kind, split by split."""
    from zentence.evaluation.metrics import METRICS

    order = list(METRICS)
    lines = []
    for split in dict.fromkeys(m.split for m in measurements):
        rows = sorted(
            (m for m in measurements if m.split == split),
            key=lambda m: order.index(m.name) if m.name in order else len(order),
        )
        width = max(20, *(len(m.name) + 2 for m in rows))
        lines.append(f"{split} ({rows[0].count:,} sentences)")
        lines += [_measurement_line(m, width) for m in rows]
    return lines


def _measurement_line(m: "Measurement", width: int) -> str:
    digits = 0 if m.unit == "units" else 3 if m.unit in _SMALL_UNITS else 2
    error = f" ± {m.standard_error:.{digits}f}" if m.standard_error is not None else ""
    of = f" of {m.details['of']}" if m.name == "active_units" else ""
    notes = [m.kind.replace("_", " ")]
    if m.samples is not None and (m.name == "ppl" or m.name.endswith("_nll")) and m.name != "elbo_nll":
        notes.append(f"K = {m.samples}" + (" on average" if m.details.get("policy") == "auto" else ""))
    if m.details.get("unreliable_share"):
        notes.append(f"{m.details['unreliable_share']:.0%} of sentences unreliable")
    if m.details.get("saturated"):
        notes.append("at its ceiling log M")
    if "floor" in m.details:
        notes.append(f"floor log N = {m.details['floor']:.2f}")
    if "normal" in m.details:
        notes.append(f"N(0, I) has {m.details['normal']:.2f}")
    return f"  {m.name:<{width}}{m.value:>10.{digits}f}{error}{of}  {m.unit} ({', '.join(notes)})"
