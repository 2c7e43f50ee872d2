"""Training a dialog model by the one loop, and what stands in its directory.

`fit.json`, `model.safetensors`, `checkpoints/` and `log.jsonl` are those of every fit; `space/` is the model directory
of the responses' space, for every other command; `dialog.json` the figures on validation; `scatter.safetensors` how
responses lie about their contexts' codes (not for sequence to sequence); `style.safetensors`, where a style was given,
codes of its sentences and the classifiers that judge it.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as save_tensors

from zentence.build import build_model, complete, load_pretrained, with_lengths
from zentence.checkpoint import given_vocabulary, load_model, save_model, save_settings, tensors_of
from zentence.corpora.batching import stored_batch
from zentence.corpora.dialogue_corpus import DialogueCorpus, prepare_dialogues
from zentence.corpora.pairs import PairBatches
from zentence.corpora.store import TokenStore
from zentence.corpora.vocabulary import Vocabulary
from zentence.errors import ZentenceError
from zentence.files import checksum, write_atomically
from zentence.guided.dialog_loss import DialogOptions, DialogTrainable
from zentence.guided.dialog_model import DialogModel
from zentence.guided.style_classifiers import train_judges
from zentence.machine import choose_device, prepare_process
from zentence.model import LatentLM
from zentence.noise import Noise, derive_key
from zentence.parts import plain
from zentence.settings import Settings
from zentence.training.events import Callback
from zentence.training.fit import FitSettings, check_fit, fit

NAME = "dialog"
SPACE, RECORD, SCATTER, STYLE = "space", "dialog.json", "scatter.safetensors", "style.safetensors"
STYLE_CODES = 4096  # sentences of a style whose codes are kept
SCATTER_PAIRS = 2048  # training pairs whose z_AE − z_S2S are kept
SELECTION_PAIRS = 2000  # of the validation split, used while training


@dataclass(frozen=True)
class DialogRun:
    """What a dialog model is trained on, and how."""

    train: Path
    valid: Path | None = None
    style: Path | None = None
    start: Path | None = None  # a trained model directory; none: a new model as `settings` say
    options: DialogOptions = field(default_factory=DialogOptions)
    epochs: float = 5.0  # passes over the pairs, where no number of steps is given
    device: str = "auto"
    threads: int | None = None


@dataclass(frozen=True)
class DialogResult:
    """Where a dialog model is, and what was measured on its validation split (nats per response; distances d)."""

    folder: Path
    record: dict[str, Any]
    already_finished: bool


def train_dialog(
    run: DialogRun,
    settings: Settings,
    folder: Path,
    *,
    fit_options: dict[str, Any] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
) -> DialogResult:
    """Train a dialog model into a directory. `fit_options` are fields of `FitSettings` that are not left to defaults.

    `settings` describe a new model and how text is read; with `run.start` its own settings hold instead.
    """
    check_fit(folder, resume=resume, overwrite=overwrite)
    if run.style is not None and run.options.objective == "s2s":
        raise ZentenceError(
            "A style needs the objective 'fusion': sequence to sequence alone has no code of a response"
        )
    prepare_process(run.threads)
    device = choose_device(run.device)
    model, vocabulary, settings = _started(run, settings)
    corpus = prepare_dialogues(
        settings.corpus,
        run.train,
        run.valid,
        run.style,
        vocabulary=vocabulary,
        held_apart=run.options.held_apart,
        progress=_reading(callbacks),
    )
    batches = _batches(corpus.train, run.options, seed := (fit_options or {}).get("seed", 0), corpus.style)
    if model is None:
        settings = complete(with_lengths(_seeded(settings, seed), *_length_moments(corpus.train)))
        model = build_model(settings, *corpus.vocabulary.sizes)
        load_pretrained(model, corpus.vocabulary)
    _check_positions(model, run.options)
    trainable = DialogTrainable(DialogModel(model, frozen=run.start is not None).to(device), run.options)
    for message in corpus.warnings:
        _tell(callbacks, {"event": "warning", "message": message})
    if overwrite:
        _clear(folder)
    result = fit(
        NAME,
        trainable,
        batches,
        settings=_fit_settings(run, len(batches), fit_options or {}),
        folder=folder,
        fingerprint=_fingerprint(run, corpus),
        validate=lambda: measure(trainable, corpus.valid, seed=seed, limit=SELECTION_PAIRS),
        resume=resume,
        overwrite=overwrite,
        callbacks=callbacks,
    )
    if result.already_finished and (folder / RECORD).is_file():
        return DialogResult(folder, json.loads((folder / RECORD).read_text(encoding="utf-8")), True)
    record = _finish(folder, trainable, corpus, settings, seed, callbacks)
    return DialogResult(folder, record, result.already_finished)


def _started(run: DialogRun, settings: Settings) -> tuple[LatentLM | None, Vocabulary | None, Settings]:
    """Return the trained model to start from with its vocabulary and settings; without one, the settings checked."""
    if run.start is not None:
        return load_model(run.start)
    settings = complete(settings)
    if not settings.has_code:
        raise ZentenceError("This recipe is a language model: dialog needs a code; take a recipe with an encoder")
    return None, given_vocabulary(settings), settings


def _check_positions(model: LatentLM, options: DialogOptions) -> None:
    positions = getattr(model.encoder, "positions", None)  # encoders without a limit do not name one
    if positions is not None and options.context_tokens > positions:
        raise ZentenceError(f"The encoder has positions for {positions} tokens: set dialog.context_tokens={positions}")


def _seeded(settings: Settings, seed: int) -> Settings:
    return settings.model_copy(update={"training": settings.training.model_copy(update={"seed": seed})})


def _length_moments(store: TokenStore) -> tuple[float, float]:
    counts = store.length_counts
    lengths = np.arange(len(counts))
    mean = float(np.average(lengths, weights=counts))
    return mean, float(np.sqrt(np.average((lengths - mean) ** 2, weights=counts)))


def _batches(store: TokenStore, options: DialogOptions, seed: int, style: TokenStore | None = None) -> PairBatches:
    return PairBatches(
        store,
        sentences=options.batch_sentences,
        turns=options.turns,
        context_tokens=options.context_tokens,
        seed=seed,
        style=style,
    )


def _fit_settings(run: DialogRun, batches: int, given: dict[str, Any]) -> FitSettings:
    """Return the fit's settings: what is given, else `epochs` passes, two validations a pass, and a cosine."""
    usual: dict[str, Any] = {
        "steps": max(1, round(run.epochs * batches)),
        "validate_every": max(1, batches // 2),
        "schedule": {"name": "cosine", "warmup_share": 0.02, "end": 0.02},
    }
    return FitSettings.model_validate({**usual, **given})


def _fingerprint(run: DialogRun, corpus: DialogueCorpus) -> dict[str, Any]:
    return {
        "options": plain(run.options),
        "vocabulary": corpus.vocabulary.hash,
        "training text": corpus.train.folder.name,  # named by its content
        "validation text": corpus.valid.folder.name,
        "style": None if corpus.style is None else corpus.style.folder.name,
        "start": None if run.start is None else checksum(run.start / "model.safetensors"),
    }


def _tell(callbacks: Sequence[Callback], event: dict[str, Any]) -> None:
    for callback in callbacks:
        callback({"tick": 0, **event})


def _reading(callbacks: Sequence[Callback]) -> Callable[[int, int], None]:
    return lambda done, total: _tell(callbacks, {"event": "reading", "done": done, "total": total})


def _clear(folder: Path) -> None:
    """Remove what an earlier dialog model left beside the files of a fit."""
    shutil.rmtree(folder / SPACE, ignore_errors=True)
    for name in (RECORD, SCATTER, STYLE):
        (folder / name).unlink(missing_ok=True)


@torch.no_grad()
def measure(
    trainable: DialogTrainable, store: TokenStore, *, seed: int = 0, limit: int | None = None
) -> dict[str, float]:
    """Return means over pairs of a store: distortions in nats per response, pull and push as distances d.

    With a `limit`, batches drawn once and for all; the noise is the same every time. Push depends on the batches.
    """
    batches = _batches(store, trainable.options, seed)
    device = next(trainable.parameters()).device
    sums: dict[str, float] = {}
    count = 0
    for position in range(len(batches)):
        batch = batches.batch(0, position).to(device)
        terms = trainable(batch, 0, Noise(derive_key(seed, "validation"), batch.index))
        for name, values in terms.values.items():
            sums[name] = sums.get(name, 0.0) + float(values.sum())
        for name, value in terms.scalars.items():
            sums[name] = sums.get(name, 0.0) + value * batch.size
        count += batch.size
        if limit is not None and count >= limit:
            break
    return {name: value / count for name, value in sums.items()}


def _finish(
    folder: Path,
    trainable: DialogTrainable,
    corpus: DialogueCorpus,
    settings: Settings,
    seed: int,
    callbacks: Sequence[Callback],
) -> dict[str, Any]:
    """Write all that is not the fit's; return the record, which is written last."""
    trainable.eval()
    space = folder / SPACE
    space.mkdir(exist_ok=True)
    save_settings(space, settings)
    corpus.vocabulary.save(space / "tokenizer.json")
    save_model(space, trainable.model.model)
    record: dict[str, Any] = {
        "figures": measure(trainable, corpus.valid, seed=seed),
        "unit": "nats per response",
        "judges": None,
    }
    if trainable.options.objective == "fusion":
        scatter = response_scatter(trainable.model, _batches(corpus.train, trainable.options, seed))
        write_atomically(folder / SCATTER, save_tensors({"scatter": scatter}))
    if corpus.style is not None:
        record["judges"] = _finish_style(folder, trainable.model.model, corpus, seed, callbacks)
    write_atomically(folder / RECORD, json.dumps(record, indent=1) + "\n")
    return record


def _finish_style(
    folder: Path, model: LatentLM, corpus: DialogueCorpus, seed: int, callbacks: Sequence[Callback]
) -> dict[str, Any] | None:
    """Write the style's codes and its judges; return what is known of them."""
    assert corpus.style is not None and corpus.held_style is not None and corpus.held_turns is not None
    judged = train_judges(
        corpus.held_style,
        corpus.held_turns,
        len(corpus.vocabulary),
        seed=seed,
        progress=lambda done, total: _tell(
            callbacks, {"event": "evaluating", "split": "the style's classifiers", "done": done, "total": total}
        ),
    )
    if judged is None:
        _tell(callbacks, {"event": "warning", "message": "too little text is held apart: no classifier of the style"})
    tensors = {"codes": style_codes(model, corpus.style)}
    if judged is not None:
        tensors |= {f"judges/{name}": tensor for name, tensor in tensors_of(judged.judges).items()}
    write_atomically(folder / STYLE, save_tensors(tensors))
    return None if judged is None else judged.record


@torch.no_grad()
def response_scatter(model: DialogModel, batches: PairBatches, most: int = SCATTER_PAIRS) -> torch.Tensor:
    """Return z_AE − z_S2S, [M, D], of training pairs: batches drawn once and for all, until there are `most`."""
    device = next(model.parameters()).device
    found: list[torch.Tensor] = []
    for position in range(len(batches)):
        pairs = batches.batch(0, position).pairs.to(device)
        assert pairs.context is not None
        between = model.model.infer(pairs.source).center - model.infer_context(pairs.context).center
        found.append(between.float().cpu())
        if sum(map(len, found)) >= most:
            break
    return torch.cat(found)[:most].contiguous()


@torch.no_grad()
def style_codes(model: LatentLM, style: TokenStore, most: int = STYLE_CODES) -> torch.Tensor:
    """Return the codes [M, D] of sentences of a style, evenly spread over its text."""
    device = next(model.parameters()).device
    numbers = np.unique(np.linspace(0, len(style) - 1, min(most, len(style))).astype(np.int64))
    found = []
    for first in range(0, len(numbers), 128):
        chosen = numbers[first : first + 128]
        found.append(model.infer(stored_batch(style, chosen).to(device).source).center.float().cpu())
    return torch.cat(found)
