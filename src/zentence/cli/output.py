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

ORDER = ("source_nll", "nll", "iw_nll", "elbo_nll", "ppl", "distortion", "rate", "mutual_information", "active_units")


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
    """Load a model for use."""
    from zentence.latent.space import LatentSpace

    return LatentSpace.load(folder, device, threads)


def read_texts(path: Path, labels: str = "auto") -> list[str]:
    """Read the sentences of a file (`-`: standard input), labels dropped."""
    from zentence.corpora.readers import read_sentences

    return [line.text for line in read_sentences(path, labels)]  # type: ignore[arg-type]


def check_words(space: "LatentSpace", sentences: Sequence[str]) -> None:
    """Warn, in one line, of sentences without a single known word."""
    encoded = space.vocabulary.encode_batch(list(sentences))
    if any(len(ids) == 0 for ids in encoded):
        raise ZentenceError("A sentence is empty: give at least one word")
    strange = [sentence for sentence, ids in zip(sentences, encoded, strict=True) if (ids == UNK).all()]
    if strange:
        more = f" (nor of {len(strange) - 1:,} more sentences)" if len(strange) > 1 else ""
        warn(f"no word of {strange[0][:60]!r} is in this model's vocabulary{more}")


def measurement_lines(measurements: "Sequence[Measurement]") -> list[str]:
    """Return a table of measurements, each with its kind, split by split."""
    lines = []
    for split in dict.fromkeys(m.split for m in measurements):
        rows = sorted(
            (m for m in measurements if m.split == split),
            key=lambda m: ORDER.index(m.name) if m.name in ORDER else len(ORDER),
        )
        lines.append(f"{split} ({rows[0].count:,} sentences)")
        for m in rows:
            error = f" ± {m.standard_error:.2f}" if m.standard_error is not None else ""
            of = f" of {m.details['of']}" if m.name == "active_units" else ""
            samples = f", K = {m.samples}" if m.samples is not None and m.name in ("iw_nll", "ppl") else ""
            flag = ", at its ceiling log M" if m.details.get("saturated") else ""
            digits = 0 if m.name == "active_units" else 2
            kind = m.kind.replace("_", " ")
            lines.append(f"  {m.name:<20}{m.value:>10.{digits}f}{error}{of}  {m.unit} ({kind}{samples}{flag})")
    return lines
