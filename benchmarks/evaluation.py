"""Evaluation: chosen numbers of codes against fixed ones on a trained model, and information over many sentences.

`ZENTENCE_BENCH_MODEL` names a trained model's directory and `ZENTENCE_BENCH_SPLIT` a text; without them the rows on
chosen numbers of codes are left out: an untrained model has no hard sentences.
"""

import os
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.harness import Row, Section, measure
from benchmarks.shapes import CODE
from zentence.corpora.prepare import open_split
from zentence.distributions import DiagonalGaussian
from zentence.evaluation.figures import compute_figures
from zentence.evaluation.information import mutual_information, neighbour_entropy
from zentence.evaluation.policy import SamplePolicy
from zentence.latent.space import LatentSpace
from zentence.machine import prepare_process
from zentence.noise import Noise

SENTENCES, SEEDS, LONG = 300, 4, 5000
FEW, MANY = 1000, 10_000


def measure_codes(samples: str) -> dict[str, float]:
    """Processor seconds of one evaluation, the mean bound, and the mean spread of a sentence's bound over seeds."""
    space = LatentSpace.load(os.environ["ZENTENCE_BENCH_MODEL"])
    store = open_split(os.environ["ZENTENCE_BENCH_SPLIT"], space.vocabulary, space.settings.corpus)
    policy = SamplePolicy(None if samples == "auto" else int(samples))
    seeds, started = (SEEDS if int(policy.samples or 0) < LONG else 1), time.process_time()
    found = [compute_figures(space.model, store, policy=policy, seed=seed, limit=SENTENCES) for seed in range(seeds)]
    values = np.stack([figures.values["iw_nll"] for figures in found])
    spread = float(values.std(0, ddof=1).mean()) if seeds > 1 else 0.0
    return {"seconds": (time.process_time() - started) / seeds, "bound": float(values.mean()), "spread": spread}


def measure_information(count: str) -> dict[str, float]:
    """Mutual information and entropy of codes of `count` sentences: seconds, and anonymous memory after them."""
    prepare_process()
    M = int(count)
    generator = torch.Generator().manual_seed(0)
    q = DiagonalGaussian(torch.randn(M, CODE, generator=generator), torch.full((M, CODE), -0.5))
    z, log_q = q.rsample_and_log_prob(1, Noise(1, torch.arange(M)))
    started = time.perf_counter()
    mutual_information(q, z[0], log_q[0])
    information = time.perf_counter() - started
    started = time.perf_counter()
    neighbour_entropy(z[0])
    entropy = time.perf_counter() - started
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines())
    memory = float(lines["VmHWM"].split()[0]) / 1024.0
    return {"information": information, "entropy": entropy, "peak_mb": memory}


MEASUREMENTS = {"codes": measure_codes, "information": measure_information}


def _codes_rows() -> list[Row]:
    chosen, fixed, long = (measure("evaluation", "codes", samples) for samples in ("auto", 500, LONG))
    same = (chosen["spread"] / fixed["spread"]) ** 2  # cost at the same spread, as the spread falls with √K
    return [
        Row(
            f"chosen numbers of codes, {SENTENCES} sentences",
            f"{chosen['seconds']:.0f} s, {chosen['bound']:.3f} nats, spread {chosen['spread']:.3f}",
            f"{chosen['seconds'] / fixed['seconds'] * max(1.0, same):.2f} × K = 500 at the same spread",
            "≤ 0.25 ×",
        ),
        Row("K = 500", f"{fixed['seconds']:.0f} s, {fixed['bound']:.3f} nats, spread {fixed['spread']:.3f}"),
        Row(
            f"K = {LONG:,}",
            f"{long['seconds']:.0f} s, {long['bound']:.3f} nats",
            f"chosen − long {chosen['bound'] - long['bound']:+.3f} nats",
        ),
    ]


def section() -> Section:
    """Measure and return the table."""
    few, many = (measure("evaluation", "information", count) for count in (FEW, MANY))
    rows = [
        Row(f"mutual information over {MANY:,} sentences", f"{many['information']:.1f} s"),
        Row(f"entropy of {MANY:,} codes", f"{many['entropy']:.1f} s"),
        Row(
            f"peak memory, {MANY:,} against {FEW:,} sentences",
            f"{many['peak_mb']:.0f} MB against {few['peak_mb']:.0f} MB",
            f"{many['peak_mb'] / few['peak_mb']:.2f} ×",
            "flat",
        ),
    ]
    if {"ZENTENCE_BENCH_MODEL", "ZENTENCE_BENCH_SPLIT"} <= set(os.environ):
        rows = _codes_rows() + rows
    before = "Processor time; the spread is the standard deviation of a sentence's bound over seeds, their mean, nats."
    return Section("Evaluation", rows, before)
