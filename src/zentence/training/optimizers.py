"""Optimisers and their state in checkpoints."""

from typing import Any

import torch
from torch import Tensor, nn

from zentence.errors import ZentenceError
from zentence.settings import OptimizerSettings


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


def build_optimizer(model: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
    """Return an optimiser over a model's parameters; `l2` is applied by `add_l2`, not by the optimiser."""
    parameters = trained_parameters(model)
    rate = settings.learning_rate
    if settings.name == "sgd":
        return torch.optim.SGD(parameters, lr=rate, momentum=settings.momentum, fused=True)
    if settings.name == "adam":
        return torch.optim.Adam(parameters, lr=rate, betas=settings.betas, fused=True)
    return torch.optim.AdamW(parameters, lr=rate, betas=settings.betas, weight_decay=settings.weight_decay, fused=True)


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
