"""What is trained, by which optimiser, and the optimiser's state in checkpoints."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from zentence.errors import ZentenceError
from zentence.settings import OptimizerSettings

_OWN_MAPS = ("posterior", "prior")  # parts that are nothing but maps of the code
_LEFT_OUT = "left_out_of_training"


def trained_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that are trained, each once, in a fixed order."""
    return [p for p in module.parameters() if p.requires_grad]


def split_parameters(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the trained parameters of encoder and posterior, and all others; a shared one is among the others."""
    parts = [part for name in ("decoder", "prior") if isinstance(part := getattr(model, name, None), nn.Module)]
    generative = {id(p) for part in parts for p in part.parameters()}
    parameters = trained_parameters(model)
    inference = [p for p in parameters if id(p) not in generative]
    return inference, [p for p in parameters if id(p) in generative]


def new_maps(model: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the parameters that join a code to networks: posterior, prior, and what encoder and decoder name."""
    for name in _OWN_MAPS:
        if isinstance(part := getattr(model, name, None), nn.Module):
            yield from part.parameters()
    for name in ("encoder", "decoder"):
        for module in getattr(getattr(model, name, None), "new_maps", list)():
            yield from module.parameters()


def choose_trained(model: nn.Module, settings: OptimizerSettings) -> None:
    """Let gradients reach what the settings train, and nothing else; what a former choice left out comes back.

    A parameter that is left out has no gradient and no place in the optimiser. Whatever did not ask for gradients of
    its own accord is left alone.
    """
    for parameter in model.parameters():
        if getattr(parameter, _LEFT_OUT, False):
            parameter.requires_grad_(True)
            setattr(parameter, _LEFT_OUT, False)
    kept = _kept(model, settings)
    factors = _factors(model, settings)
    for parameter in trained_parameters(model):
        if (kept is not None and id(parameter) not in kept) or factors.get(id(parameter), 1.0) == 0.0:
            parameter.requires_grad_(False)
            setattr(parameter, _LEFT_OUT, True)
    if not trained_parameters(model):
        raise ZentenceError("optimizer: nothing is left to train: see trained and learning_rates")


def _kept(model: nn.Module, settings: OptimizerSettings) -> set[int] | None:
    """Return the parameters that `trained` names, by identity; None: all."""
    if settings.trained == "all":
        return None
    kept = {id(parameter) for parameter in new_maps(model)}
    for name in ("encoder", "decoder"):
        part = getattr(model, name, None)
        if settings.last_layers and part is not None:
            kept |= {id(p) for layer in part.last_layers(settings.last_layers) for p in layer.parameters()}
    return kept


def _factors(model: nn.Module, settings: OptimizerSettings) -> dict[int, float]:
    """Return the factor of the learning rate of each parameter that `learning_rates` names, by identity.

    A posterior's or prior's own factor goes before that of the new maps, and that before their part's. A parameter
    that the encoder shares with the decoder belongs to the decoder.
    """
    rates = settings.learning_rates
    found: dict[int, float] = {}
    for name in ("encoder", "decoder", "new_maps", *_OWN_MAPS):  # the later, the stronger
        if name not in rates:
            continue
        part = getattr(model, name, None)
        parameters = new_maps(model) if name == "new_maps" else part.parameters() if part is not None else iter(())
        found |= {id(parameter): rates[name] for parameter in parameters}
    return found


def build_optimizer(model: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
    """Return an optimiser over a model's trained parameters; `l2` is applied by `add_l2`, not by the optimiser.

    Parameters of one learning rate form a group; a group's `factor` is relative to the rate that the loop sets.
    """
    factors = _factors(model, settings)
    by_factor: dict[float, list[nn.Parameter]] = {}
    for parameter in trained_parameters(model):
        by_factor.setdefault(factors.get(id(parameter), 1.0), []).append(parameter)
    groups = [{"params": parameters, "factor": factor} for factor, parameters in by_factor.items()]
    rate = settings.learning_rate
    if settings.name == "sgd":
        return torch.optim.SGD(groups, lr=rate, momentum=settings.momentum, fused=True)
    if settings.name == "adam":
        return torch.optim.Adam(groups, lr=rate, betas=settings.betas, fused=True)
    return torch.optim.AdamW(groups, lr=rate, betas=settings.betas, weight_decay=settings.weight_decay, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every group its share of the learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("factor", 1.0)


def add_l2(model: nn.Module, l2: dict[str, float]) -> None:
    """Add the gradient of ½ c ‖θ‖² for each part with a coefficient c."""
    for part, coefficient in l2.items():
        for parameter in getattr(model, part).parameters():
            if parameter.grad is not None:
                parameter.grad.add_(parameter.detach(), alpha=coefficient)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimiser's state as tensors named `<parameter number>/<name>`; numbers become float64 scalars."""
    tensors = {}
    for number, entries in optimizer.state_dict()["state"].items():
        for name, value in entries.items():
            if value is None:
                continue
            is_tensor = isinstance(value, Tensor)
            tensor = value.detach().cpu() if is_tensor else torch.tensor(float(value), dtype=torch.float64)
            tensors[f"{number}/{name}"] = tensor.contiguous()
    return tensors


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Restore what `optimizer_tensors` returned."""
    state: dict[int, dict[str, Any]] = {}
    for key, tensor in tensors.items():
        number, _, name = key.partition("/")
        if not number.isdigit():
            raise ZentenceError("the checkpoint's optimiser state is damaged")
        state.setdefault(int(number), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
