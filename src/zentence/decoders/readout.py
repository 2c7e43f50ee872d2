"""log p(word | hidden state): product with the output embedding and softmax in one step.

By hand, because it is where two thirds of the training time goes: torch's own path keeps several [N, V] temporaries,
and its `linear_cross_entropy` was two to three times slower on CPUs in our measurement. Here one [N, V] buffer
becomes the softmax in place and then the gradient in place. Beyond a memory limit rows are taken in chunks, and the
buffer is computed again in the backward pass. Under autocast the buffer and both factors are bfloat16: half the time
on processors that have instructions for it. Sums over chunks, and what is returned, keep the parameters' precision.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

KEPT_ELEMENTS = 1 << 28  # 1 GB of float32: up to here the softmax is kept for the backward pass
CHUNK_ELEMENTS = 1 << 25


def _scores(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return hidden @ weight.t()
    return torch.addmm(bias, hidden, weight.t())


def _softmax_in_place(scores: Tensor, target: Tensor, dtype: torch.dtype) -> Tensor:
    """Turn scores [N, V] into probabilities and return the targets' log-probabilities [N]."""
    at_target = scores.gather(1, target[:, None]).squeeze(1)
    largest = scores.amax(1)
    torch.softmax(scores, 1, out=scores)
    # log Σ exp(scores) = largest score − log(its probability); that probability is ≥ 1/V, so nothing underflows
    return at_target.to(dtype) - largest.to(dtype) + scores.amax(1).to(dtype).log()


def _rows(count: int, vocabulary: int) -> int:
    return max(1, min(count, CHUNK_ELEMENTS // vocabulary))


class _WordLogProb(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, buffer: torch.dtype
    ) -> Tensor:
        N, V = hidden.shape[0], weight.shape[0]
        ctx.dtype = hidden.dtype
        hidden, weight, bias = hidden.to(buffer), weight.to(buffer), None if bias is None else bias.to(buffer)
        ctx.save_for_backward(hidden, weight, bias, target)
        if any(ctx.needs_input_grad) and N * V <= KEPT_ELEMENTS:
            ctx.kept = _scores(hidden, weight, bias)
            return _softmax_in_place(ctx.kept, target, ctx.dtype)
        ctx.kept = None
        rows = _rows(N, V)
        result = hidden.new_empty(N, dtype=ctx.dtype)
        for first in range(0, N, rows):
            part = slice(first, first + rows)
            result[part] = _softmax_in_place(_scores(hidden[part], weight, bias), target[part], ctx.dtype)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None, None, None]:
        hidden, weight, bias, target = ctx.saved_tensors
        kept, ctx.kept = ctx.kept, None
        N, V = hidden.shape[0], weight.shape[0]
        rows = N if kept is not None else _rows(N, V)
        gradient = gradient.to(hidden.dtype)
        d_hidden, d_weight, d_bias = torch.empty_like(hidden), None, None
        for first in range(0, N, rows):
            part = slice(first, first + rows)
            if kept is not None:
                scores = kept  # consumed: a second backward pass over the same graph computes it anew
            else:
                scores = _scores(hidden[part], weight, bias)
                torch.softmax(scores, 1, out=scores)
            scores.mul_(-gradient[part, None])
            scores.scatter_add_(1, target[part, None], gradient[part, None])
            torch.mm(scores, weight, out=d_hidden[part])
            if ctx.needs_input_grad[1]:
                added = (scores.t() @ hidden[part]).to(ctx.dtype)
                d_weight = added if d_weight is None else d_weight.add_(added)
            if ctx.needs_input_grad[2]:
                added = scores.sum(0, dtype=ctx.dtype)
                d_bias = added if d_bias is None else d_bias.add_(added)
        return d_hidden.to(ctx.dtype), d_weight, d_bias, None, None


def word_log_prob(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    """Return log softmax(hidden Wᵀ + b)[target] for hidden [N, H], weight [V, H], target [N], as [N]."""
    device = hidden.device.type
    buffer = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    hidden = hidden.to(weight.dtype)
    with torch.autocast(device, enabled=False):
        result: Tensor = _WordLogProb.apply(hidden, weight, bias, target, buffer)  # type: ignore[no-untyped-call]
    return result
