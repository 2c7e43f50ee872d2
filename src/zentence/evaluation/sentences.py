"""Per-sentence figures of a split as a file: `MODEL/sentences/<split>.npz`."""

import io
from pathlib import Path

import numpy as np

from zentence.errors import ZentenceError
from zentence.evaluation.figures import Figures
from zentence.files import write_atomically

NAMES = ("nll", "iw_nll", "elbo_nll", "rate", "distortion", "samples")


def sentences_file(folder: Path, split: str) -> Path:
    """Return where a split's per-sentence figures are."""
    return folder / "sentences" / f"{split}.npz"


def write_sentences(folder: Path, split: str, figures: Figures, store: str, seed: int) -> None:
    """Write float64 arrays [N] in the split's order, `tokens`, the content name of the split, and the seed."""
    arrays: dict[str, np.ndarray] = {name: figures.values[name] for name in NAMES if name in figures.values}
    arrays |= {"tokens": figures.tokens.astype(np.float64), "store": np.array(store), "seed": np.array(seed)}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    path = sentences_file(folder, split)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ZentenceError(f"Cannot write {path}: {error.strerror or error}") from error
    write_atomically(path, buffer.getvalue())
