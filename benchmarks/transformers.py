"""A small Optimus: what the code costs beside bare networks, cached generation, and two processes on two cores."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.harness import REPEATS, Row, Section, best, measure
from benchmarks.shapes import seconds
from zentence.build import build_model, build_objective, complete
from zentence.corpora import collate
from zentence.decoders.generation import Generation, generate
from zentence.machine import prepare_process
from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.settings import Settings, load_settings
from zentence.training.optimizers import build_optimizer
from zentence.training.trainable import LatentTrainable
from zentence.training.updates import Joint
from zentence.types import EOS, Batch

VOCABULARY, SENTENCES, WORDS = 8000, 64, 23  # 64 sentences of 24 tokens
WRITTEN, CODES = 64, 32
STEPS, SKIPPED = 60, 10


def _settings(*changes: str) -> Settings:
    return complete(load_settings("optimus-mini", changes))


def _model(settings: Settings) -> LatentLM:
    return build_model(settings, VOCABULARY)


def _batches(count: int) -> list[Batch]:
    random = np.random.default_rng(0)
    rows = [list(random.integers(4, VOCABULARY, size=(SENTENCES, WORDS))) for _ in range(count)]
    return [collate(sentences, np.arange(SENTENCES)) for sentences in rows]


def measure_code() -> dict[str, float]:
    """Train optimus-mini with its code, by zentence's own update."""
    prepare_process()
    settings, data = _settings(), _batches(4)
    trainable = LatentTrainable(_model(settings), build_objective(settings.stages[0], 1.0, 100), lambda _step: 0.0)
    optimizer = build_optimizer(trainable.model, settings.optimizer)
    update = Joint(Joint.Options(), trainable.train(), optimizer, settings.optimizer, lambda _number: None)  # type: ignore[arg-type,return-value]
    number = 0

    def step() -> None:
        nonlocal number
        batch = data[number % len(data)]
        update(batch, number, Noise(number, batch.index))
        number += 1

    return {"tokens_per_second": int(data[0].target.lengths.sum()) / seconds(step, 8.0)}


def measure_bare() -> dict[str, float]:
    """Train the same two networks as the library gives them, without a code between them."""
    import transformers

    prepare_process()
    model = _model(_settings())
    encoder = transformers.BertModel(model.encoder.config)
    decoder = transformers.GPT2LMHeadModel(model.decoder.config)
    both = nn.ModuleList([encoder, decoder]).train()
    optimizer = torch.optim.AdamW(both.parameters(), lr=1e-3, fused=True)
    data = _batches(4)
    number = 0

    def step() -> None:
        nonlocal number
        batch = data[number % len(data)]
        optimizer.zero_grad()
        pooled = encoder(input_ids=batch.source.ids, attention_mask=batch.source.mask().long()).pooler_output
        scores = decoder(input_ids=batch.inputs, use_cache=False).logits
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), batch.target.ids.flatten())
        (loss + 1e-3 * pooled.square().mean()).backward()
        nn.utils.clip_grad_norm_(both.parameters(), 1.0)
        optimizer.step()
        number += 1

    return {"tokens_per_second": int(data[0].target.lengths.sum()) / seconds(step, 8.0)}


@torch.no_grad()
def _without_cache(decoder: Any, z: Tensor) -> Tensor:
    """Write greedily; every word reads all that was written before it anew."""
    ids = torch.full((z.shape[1], 1), 1)
    for _ in range(WRITTEN):
        features, weight, bias = decoder._readout(decoder.hidden_states(z, ids)[0, :, -1])
        scores = nn.functional.linear(features, weight, bias)
        scores[:, EOS] = -torch.inf
        ids = torch.cat((ids, scores.argmax(1, keepdim=True)), dim=1)
    return ids


def measure_generation() -> dict[str, float]:
    """Write 64 tokens from each of 32 codes, with and without the cache of keys and values; they are the same."""
    prepare_process()
    torch.manual_seed(0)
    decoder = _model(_settings()).eval().decoder
    with torch.no_grad():  # an untrained model that never ends: <eos> scores far below all others
        decoder.embedding.weight[EOS] = 0.0
    z = torch.randn(1, CODES, decoder.code_size)
    options = Generation(max_words=WRITTEN)
    ways: dict[str, Callable[[], object]] = {
        "cached": lambda: generate(decoder, z, CODES, options),
        "without": lambda: _without_cache(decoder, z),
    }
    found = dict.fromkeys(ways, float("inf"))
    for _ in range(REPEATS):  # they take turns, so that a busy moment does not fall on one of them
        for name, write in ways.items():
            started = time.perf_counter()
            write()
            found[name] = min(found[name], time.perf_counter() - started)
    return {name: CODES * WRITTEN / taken for name, taken in found.items()}


def measure_processes(count: str) -> dict[str, float]:
    """Train optimus-mini through the command line with one or two processes, on two cores in all."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        random = np.random.default_rng(0)
        words = np.array([f"w{number}" for number in range(2000)])
        text = "\n".join(" ".join(words[random.integers(0, 2000, size=WORDS)]) for _ in range(6000))
        (place / "text.txt").write_text(text + "\n", encoding="utf-8")
        valid = "\n".join(text.splitlines()[:50])
        (place / "valid.txt").write_text(valid + "\n", encoding="utf-8")
        settings = ["corpus.tokenizer=words", f"training.threads={2 // int(count)}"]
        settings += [f"training.max_steps={STEPS}", "training.log_every=10", "training.tensorboard=no"]
        settings += ["evaluation.samples=1", "evaluation.selection_samples=1", "training.checkpoint_seconds=3600"]
        run = ["-m", "zentence"]
        if int(count) > 1:
            run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count, *run]
        command = [sys.executable, *run, "train", place / "text.txt", "--valid", place / "valid.txt", "--quiet"]
        command += ["--recipe", "optimus-mini", "--out", place / "run"]
        command += [word for setting in settings for word in ("--set", setting)]
        env = {**os.environ, "ZENTENCE_CACHE": str(place / "cache"), "OMP_NUM_THREADS": str(2 // int(count))}
        subprocess.run([str(word) for word in command], env=env, capture_output=True, check=True)
        lines = (place / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [event for event in map(json.loads, lines) if event["event"] == "step"]
    first = next(event for event in steps if event["tick"] >= SKIPPED)
    later = [event for event in steps if event["tick"] > first["tick"]]
    return {"tokens_per_second": sum(event["tokens"] for event in later) / (later[-1]["seconds"] - first["seconds"])}


MEASUREMENTS = {
    "code": measure_code,
    "bare": measure_bare,
    "generation": measure_generation,
    "processes": measure_processes,
}


def section() -> Section:
    """Measure and return the table."""
    bare, code = (best("tokens_per_second", "transformers", which) for which in ("bare", "code"))
    found = measure("transformers", "generation")
    one, two = (best("tokens_per_second", "transformers", "processes", count) for count in (1, 2))
    rows = [
        Row("training: bare BERT and GPT-2 of the library", f"{bare:,.0f} tokens/s"),
        Row("training: optimus-mini, with its code", f"{code:,.0f} tokens/s", f"{code / bare:.2f} × bare", "≥ 0.9 ×"),
        Row(f"writing {WRITTEN} tokens from {CODES} codes, no cache", f"{found['without']:,.0f} tokens/s"),
        Row(
            "the same with the cache",
            f"{found['cached']:,.0f} tokens/s",
            f"{found['cached'] / found['without']:.1f} ×",
            "≥ 5 ×",
        ),
        Row("training: one process on two cores", f"{one:,.0f} tokens/s"),
        Row("training: two processes on two cores", f"{two:,.0f} tokens/s", f"{two / one:.2f} × one", "≥ 0.9 ×"),
    ]
    before = (
        f"The recipe optimus-mini (4 layers of 256 each, code 32) on {VOCABULARY:,} sub-words, {SENTENCES} sentences "
        f"of {WORDS + 1} tokens a batch. Bare: the library's two networks side by side, with the same optimiser."
    )
    return Section("Transformers", rows, before)
