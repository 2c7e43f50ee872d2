"""Model directories and checkpoints: tensors in safetensors, everything else in TOML and JSON; nothing is pickled."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from zentence.build import FAMILIES, build_model, complete, pretrained_vocabulary
from zentence.corpora import Vocabulary
from zentence.errors import ZentenceError
from zentence.files import checksum, remove_leftovers, write_atomically
from zentence.model import LatentLM
from zentence.parts import Part, plain
from zentence.settings import Settings, parse_toml, settings_from

FORMAT = 1
MODEL_FILES = ("settings.toml", "tokenizer.json", "model.safetensors")
KEPT_CHECKPOINTS = 2
INHERITED = "init_from"  # name of a part, or tokeniser, that is taken over


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters and persistent buffers by name; a parameter shared by two parts stands once."""
    state = module.state_dict()
    names = [name for name, _ in module.named_parameters()]
    parameters = {id(p) for p in module.parameters()}
    owners = dict(module.named_parameters(remove_duplicate=False))
    buffers = [name for name in state if name not in owners or id(owners[name]) not in parameters]
    return {name: state[name].detach().cpu().contiguous() for name in sorted({*names, *buffers})}


def load_into(module: nn.Module, tensors: dict[str, Tensor], where: str) -> None:
    """Copy tensors into a module; every name and shape must match."""
    expected = tensors_of(module)
    if set(expected) != set(tensors):
        differing = ", ".join(sorted(set(expected) ^ set(tensors))[:3])
        raise ZentenceError(f"{where} does not fit these settings: it differs in {differing}")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise ZentenceError(f"{where}: {name} has shape {list(tensor.shape)}, not {list(expected[name].shape)}")
    module.load_state_dict(tensors, strict=False)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file."""
    try:
        return load_tensors(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise ZentenceError(f"Cannot read {path}: {error}") from error


def save_settings(folder: Path, settings: Settings) -> None:
    """Write settings.toml."""
    content = {"format": FORMAT, **plain(settings)}
    write_atomically(folder / "settings.toml", tomli_w.dumps(content))


def load_settings_of(folder: Path) -> Settings:
    """Read a model directory's settings.toml."""
    path = folder / "settings.toml"
    if not path.is_file():
        raise ZentenceError(f"{folder} is not a model directory: settings.toml is missing")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ZentenceError(f"Cannot read {path}: {error}") from error
    content = parse_toml(str(path), text)
    found = content.pop("format", None)
    if not isinstance(found, int) or found > FORMAT:
        raise ZentenceError(
            f"{folder} has model format {found}; this zentence reads up to {FORMAT}: install a newer one"
        )
    return settings_from(content)


def save_model(folder: Path, model: LatentLM) -> None:
    """Write model.safetensors: weights only, no time, path or host."""
    write_atomically(folder / "model.safetensors", save_tensors(tensors_of(model)))


def load_model(folder: Path, device: torch.device | None = None) -> tuple[LatentLM, Vocabulary, Settings]:
    """Read a model directory; the model is in evaluation mode."""
    if not folder.is_dir():
        raise ZentenceError(f"No such model directory: {folder}")
    settings = load_settings_of(folder)
    for name in MODEL_FILES:
        if not (folder / name).is_file():
            hint = " (training has not finished: go on with --resume)" if (folder / "checkpoints").is_dir() else ""
            raise ZentenceError(f"{folder} is incomplete: {name} is missing{hint}")
    vocabulary = Vocabulary.load(folder / "tokenizer.json")
    model = build_model(complete(settings), *vocabulary.sizes)
    load_into(model, read_tensors(folder / "model.safetensors"), str(folder / "model.safetensors"))
    model.eval()
    return (model.to(device) if device is not None else model), vocabulary, settings


def inherit(settings: Settings) -> Settings:
    """Return settings whose parts called `init_from` are those of the model directory `init_from`.

    Options given beside that name change theirs: `{name = "init_from", dropout = 0.0}`.
    """
    wanted = [family for family in FAMILIES if getattr(settings, family).name == INHERITED]
    tokens = settings.corpus.tokenizer == INHERITED
    if not wanted and not tokens:
        return settings
    if settings.init_from is None:
        what = f"{wanted[0]}.name" if wanted else "corpus.tokenizer"
        raise ZentenceError(f"{what} = '{INHERITED}': give a model directory with --init-from")
    if not wanted:
        return settings
    stored = load_settings_of(Path(settings.init_from))
    changes: dict[str, Any] = {}
    for family in wanted:
        theirs, ours = getattr(stored, family), getattr(settings, family)
        changes[family] = Part.model_validate({"name": theirs.name, **theirs.options, **ours.options})
    return settings.model_copy(update={**changes, "averaged_codes": stored.averaged_codes})


def given_vocabulary(settings: Settings, stored: Path | None = None) -> Vocabulary | None:
    """Return the vocabulary that settings take from elsewhere; None: one is made from the training text.

    `stored` is the model directory of a run that goes on: what it has stands.
    """
    if settings.corpus.tokenizer not in ("pretrained", INHERITED):
        return None
    if stored is not None and (stored / "tokenizer.json").is_file():
        return Vocabulary.load(stored / "tokenizer.json")
    if settings.corpus.tokenizer == "pretrained":
        return pretrained_vocabulary(settings)
    if settings.init_from is None:
        raise ZentenceError("corpus.tokenizer = 'init_from': give a model directory with --init-from")
    load_settings_of(Path(settings.init_from))  # complains of what is no model directory
    return Vocabulary.load(Path(settings.init_from) / "tokenizer.json")


def initialise_from(folder: Path, model: LatentLM, vocabulary: Vocabulary, without: Sequence[str] = ()) -> None:
    """Give a new model the weights of a trained one, but for the parts `without`; tokeniser and shapes must agree."""
    stored = load_settings_of(folder)  # complains of what is no model directory
    for name in ("tokenizer.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise ZentenceError(f"{folder} is incomplete: {name} is missing")
    if Vocabulary.load(folder / "tokenizer.json").hash != vocabulary.hash:
        raise ZentenceError(f"{folder} has another tokeniser than this corpus: train it on the same text and settings")
    found, expected = read_tensors(folder / "model.safetensors"), tensors_of(model)
    kept = {name: tensor for name, tensor in expected.items() if name.partition(".")[0] not in without}
    for name, tensor in kept.items():
        if name not in found or found[name].shape != tensor.shape:
            shape = list(found[name].shape) if name in found else "nothing"
            sizes = stored.posterior.options.get("size"), model.code_size
            codes = (
                f"its codes have {sizes[0]} dimensions, these {sizes[1]}: " if sizes[0] not in (None, sizes[1]) else ""
            )
            raise ZentenceError(f"{folder} does not fit: {codes}{name} is {shape} there and {list(tensor.shape)} here")
    model.load_state_dict({name: found[name] for name in kept}, strict=False)


@dataclass(frozen=True)
class Checkpoint:
    """A point of a run: `state` is plain JSON; `tensors` are named by what they belong to."""

    state: dict[str, Any]
    tensors: dict[str, Tensor]


def save_checkpoint(folder: Path, tick: int, checkpoint: Checkpoint) -> None:
    """Write a checkpoint: tensors first, then the JSON that makes it valid; older ones are removed last."""
    _make_folder(folder)
    tensor_file = folder / f"step-{tick:09d}.safetensors"
    write_atomically(tensor_file, save_tensors(checkpoint.tensors))
    record = {"format": FORMAT, "tick": tick, "sha256": checksum(tensor_file), "state": checkpoint.state}
    write_atomically(tensor_file.with_suffix(".json"), json.dumps(record, indent=1))
    for old in _checkpoint_ticks(folder)[:-KEPT_CHECKPOINTS]:
        _remove_checkpoint(folder, old)
    _remove_unused_best(folder)


def tidy_checkpoints(folder: Path, tick: int) -> None:
    """Remove what a killed run left half-written, and the (damaged) checkpoints after step `tick`."""
    remove_leftovers(folder)
    for late in [found for found in _checkpoint_ticks(folder) if found > tick]:
        _remove_checkpoint(folder, late)
    for path in folder.glob("step-*.safetensors"):
        if not path.with_suffix(".json").exists():
            path.unlink(missing_ok=True)
    _remove_unused_best(folder)


def save_best(folder: Path, tick: int, model: nn.Module) -> dict[str, str]:
    """Write the best weights so far; return what a checkpoint must remember to find them."""
    _make_folder(folder)
    path = folder / f"best-{tick:09d}.safetensors"
    write_atomically(path, save_tensors(tensors_of(model)))
    return {"file": path.name, "sha256": checksum(path)}


def load_best(folder: Path, best: dict[str, str], model: nn.Module) -> None:
    """Load the best weights that a checkpoint remembers."""
    load_into(model, read_tensors(folder / best["file"]), best["file"])


def load_checkpoint(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest undamaged checkpoint (none if there never was one), and warnings about damaged ones."""
    warnings: list[str] = []
    ticks = _checkpoint_ticks(folder)
    for tick in reversed(ticks):
        try:
            return _read_checkpoint(folder, tick), warnings
        except (ZentenceError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            warnings.append(f"The checkpoint at step {tick} is damaged ({error}); trying the one before it.")
    if ticks:
        raise ZentenceError(f"All checkpoints in {folder} are damaged: start anew with --overwrite")
    return None, warnings


def _read_checkpoint(folder: Path, tick: int) -> Checkpoint:
    record = json.loads((folder / f"step-{tick:09d}.json").read_text(encoding="utf-8"))
    path = folder / f"step-{tick:09d}.safetensors"
    if record["format"] > FORMAT:
        raise ZentenceError("written by a newer zentence")
    if checksum(path) != record["sha256"]:
        raise ZentenceError("checksum differs")
    best = record["state"].get("best")
    if best is not None and checksum(folder / best["file"]) != best["sha256"]:
        raise ZentenceError("its best weights are damaged")
    return Checkpoint(record["state"], read_tensors(path))


def _checkpoint_ticks(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(m[1]) for path in folder.iterdir() if (m := re.fullmatch(r"step-(\d+)\.json", path.name)))


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ZentenceError(f"Cannot write {folder}: {error.strerror}") from error


def _remove_checkpoint(folder: Path, tick: int) -> None:
    for suffix in (".json", ".safetensors"):
        (folder / f"step-{tick:09d}{suffix}").unlink(missing_ok=True)


def _remove_unused_best(folder: Path) -> None:
    used = set()
    for tick in _checkpoint_ticks(folder):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):  # a damaged checkpoint uses none
            record = json.loads((folder / f"step-{tick:09d}.json").read_text(encoding="utf-8"))
            used.add(record["state"]["best"]["file"])
    for path in folder.glob("best-*.safetensors"):
        if path.name not in used:
            path.unlink(missing_ok=True)
