"""Aggressive updates: who moves when, when the inner steps end, when the regime ends, and what a restart keeps."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from zentence.build import build_objective
from zentence.noise import Noise
from zentence.settings import OptimizerSettings
from zentence.testing import random_batch, tiny_model, tiny_settings
from zentence.training.optimizers import build_optimizer, split_parameters
from zentence.training.trainable import LatentTrainable
from zentence.training.updates import Aggressive, Joint
from zentence.types import Batch, Terms

SETTINGS = OptimizerSettings(name="adamw", learning_rate=0.01, weight_decay=0.1, l2={"decoder": 0.1, "encoder": 0.1})
BATCH = random_batch([3, 5, 2, 4])


class Recording(LatentTrainable):
    """Remembers which batches were seen, with the parameters before each."""

    def __init__(self, overrides: Sequence[str] = ()) -> None:
        settings = tiny_settings(overrides)
        objective = build_objective(settings.stages[0], 1.0, 1)
        super().__init__(tiny_model(overrides, spread=0.3), objective, lambda step: 0.0)
        self.seen: list[Batch] = []
        self.before: list[dict[str, Tensor]] = []
        self.updates = 0

    def parameters_now(self) -> dict[str, Tensor]:
        return {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def forward(self, batch: Batch, step: int, noise: Noise) -> Terms:
        self.seen.append(batch)
        self.before.append(self.parameters_now())
        return super().forward(batch, step, noise)

    def after_update(self, terms: Terms) -> None:
        self.updates += 1
        super().after_update(terms)


def fresh(number: int) -> tuple[Batch, Noise]:
    batch = random_batch([3, 4], seed=100 + number)
    return batch, Noise(number, batch.index)


def aggressive(trainable: LatentTrainable, **options: Any) -> Aggressive:
    optimizer = build_optimizer(trainable.model, SETTINGS)
    return Aggressive(Aggressive.Options(**options), trainable, optimizer, SETTINGS, fresh)


def changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    return {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}


MIXTURE = ["prior.name=mixture", "prior.components=3"]


def test_inner_steps_move_encoder_and_posterior_and_the_outer_step_the_rest() -> None:
    trainable = Recording(MIXTURE)
    rule = aggressive(trainable, max_inner=3, judge_every=10)
    terms, _ = rule(BATCH, 0, Noise(0, BATCH.index))
    trainable.before.append(trainable.parameters_now())
    moved = [changed(trainable.before[i], trainable.before[i + 1]) for i in range(4)]
    assert moved == [{"encoder", "posterior"}] * 3 + [{"decoder", "prior"}]
    assert all(torch.equal(trainable.seen[i].source.ids, fresh(i)[0].source.ids) for i in range(3))
    assert trainable.seen[3] is BATCH
    assert terms.scalars["inner_steps"] == 3.0 and rule.used == 3 and trainable.updates == 1
    rule(BATCH, 1, Noise(1, BATCH.index))
    assert torch.equal(trainable.seen[4].source.ids, fresh(3)[0].source.ids)


def test_a_shared_embedding_belongs_to_the_decoder() -> None:
    model = tiny_model(["encoder.embedding=decoder", "decoder.tied=true"])
    names = {id(p): name for name, p in model.named_parameters()}
    inference, generation = ([names[id(p)] for p in group] for group in split_parameters(model))
    assert not any("embedding" in name for name in inference)
    assert sum("embedding" in name for name in generation) == 1
    assert sorted(inference + generation) == sorted(names.values())


class Scripted:
    """A trainable whose loss follows a script, in nats per token of batches with 9 tokens in 2 sentences."""

    def __init__(self, losses: Sequence[float]) -> None:
        self.model = tiny_model()
        self.losses = iter(losses)

    def __call__(self, batch: Batch, step: int, noise: Noise) -> Terms:
        touched = sum(p.sum() for p in self.model.parameters())
        return Terms(touched * 0.0 + next(self.losses) * int(batch.target.lengths.sum()) / batch.size, {})

    def after_update(self, terms: Terms) -> None:
        pass


@pytest.mark.parametrize(
    ("losses", "steps"),
    [
        ([5.0, 4.0, 3.0, 3.0, 1.0, 9.0, 0.0], 6),  # windows 9, 6, 10: the third is not below the second
        ([5.0, 4.0, 4.0, 5.0, 0.0], 4),  # as high as before: it has stopped falling
        ([9.0 - i for i in range(8)], 7),  # always falling: the limit
    ],
)
def test_inner_steps_end_when_the_loss_stops_falling(losses: list[float], steps: int) -> None:
    trainable = Scripted(losses)
    rule = aggressive(trainable, max_inner=7, judge_every=2)  # type: ignore[arg-type]
    terms, _ = rule(BATCH, 0, Noise(0, BATCH.index))
    assert terms.scalars["inner_steps"] == steps and rule.used == steps


def test_regime_ends_for_good_when_the_information_stops_rising() -> None:
    trainable = Recording()
    rule = aggressive(trainable, max_inner=2)
    for value in (0.1, 0.4, 0.5):
        rule.after_validation({"mutual_information": value})
        assert rule.aggressive and rule.wants == {"mutual_information"}
    rule.after_validation({"mutual_information": 0.5})
    assert not rule.aggressive and rule.wants == frozenset()
    rule.after_validation({})
    before = trainable.parameters_now()
    terms, _ = rule(BATCH, 0, Noise(0, BATCH.index))
    assert changed(before, trainable.parameters_now()) == {"encoder", "posterior", "decoder"}
    assert terms.scalars["inner_steps"] == 0.0 and len(trainable.seen) == 1


def test_after_the_regime_it_is_the_joint_rule() -> None:
    one, other = Recording(), Recording()
    rule = aggressive(one)
    rule.restore({"aggressive": False, "best": 0.5, "used": 8})
    joint = Joint(Joint.Options(), other, build_optimizer(other.model, SETTINGS), SETTINGS, fresh)
    for made in (rule, joint):
        made(BATCH, 0, Noise(0, BATCH.index))
    after = other.parameters_now()
    assert all(torch.equal(value, after[name]) for name, value in one.parameters_now().items())


def test_state_is_plain_json_and_restores_the_rule() -> None:
    first = aggressive(Recording(), max_inner=2)
    first(BATCH, 0, Noise(0, BATCH.index))
    first.after_validation({"mutual_information": 0.25})
    second = aggressive(Recording(), max_inner=2)
    second.restore(json.loads(json.dumps(first.state())))
    assert second.state() == first.state() == {"aggressive": True, "best": 0.25, "used": 2}
