"""The model directory while training: never overwritten without being told, and resumed only with the same settings."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zentence import distributed
from zentence.checkpoint import tidy_checkpoints
from zentence.errors import ZentenceError
from zentence.files import remove_leftovers
from zentence.settings import Settings

OURS = (
    "settings.toml",
    "fit.json",
    "tokenizer.json",
    "model.safetensors",
    "results.json",
    "sentences",
    "log.jsonl",
    "checkpoints",
    "tensorboard",
)
MAY_CHANGE = {  # on resuming: lengths, and what does not touch the mathematics
    "out",
    "corpus.train",
    "corpus.valid",
    "corpus.test",
    "stages.*.epochs",
    "stages.*.max_tokens",
    "training.max_steps",
    "training.max_minutes",
    "training.threads",
    "training.device",
    "training.checkpoint_seconds",
    "training.log_every",
    "training.tensorboard",
}


def default_directory(files: Sequence[str]) -> str:
    """Return runs/<corpus name>: the first file's name, or its folder's where the name only says which split it is."""
    path = Path(files[0])
    if files[0] == "-":
        return "runs/stdin"
    name = path.name.removesuffix(".gz")
    stem = Path(name).stem
    for ending in (".train", "-train", "_train"):
        stem = stem.removesuffix(ending)
    if stem in ("train", "training"):
        stem = path.resolve().parent.name or stem
    return f"runs/{stem}"


def check_directory(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Raise if a run must not, or cannot, write to a directory; nothing is written yet."""
    if resume and overwrite:
        raise ZentenceError("--resume goes on and --overwrite starts anew: give one of the two")
    try:
        if folder.exists() and not folder.is_dir():
            raise ZentenceError(f"{folder} is not a directory: choose another --out")
        occupied = folder.is_dir() and any(folder.iterdir())
        nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    except OSError as error:
        raise ZentenceError(f"Cannot write to {folder}: {error.strerror}") from error
    if occupied and not resume and not overwrite:
        raise ZentenceError(
            f"{folder} exists: go on with --resume, start anew with --overwrite, or choose another --out"
        )
    if resume and (folder / "model.safetensors").exists() and not any((folder / "checkpoints").glob("step-*.json")):
        raise ZentenceError(
            f"{folder} holds a model but no checkpoint to go on from: start anew with --overwrite or in another --out"
        )
    if not nearest.is_dir():
        raise ZentenceError(f"Cannot write to {folder}: {nearest} is not a directory")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ZentenceError(f"Cannot write to {folder}: permission denied")


def claim_directory(folder: Path, *, overwrite: bool, tick: int) -> None:
    """Make the directory ready for a run that stands at step `tick`; call it when nothing else can be wrong."""
    distributed.barrier()  # the others have read what they need
    if distributed.is_main():
        try:
            for name in OURS if overwrite else ("results.json",):  # results are those of the weights so far
                path = folder / name
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            folder.mkdir(parents=True, exist_ok=True)
            remove_leftovers(folder)
            tidy_checkpoints(folder / "checkpoints", tick)
        except OSError as error:
            raise ZentenceError(f"Cannot write to {folder}: {error.strerror}") from error
    distributed.barrier()


def check_same_settings(stored: Settings, given: Settings) -> None:
    """Raise if a run would be resumed with settings that change what it computes."""
    before, now = _flatten(stored.model_dump(mode="json")), _flatten(given.model_dump(mode="json"))
    changed = [
        f"{name} (was {before.get(name)!r}, now {now.get(name)!r})"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name) and not _may_change(name)
    ]
    if changed:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise ZentenceError(f"--resume with changed settings: {'; '.join(changed[:3])}{more}. Train in another --out.")


def _may_change(name: str) -> bool:
    steps = name.split(".")
    general = ".".join("*" if step.isdigit() else step for step in steps)
    return any(general == allowed or general.startswith(f"{allowed}.") for allowed in MAY_CHANGE)


def _flatten(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        entries = value.items()
    elif isinstance(value, (list, tuple)):
        entries = enumerate(value)  # type: ignore[assignment]
    else:
        return {path: value}
    result: dict[str, Any] = {}
    for key, entry in entries:
        result |= _flatten(entry, f"{path}.{key}" if path else str(key))
    return result
