"""What several codes, flows and priors cost beside a plain step."""

from typing import Any

import torch

from benchmarks.harness import Row, Section, measure
from benchmarks.shapes import VOCABULARY, batches, ptb_settings, seconds
from zentence.build import build_model, build_objective, complete
from zentence.machine import prepare_process
from zentence.noise import Noise
from zentence.parts import plain
from zentence.settings import settings_from
from zentence.training.trainable import LatentTrainable

SENTENCES = 64
PRIORS = {
    "mixture": {"name": "mixture", "components": 100},
    "vamp": {"name": "vamp", "components": 100, "length_mean": 21.0, "length_spread": 10.0},
}


def _step_seconds(posterior: str = "gaussian", prior: str = "standard_normal", codes: int = 1) -> float:
    """Return the time of forward and backward of one batch."""
    content: dict[str, Any] = plain(ptb_settings())
    if posterior != "gaussian":
        content["posterior"] = {"name": posterior, "size": content["posterior"]["size"]}
    content["prior"] = PRIORS.get(prior, {"name": prior})
    content["stages"] = [{"objective": {"name": "elbo", "num_codes": codes}}]
    settings = complete(settings_from(content))
    model = build_model(settings, VOCABULARY).train()
    trainable = LatentTrainable(model, build_objective(settings.stages[0], 100.0, 1000), lambda _step: 0.0)
    (batch,) = batches(SENTENCES, 1)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        trainable(batch, 0, Noise(0, batch.index)).loss.backward()

    return seconds(step, 3.0)


def measure_parts() -> dict[str, float]:
    """Time a step with each part in turn, three times, in one process; the best of each counts."""
    prepare_process()
    cases = {
        "plain": {},
        "iaf": {"posterior": "iaf"},
        "planar": {"posterior": "planar"},
        "mixture": {"prior": "mixture"},
        "vamp": {"prior": "vamp"},
    }
    found = dict.fromkeys(cases, float("inf"))
    for _ in range(3):
        for name, options in cases.items():
            torch.manual_seed(0)
            found[name] = min(found[name], _step_seconds(**options))
    return found


def measure_codes() -> dict[str, float]:
    """Time a step with 1, 5 and 10 codes a sentence, in one process."""
    prepare_process()
    found = dict.fromkeys(("1", "5", "10"), float("inf"))
    for _ in range(2):
        for codes in found:
            found[codes] = min(found[codes], _step_seconds(codes=int(codes)))
    return found


MEASUREMENTS = {"parts": measure_parts, "codes": measure_codes}


def section() -> Section:
    """Measure and return the table."""
    parts, codes = measure("parts", "parts"), measure("parts", "codes")
    rows = [Row(f"a step of {SENTENCES} sentences, one code", f"{1e3 * parts['plain']:.0f} ms")]
    for name, goal in (("iaf", "≤ +15 %"), ("planar", "≤ +15 %"), ("mixture", ""), ("vamp", "≤ +60 %")):
        label = {"mixture": "mixture prior, 100 Gaussians", "vamp": "VampPrior, 100 pseudo-inputs"}.get(name, name)
        rows.append(Row(label, f"{1e3 * parts[name]:.0f} ms", f"{parts[name] / parts['plain'] - 1.0:+.0%}", goal))
    rows += [
        Row(
            f"{count} codes a sentence",
            f"{1e3 * codes[count]:.0f} ms",
            f"{codes[count] / (int(count) * codes['1']):.2f} × {count} separate passes",
            "< 1 ×",
        )
        for count in ("5", "10")
    ]
    return Section("Parts", rows, "Forward and backward of one step, the objective's ELBO.")
