"""Training, importance weighting and decoding against plain PyTorch and the machine's best matrix product."""

import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.harness import Row, Section, best, measure
from benchmarks.plain import plain_step
from benchmarks.shapes import (
    CODE,
    DECODED_FLOP,
    TRAINED_FLOP,
    VOCABULARY,
    batches,
    ceiling,
    ptb_model,
    ptb_settings,
    seconds,
)
from zentence.build import build_objective
from zentence.decoders.generation import Generation, generate
from zentence.evaluation.likelihood import bounds
from zentence.machine import prepare_process
from zentence.noise import Noise
from zentence.recurrence import all_states
from zentence.settings import Settings
from zentence.training.optimizers import build_optimizer
from zentence.training.trainable import LatentTrainable
from zentence.training.updates import Joint

FEW, MANY = 32, 186  # sentences of 22 tokens: the papers' batch, and a budget of about 4,096 tokens
SAMPLED = 2000  # words of the sampled softmax


def _update(trainable: LatentTrainable, settings: Settings) -> Joint:
    optimizer = build_optimizer(trainable.model, settings.optimizer)
    return Joint(Joint.Options(), trainable, optimizer, settings.optimizer, lambda _number: None)  # type: ignore[arg-type,return-value]


def measure_ceiling() -> dict[str, float]:
    """Best matrix product."""
    prepare_process()
    return {"flops": ceiling()}


def measure_plain(sentences: str) -> dict[str, float]:
    """Plain PyTorch, default allocator."""
    step, tokens = plain_step(int(sentences))
    return {"tokens_per_second": tokens / seconds(step)}  # type: ignore[arg-type]


def measure_zentence(sentences: str, training_words: int | None = None) -> dict[str, float]:
    """zentence's own update on the same model and batches."""
    prepare_process()
    settings = ptb_settings()
    model = ptb_model().train()
    model.decoder.options = model.decoder.options.model_copy(update={"training_words": training_words})
    trainable = LatentTrainable(model, build_objective(settings.stages[0], 100.0, 1000), lambda _step: 0.0)
    data = batches(int(sentences), 8)
    update = _update(trainable, settings)
    number = 0

    def step() -> None:
        nonlocal number
        batch = data[number % len(data)]
        update(batch, number, Noise(number, batch.index))
        number += 1

    speed = int(data[0].target.lengths.sum()) / seconds(step)
    return {"tokens_per_second": speed, "flops": speed * TRAINED_FLOP}


def measure_sampled(sentences: str) -> dict[str, float]:
    """The same with the softmax of a sample of the vocabulary."""
    return measure_zentence(sentences, SAMPLED)


def measure_gru(which: str) -> dict[str, float]:
    """States and gradients of paper 1's GRU: torch's own network, or zentence's way through it."""
    prepare_process()
    network, x = nn.GRU(300, 512, batch_first=True), torch.randn(FEW, 22, 300, requires_grad=True)

    def step() -> None:
        network.zero_grad()
        states = all_states(network, x) if which == "zentence" else network(x)[0]
        states.sum().backward()

    return {"seconds": seconds(step)}


def measure_importance(samples: str) -> dict[str, float]:
    """Importance-weighted evaluation."""
    prepare_process()
    model, (batch,) = ptb_model().eval(), batches(8, 1)
    K = int(samples)
    time = seconds(lambda: bounds(model, batch, K, Noise(1, batch.index)), 3.0, 1)
    speed = int(batch.target.lengths.sum()) * K / time
    return {"token_samples_per_second": speed, "flops": speed * DECODED_FLOP}


def measure_decoding(count: str) -> dict[str, float]:
    """Greedy decoding of 20 words: a batch, and one by one."""
    prepare_process()
    model = ptb_model().eval()
    with torch.no_grad():
        model.decoder.output.weight[2] = 0.0  # an untrained model that does not end early
    z = torch.randn(1, int(count), CODE)
    options = Generation(max_words=20)
    together = int(count) / seconds(lambda: generate(model.decoder, z, int(count), options), 3.0)
    alone = 1.0 / seconds(lambda: generate(model.decoder, z[:, :1], 1, options), 3.0)
    return {"batched": together, "one_by_one": alone}


def measure_memory(count: str) -> dict[str, float]:
    """Anonymous memory while training on `count` generated sentences for a few steps."""
    from zentence.corpora.batching import Batches
    from zentence.corpora.prepare import prepare
    from zentence.settings import CorpusSettings

    prepare_process()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ZENTENCE_CACHE"] = str(Path(folder) / "cache")
        path = Path(folder) / "text.txt"
        random = np.random.default_rng(0)
        words = np.array([f"w{i}" for i in range(VOCABULARY - 4)])
        with path.open("w") as file:
            for _ in range(int(count) // 10_000):
                for length in random.integers(3, 12, size=10_000):
                    file.write(" ".join(words[random.integers(0, len(words), size=length)]) + "\n")
        corpus = prepare(CorpusSettings(), [path])
        settings, model = ptb_settings(), ptb_model().train()
        trainable = LatentTrainable(model, build_objective(settings.stages[0], 100.0, 1000), lambda _step: 0.0)
        update = _update(trainable, settings)
        data = Batches(corpus.splits["train"], sentences=32)
        for position in range(0, len(data), max(1, len(data) // 60)):
            batch = data.batch(0, position)
            update(batch, position, Noise(position, batch.index))
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return {"rss_anon_mb": float(lines["RssAnon"].split()[0]) / 1024.0}


def measure_profile(which: str) -> dict[str, float]:
    """Share of a step's time in each kernel, batch 32: plain PyTorch or zentence."""
    if which == "plain":
        step, _ = plain_step(32)
    else:
        prepare_process()
        settings, model, data = ptb_settings(), ptb_model().train(), batches(32, 8)
        objective = build_objective(settings.stages[0], 100.0, 1000)
        update = _update(LatentTrainable(model, objective, lambda _step: 0.0), settings)

        def step() -> None:
            update(data[0], 0, Noise(0, data[0].index))

    for _ in range(3):
        step()  # type: ignore[operator]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(20):
            step()  # type: ignore[operator]
    rows = sorted(profile.key_averages(), key=lambda row: -row.self_cpu_time_total)
    total = sum(row.self_cpu_time_total for row in rows)
    return {row.key.removeprefix("aten::"): row.self_cpu_time_total / total for row in rows[:8]}


MEASUREMENTS = {
    "ceiling": measure_ceiling,
    "plain": measure_plain,
    "zentence": measure_zentence,
    "sampled": measure_sampled,
    "gru": measure_gru,
    "importance": measure_importance,
    "decoding": measure_decoding,
    "memory": measure_memory,
    "profile": measure_profile,
}


def section() -> Section:
    """Measure and return the table."""
    flops = best("flops", "training", "ceiling")
    plain, own = (best("tokens_per_second", "training", which, FEW) for which in ("plain", "zentence"))
    plain_many, many = (best("tokens_per_second", "training", which, MANY) for which in ("plain", "zentence"))
    sampled = best("tokens_per_second", "training", "sampled", FEW)
    gru = {which: measure("training", "gru", which)["seconds"] for which in ("plain", "zentence")}
    importance = best("flops", "training", "importance", 500)
    decoding = measure("training", "decoding", 256)
    small, large = (measure("training", "memory", n)["rss_anon_mb"] for n in (100_000, 2_000_000))
    profiles = {which: measure("training", "profile", which) for which in ("plain", "zentence")}
    share = f"{many * TRAINED_FLOP / flops:.0%} of the matrix product, {many / plain_many:.2f} × plain"
    faster = f"{decoding['batched'] / decoding['one_by_one']:.1f} × one by one"
    rows = [
        Row("best float32 matrix product", f"{flops / 1e9:.0f} GFLOP/s"),
        Row(f"training, batch {FEW}: plain PyTorch", f"{plain:,.0f} tokens/s"),
        Row(f"training, batch {FEW}: zentence", f"{own:,.0f} tokens/s", f"{own / plain:.2f} × plain", "≥ 1.25 ×"),
        Row(
            f"training, batch {FEW}: zentence, softmax of {SAMPLED:,} words",
            f"{sampled:,.0f} tokens/s",
            f"{sampled / own:.2f} × all words",
        ),
        Row(
            f"GRU of 512, batch {FEW}, states and gradients",
            f"{1e3 * gru['zentence']:.0f} ms",
            f"{gru['plain'] / gru['zentence']:.2f} × torch's own",
        ),
        Row(f"training, batch {MANY}: plain PyTorch", f"{plain_many:,.0f} tokens/s"),
        Row(f"training, batch {MANY}: zentence", f"{many:,.0f} tokens/s", share, "≥ 80 %"),
        Row("importance weighting, K = 500", f"{importance / 1e9:.0f} GFLOP/s", f"{importance / flops:.0%}", "≥ 70 %"),
        Row("greedy decoding, 256 codes at once", f"{decoding['batched']:,.0f} sentences/s", faster, "≥ 5 ×"),
        Row(
            "anonymous memory, 2M against 100k sentences",
            f"{large:.0f} MB against {small:.0f} MB",
            f"{large / small:.2f} ×",
            "flat",
        ),
    ]
    before = "Plain PyTorch is `benchmarks/plain.py`: nn.LSTM, materialised scores, the default allocator."
    after = f"""Where a step's time goes at batch {FEW}, by kernel: both share the matrix products and the LSTM kernels
of the library, so what zentence can save is the rest.

| | |
| --- | --- |
{chr(10).join(_shares(which, profile) for which, profile in profiles.items())}"""
    return Section("Training and decoding", rows, before, after)


def _shares(which: str, profile: dict[str, float]) -> str:
    return f"| {which} | {', '.join(f'{name} {share:.0%}' for name, share in profile.items())} |"
