"""What is trained is a setting: all, the new maps, the last layers; each part at its own learning rate."""

from typing import Any

import pytest
import torch

from zentence.build import build_model, build_objective, complete
from zentence.errors import ZentenceError
from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.settings import OptimizerSettings, StageSettings, load_settings, override, settings_from
from zentence.testing import random_batch, tiny_model
from zentence.training.optimizers import build_optimizer, choose_trained, set_learning_rate, trained_parameters
from zentence.training.trainable import LatentTrainable
from zentence.training.updates import Joint

transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra 'transformers')")

SMALL = {"name": "transformer", "layers": 3, "hidden_size": 16, "heads": 2, "positions": 24, "dropout": 0.0}


def model_of() -> LatentLM:
    content = {"encoder": SMALL, "posterior": {"name": "gaussian", "size": 2, "bias": False}, "decoder": SMALL}
    return build_model(complete(settings_from(content)), 11).double()


def update(model: LatentLM, **options: Any) -> tuple[dict[str, torch.Tensor], torch.optim.Optimizer]:
    """Take one step; return how far each parameter moved, and the optimiser."""
    settings = OptimizerSettings(**{"name": "sgd", "learning_rate": 0.1, "clip": None, **options})
    choose_trained(model, settings)
    optimizer = build_optimizer(model, settings)
    set_learning_rate(optimizer, settings.learning_rate)
    trainable = LatentTrainable(model, build_objective(StageSettings(), 1.0, 1), lambda _step: 0.0)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    batch = random_batch([3, 5, 4])
    rule = Joint(Joint.Options(), trainable, optimizer, settings, lambda _n: (batch, Noise(0, batch.index)))
    rule(batch, 0, Noise(0, batch.index))
    return {name: p.detach() - before[name] for name, p in model.named_parameters()}, optimizer


def is_map(name: str) -> bool:
    return name.startswith(("posterior.", "prior.", "encoder.pooler.", "decoder.injection."))


@pytest.mark.parametrize(("layers", "wanted"), [(0, ()), (1, ("2",)), (2, ("1", "2"))])
def test_new_maps_and_last_layers_alone_move(layers: int, wanted: tuple[str, ...]) -> None:
    model = model_of()
    ends = tuple(
        f"{stem}.{number}." for number in wanted for stem in ("encoder.network.encoder.layer", ".transformer.h")
    )
    moved, optimizer = update(model, name="adam", trained="new_maps", last_layers=layers)
    for name, parameter in model.named_parameters():
        chosen = is_map(name) or any(end in name for end in ends)
        assert bool(moved[name].abs().max() > 0) == chosen, name
        assert (parameter.grad is not None) == chosen, name
        assert (parameter in optimizer.state) == chosen, name
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert trained == {id(p) for p in trained_parameters(model)}


def test_a_later_choice_brings_everything_back_but_what_never_asked_for_gradients() -> None:
    model = model_of()
    silent = model.encoder.pooler.bias.requires_grad_(False)
    update(model, trained="new_maps")
    moved, _ = update(model)
    assert not silent.requires_grad and bool(moved["encoder.network.encoder.layer.0.output.dense.weight"].any())
    assert all(p.requires_grad for p in model.parameters() if p is not silent)


def test_learning_rates_are_factors_by_part() -> None:
    plain, _ = update(model_of())
    factors = {"encoder": 0.5, "decoder": 2.0, "new_maps": 3.0, "posterior": 0.25}
    moved, optimizer = update(model_of(), learning_rates=factors)
    for name, step in moved.items():
        part = name.partition(".")[0]
        factor = factors["posterior"] if part == "posterior" else factors["new_maps"] if is_map(name) else factors[part]
        assert torch.allclose(step, factor * plain[name], atol=1e-12), name
    assert sorted(group["lr"] for group in optimizer.param_groups) == pytest.approx([0.025, 0.05, 0.2, 0.3])


def test_a_rate_of_zero_is_no_training_at_all() -> None:
    model = model_of()
    moved, optimizer = update(model, name="adamw", weight_decay=0.1, learning_rates={"encoder": 0.0, "new_maps": 1.0})
    assert not moved["encoder.network.embeddings.word_embeddings.weight"].any()
    assert bool(moved["encoder.pooler.weight"].any())
    assert model.encoder.embedding.weight not in optimizer.state and model.encoder.embedding.weight.grad is None


def test_without_a_choice_there_is_one_group_in_the_models_order() -> None:
    model = tiny_model()
    optimizer = build_optimizer(model, OptimizerSettings())
    (group,) = optimizer.param_groups
    assert [id(p) for p in group["params"]] == [id(p) for p in model.parameters()] and group["factor"] == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("optimizer.trained=new_maps", "encoder 'recurrent' has no maps apart from its network"),
        ("optimizer.learning_rates.decodr=0.1", "unknown part 'decodr'"),
        ("optimizer.last_layers=2", "last_layers goes with trained = 'new_maps'"),
    ],
)
def test_impossible_choices_are_refused_in_one_line(change: str, message: str) -> None:
    with pytest.raises(ZentenceError, match=message) as caught:
        complete(load_settings("default", [change]))
    assert "\n" not in str(caught.value)


def test_nothing_left_to_train_is_refused() -> None:
    content: dict[str, Any] = {"encoder": {"name": "none"}, "decoder": SMALL}
    content |= {"stages": [{"objective": {"name": "likelihood"}}], "optimizer": {"trained": "new_maps"}}
    settings = complete(settings_from(override(content, [])))
    with pytest.raises(ZentenceError, match="nothing is left to train"):
        choose_trained(build_model(settings, 11), settings.optimizer)
