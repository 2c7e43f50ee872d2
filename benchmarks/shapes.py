"""The shape that all speed figures refer to (Penn Treebank), and what it costs."""

import time
from collections.abc import Callable

import numpy as np
import torch

from zentence.build import build_model, complete
from zentence.corpora import collate
from zentence.model import LatentLM
from zentence.settings import Settings, settings_from
from zentence.types import Batch

VOCABULARY, EMBEDDING, HIDDEN, CODE, WORDS = 10_000, 256, 256, 32, 21
ENCODER_MACS = (EMBEDDING + HIDDEN) * 4 * HIDDEN
DECODER_MACS = (EMBEDDING + CODE + HIDDEN) * 4 * HIDDEN + HIDDEN * VOCABULARY
TRAINED_FLOP = 6 * (ENCODER_MACS + DECODER_MACS)  # per token: forward, and twice that backward
DECODED_FLOP = 2 * DECODER_MACS  # per token and sample


def ptb_settings() -> Settings:
    """Return paper 4's model: LSTM 256/256, z 32, untied output, dropout 0.5."""
    content = {
        "encoder": {"name": "recurrent", "embedding_size": EMBEDDING, "hidden_size": HIDDEN},
        "posterior": {"name": "gaussian", "size": CODE, "bias": False},
        "decoder": {
            "name": "recurrent",
            "embedding_size": EMBEDDING,
            "hidden_size": HIDDEN,
            "initial_state": "cell",
            "initial_bias": False,
            "tied": False,
            "output_bias": False,
            "input_dropout": 0.5,
            "output_dropout": 0.5,
        },
        "optimizer": {"name": "sgd", "learning_rate": 0.5, "clip": 5.0},
    }
    return complete(settings_from(content))


def ptb_model() -> LatentLM:
    """Return a new model of that shape."""
    return build_model(ptb_settings(), VOCABULARY)


def batches(sentences: int, count: int, words: int = WORDS) -> list[Batch]:
    """Return batches of random sentences of equal length."""
    random = np.random.default_rng(0)
    return [
        collate(list(random.integers(4, VOCABULARY, size=(sentences, words))), np.arange(sentences))
        for _ in range(count)
    ]


def seconds(work: Callable[[], object], least: float = 4.0, warm_up: int = 2) -> float:
    """Return the median time of one call, over at least `least` seconds and 5 calls."""
    for _ in range(warm_up):
        work()
    times: list[float] = []
    while sum(times) < least or len(times) < 5:
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return float(np.median(times))


def ceiling() -> float:
    """Return the best float32 matrix product that this machine shows, in FLOP/s."""
    best = 0.0
    for n, k, m in ((2048, 2048, 2048), (4096, 1024, 4096), (2816, 256, 10_000), (1024, 4096, 1024)):
        a, b = torch.randn(n, k), torch.randn(k, m)
        out = torch.empty(n, m)
        best = max(best, 2.0 * n * k * m / seconds(lambda a=a, b=b, out=out: torch.mm(a, b, out=out), 1.0))  # type: ignore[misc]
    return best
