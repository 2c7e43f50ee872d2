"""A batch in parts gives the update of the whole batch, where the objective allows it."""

from typing import Any

import pytest
import torch

from zentence.build import build_objective, complete
from zentence.errors import ZentenceError
from zentence.noise import Noise
from zentence.parts import Part
from zentence.settings import OptimizerSettings, StageSettings, load_settings
from zentence.testing import random_batch, tiny_model
from zentence.training.accumulation import parts_of
from zentence.training.optimizers import build_optimizer
from zentence.training.trainable import LatentTrainable
from zentence.training.updates import UPDATES

SETTINGS = OptimizerSettings(name="sgd", learning_rate=0.1, clip=0.5, l2={"decoder": 0.01})
FREE = {"name": "free_bits", "on": "per_dimension", "target_per_dimension": 0.2}
CASES: dict[str, tuple[dict[str, Any], list[str], dict[str, Any]]] = {
    "elbo": ({"name": "elbo", "rate_rule": {"name": "plain", "weight": 0.7}}, [], {}),
    "free bits a sentence": ({"name": "elbo", "rate_rule": FREE}, [], {}),
    "iwae": ({"name": "iwae", "num_codes": 3}, [], {}),
    "mim, mixture": ({"name": "mim"}, ["prior.name=mixture", "prior.components=3"], {}),
    "autoencoder, averaged codes": ({"name": "autoencoder"}, ["averaged_codes=2"], {}),
    "aggressive": ({"name": "elbo"}, [], {"name": "aggressive", "max_inner": 4, "judge_every": 2}),
}


def outcome(name: str, accumulate: int) -> tuple[Any, ...]:
    objective, overrides, update = CASES[name]
    model = tiny_model(overrides, spread=0.5)
    stage = StageSettings(objective=Part.model_validate(objective))
    trainable = LatentTrainable(model, build_objective(stage, 1.0, 1), lambda _step: 0.3, 0.2).train()
    chosen = UPDATES[update.get("name", "joint")]
    options = chosen.Options(**{key: value for key, value in update.items() if key != "name"})

    def batch(seed: int) -> tuple[Any, Noise]:
        made = random_batch(range(2, 9), seed=seed)._replace(weight=0.8)
        return made, Noise(seed, made.index)

    rule = chosen(options, trainable, build_optimizer(model, SETTINGS), SETTINGS, lambda n: batch(100 + n))
    rule.accumulate = accumulate
    found = [rule(*batch(step)[:1], step, batch(step)[1]) for step in range(3)]
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    losses = torch.stack([loss for _, loss in found])
    values = {key: torch.cat([terms.values[key] for terms, _ in found]) for key in found[0][0].values}
    return weights, losses, values, found[-1][0].scalars


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("accumulate", [2, 3, 50])
def test_parts_add_up_to_the_whole(name: str, accumulate: int) -> None:
    """50 parts of 7 sentences: one sentence each."""
    whole, parts = outcome(name, 1), outcome(name, accumulate)
    assert torch.allclose(parts[0], whole[0], atol=1e-12) and torch.allclose(parts[1], whole[1], atol=1e-10)
    for key, values in whole[2].items():
        assert torch.allclose(parts[2][key], values, atol=1e-10)
    assert parts[3] == pytest.approx(whole[3], abs=1e-10)


def test_parts_are_all_sentences_once() -> None:
    batch = random_batch(range(2, 9))
    parts = [part for part, _ in parts_of(batch, Noise(0, batch.index), 3)]
    assert [part.size for part in parts] == [3, 2, 2] and {part.global_size for part in parts} == {7}
    assert torch.cat([part.index for part in parts]).tolist() == batch.index.tolist()
    for part, noise in parts_of(batch, Noise(5, batch.index), 3):
        assert torch.equal(noise.index, part.index) and noise.key == 5


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (["stages.0.objective.rate_rule.mean=batch"], "free bits on the batch mean"),
        (["stages.0.objective.rate_rule={name='soft_free_bits', target=3.0}"], "soft free bits"),
        (["stages.0.objective.rate_rule={name='minimum_rate', target=3.0}"], "a minimum rate"),
        (["stages.0.objective={name='info_vae'}"], "MMD"),
    ],
)
def test_what_looks_at_the_whole_batch_is_refused_in_one_line(changes: list[str], what: str) -> None:
    changes = ["stages.0.objective={name='elbo', rate_rule={name='free_bits', total_target=4.0}}", *changes]
    complete(load_settings("vae", changes))
    with pytest.raises(ZentenceError, match=f"{what} of a batch in parts differs") as caught:
        complete(load_settings("vae", [*changes, "training.accumulate=4"]))
    assert "\n" not in str(caught.value)
