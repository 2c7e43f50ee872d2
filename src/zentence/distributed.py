"""Several processes: one group, values summed over it. With one process every function is the identity.

The whole batch is one batch, whatever the number of processes: each holds some of its rows and its share of the loss,
and gradients are summed. So this is torch's collective operations called directly, not a wrapper that averages.
"""

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def start_processes() -> None:
    """Join the group that torchrun started, if it did."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            dist.init_process_group("nccl")
        else:
            dist.init_process_group("gloo")


def end_processes() -> None:
    """Leave the group."""
    if dist.is_initialized():
        dist.destroy_process_group()


def rank() -> int:
    """This process's number."""
    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    """Number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_main() -> bool:
    """Whether this process writes files and speaks."""
    return rank() == 0


def total(value: Tensor) -> Tensor:
    """Return the sum over processes, without gradient."""
    value = value.detach().clone()
    if dist.is_initialized():
        dist.all_reduce(value)
    return value


def total_number(value: float) -> float:
    """Return the sum of a number over processes, in float64."""
    if not dist.is_initialized():
        return value
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    return float(total(torch.tensor(value, dtype=torch.float64, device=device)))


def gather(value: Any) -> list[Any]:
    """Return every process's value (plain Python or NumPy), in the order of the processes."""
    if not dist.is_initialized():
        return [value]
    values: list[Any] = [None] * world()
    dist.all_gather_object(values, value)
    return values


def sum_gradients(parameters: list[nn.Parameter]) -> None:
    """Sum gradients over processes; a process that did not touch a parameter counts as zero.

    A parameter that no process touched keeps no gradient, so that optimisers leave it alone as with one process.
    """
    if not dist.is_initialized():
        return
    device = parameters[0].device
    touched = total(torch.tensor([p.grad is not None for p in parameters], dtype=torch.int32, device=device))
    parameters = [p for p, count in zip(parameters, touched.tolist(), strict=True) if count > 0]
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    flat = torch.cat([p.grad.reshape(-1) for p in parameters if p.grad is not None])
    dist.all_reduce(flat)
    first = 0
    for parameter in parameters:
        assert parameter.grad is not None
        parameter.grad.copy_(flat[first : first + parameter.numel()].view_as(parameter))
        first += parameter.numel()


def barrier() -> None:
    """Wait for all processes."""
    if dist.is_initialized():
        dist.barrier()
