"""log p(word | hidden state): product with the output embedding and softmax in one step.

By hand, because it is where two thirds of the training time goes: torch's own path keeps several [N, V] temporaries,
and its `linear_cross_entropy` was two to three times slower on CPUs in our measurement. Here one [N, V] buffer
becomes the softmax in place and then the gradient in place. Beyond a memory limit rows are taken in chunks, and the
buffer is computed again in the backward pass. Under autocast the buffer and both factors are bfloat16: half the time
on processors that have instructions for it. Sums over chunks, and what is returned, keep the parameters' precision.

In training the normaliser may be estimated from a sample of the vocabulary, drawn anew for each batch. Word i takes
part with probability π_i and then counts 1/π_i times (Horvitz and Thompson), so that the normaliser, not its logarithm,
is without bias. π falls as frequencies do by Zipf's law when words are numbered by falling frequency, as vocabularies
here number them; another order costs variance, not correctness. The batch's own targets always take part.
"""

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from zentence.machine import product

KEPT_ELEMENTS = 1 << 28  # 1 GB of float32: up to here the softmax is kept for the backward pass
CHUNK_ELEMENTS = 1 << 25
CPU_ROWS = 256  # at a time where no gradient is wanted: scores of more leave the caches, and take a quarter longer
LEAST = 1e-30  # smaller probabilities may have lost digits, or all of themselves
TRAINING_WORDS = (
    "Estimate the softmax in training from so many words, drawn anew for each batch; none: all words. Figures are "
    "always of all words."
)


def _softmax_in_place(scores: Tensor, target: Tensor, dtype: torch.dtype) -> Tensor:
    """Turn scores [N, V] into probabilities and return the log-probabilities of the targets [N]; −∞ where too small."""
    torch.softmax(scores, 1, out=scores)
    chosen = scores.gather(1, target[:, None]).squeeze(1).to(dtype)
    return chosen.log().masked_fill_(chosen < LEAST, -math.inf)


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
            ctx.kept = product(hidden, weight, bias)
            result = _softmax_in_place(ctx.kept, target, ctx.dtype)
        else:
            ctx.kept = None
            rows = min(CPU_ROWS, _rows(N, V)) if hidden.device.type == "cpu" else _rows(N, V)
            result = hidden.new_empty(N, dtype=ctx.dtype)
            for first in range(0, N, rows):
                part = slice(first, first + rows)
                result[part] = _softmax_in_place(product(hidden[part], weight, bias), target[part], ctx.dtype)
        if bool((tiny := result == -math.inf).any()):  # rare: these rows once more, without leaving the logarithm
            scores = product(hidden[tiny], weight, bias).to(ctx.dtype)
            result[tiny] = scores.gather(1, target[tiny, None]).squeeze(1) - scores.logsumexp(1)
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
        numbers = torch.arange(rows, device=hidden.device)
        for first in range(0, N, rows):
            part = slice(first, first + rows)
            if kept is not None:
                scores = kept  # consumed: a second backward pass over the same graph computes it anew
            else:
                scores = product(hidden[part], weight, bias)
                torch.softmax(scores, 1, out=scores)
            scores.mul_(-gradient[part, None])
            scores.index_put_((numbers[: len(scores)], target[part]), gradient[part], accumulate=True)
            d_hidden[part] = product(scores, weight.t())
            if ctx.needs_input_grad[1]:
                added = product(scores.t(), hidden[part].t()).to(ctx.dtype)
                d_weight = added if d_weight is None else d_weight.add_(added)
            if ctx.needs_input_grad[2]:
                added = scores.sum(0, dtype=ctx.dtype)
                d_bias = added if d_bias is None else d_bias.add_(added)
        return d_hidden.to(ctx.dtype), d_weight, d_bias, None, None


@lru_cache(maxsize=8)
def _inclusion(vocabulary: int, words: int) -> Tensor:
    """Return π_i = min(1, c / i) [V] for ranks i = 1 … V, with c such that their sum is `words`."""
    rank = torch.arange(1, vocabulary + 1, dtype=torch.float64)
    low, high = 0.0, float(vocabulary)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if float((middle / rank).clamp(max=1.0).sum()) < words else (low, middle)
    return (high / rank).clamp(max=1.0)


def sample_words(target: Tensor, vocabulary: int, words: int) -> tuple[Tensor, Tensor]:
    """Return `words` word ids [K], in order and with all targets, and log π of each [K].

    Systematic sampling: one random start, then equal steps along the sum of π, so that neighbours in rank share out. K
    is always the same, so that kernels and memory are met again, unless the targets alone nearly fill it.
    """
    inclusion = _inclusion(vocabulary, words).to(target.device, copy=True)
    inclusion[target] = 1.0
    certain = inclusion == 1.0
    reached = inclusion.masked_fill(certain, 0.0).cumsum(0)
    rest = float(reached[-1])
    free = max(1, min(max(words - int(certain.sum()), words // 4), int(rest + 1e-6)))
    share = free / rest if rest > 0.0 else 1.0  # at most 1: targets only took places
    steps = (reached * share + torch.rand((), dtype=torch.float64).item()).floor()
    chosen = certain | (steps.diff(prepend=steps.new_zeros(1)) > 0)
    ids = chosen.nonzero().squeeze(1)
    return ids, torch.where(certain, inclusion, inclusion * share)[ids].log()


def word_log_prob(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, words: int | None = None
) -> Tensor:
    """Return log softmax(hidden Wᵀ + b)[target] for hidden [N, H], weight [V, H], target [N], as [N].

    With `words`, estimate the normaliser from that many words.
    """
    if words is not None and words < weight.shape[0]:
        ids, log_inclusion = sample_words(target, weight.shape[0], words)
        offset = -log_inclusion.to(weight.dtype)
        bias = offset if bias is None else bias[ids] + offset
        weight, target = weight[ids], torch.searchsorted(ids, target)
    device = hidden.device.type
    buffer = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    hidden = hidden.to(weight.dtype)
    with torch.autocast(device, enabled=False):
        result: Tensor = _WordLogProb.apply(hidden, weight, bias, target, buffer)  # type: ignore[no-untyped-call]
    return result
