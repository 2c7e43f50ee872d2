"""States of recurrent networks over whole sentences: torch's own, but for GRUs on a CPU.

Those are by hand, because torch adds to the gradient of the recurrent weights at every word, a pass over all of them.
Here all that does not wait for the word before is computed for all words at once: products with inputs, derivatives of
gates, and each weight's gradient in one matrix product. Under autocast the factors of matrix products are of its type;
states are kept, and gates worked out, in the parameters' own.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from zentence.machine import product

Start = Tensor | tuple[Tensor, Tensor] | None


def all_states(network: nn.RNNBase, x: Tensor, start: Start = None, dropped: float = 0.0) -> Tensor:
    """Return the states [B, T, H] of the last layer of an LSTM or GRU, from states [layers, B, H] or zeros.

    With `dropped`, that share of the recurrent weights is zero in this call (DropConnect, Merity et al. 2018).
    """
    thinned = _thinned(network, dropped)
    if not isinstance(network, nn.GRU) or x.device.type != "cpu":
        states: Tensor = torch.func.functional_call(network, thinned, (x, start))[0]
        return states
    own = next(network.parameters()).dtype
    factor = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else own
    with torch.autocast("cpu", enabled=False):
        for layer in range(network.num_layers):
            first = x.new_zeros(x.shape[0], network.hidden_size) if start is None else start[layer]
            names = (f"{name}_l{layer}" for name in _WEIGHTS)
            weights = (thinned[name] if name in thinned else getattr(network, name) for name in names)
            x = _Gru.apply(x, first.to(own), *weights, factor)  # type: ignore[no-untyped-call]
    return x


def _thinned(network: nn.RNNBase, dropped: float) -> dict[str, Tensor]:
    """Return the recurrent weights by name, a share of them zero and the others larger in proportion."""
    if dropped == 0.0:
        return {}
    found = {}
    for layer in range(network.num_layers):
        name = f"weight_hh_l{layer}"
        weight: Tensor = getattr(network, name)
        found[name] = weight * kept(weight.shape, dropped, weight)
    return found


def kept(shape: Sequence[int], probability: float, like: Tensor) -> Tensor:
    """Return a mask of dropout, 0 or 1/(1 − p): less than half the time that torch's own takes on CPUs."""
    return (torch.rand(shape, device=like.device) >= probability).to(like.dtype).div_(1.0 - probability)


_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class _Gru(torch.autograd.Function):
    """One layer; gates in torch's order: reset, update, new. The reset gate acts on W h + b."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor, factor: torch.dtype
    ) -> Tensor:
        (B, T, _), H = x.shape, h.shape[1]
        ctx.dtypes = x.dtype, h.dtype, factor
        read = x.transpose(0, 1).reshape(T * B, -1).to(factor)
        w_ih, w_hh = w_ih.to(factor), w_hh.to(factor)
        outer = torch.cat((b_ih[: 2 * H] + b_hh[: 2 * H], b_ih[2 * H :]))
        gates = product(read, w_ih).to(h.dtype).add_(outer).view(T, B, 3 * H)
        hs, inner = h.new_empty(T + 1, B, H), h.new_empty(T, B, H)  # inner: what the reset gate multiplies
        hs[0] = h
        for t in range(T):
            gate, moved = gates[t], product(hs[t].to(factor), w_hh)
            gate[:, : 2 * H].add_(moved[:, : 2 * H]).sigmoid_()
            torch.add(b_hh[2 * H :], moved[:, 2 * H :], out=inner[t])
            gate[:, 2 * H :].addcmul_(gate[:, :H], inner[t]).tanh_()
            torch.lerp(gate[:, 2 * H :], hs[t], gate[:, H : 2 * H], out=hs[t + 1])
        ctx.save_for_backward(read, w_ih, w_hh, gates, inner, hs)
        return hs[1:].transpose(0, 1).to(factor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        read, w_ih, w_hh, gates, inner, hs = ctx.saved_tensors
        given, own, factor = ctx.dtypes
        T, B, H = inner.shape
        reset, update, new = gates.view(T, B, 3, H).unbind(2)
        d_new = (1 - update) * (1 - new * new)  # of the new gate's sum with h; of the others:
        shares = torch.stack((d_new * inner * reset * (1 - reset), (hs[:-1] - new) * update * (1 - update)), 2)
        shares = torch.cat((shares, (d_new * reset)[:, :, None]), 2)
        d_inner, d_hs = torch.empty_like(shares), torch.empty_like(inner)
        d_out = gradient.transpose(0, 1).to(own).contiguous()
        d_h, w_hh_t = torch.zeros_like(hs[0]), w_hh.t()
        for t in reversed(range(T)):
            torch.add(d_h, d_out[t], out=d_hs[t])
            torch.mul(shares[t], d_hs[t, :, None], out=d_inner[t])
            d_h = product(d_inner[t].view(B, 3 * H).to(factor), w_hh_t).to(own).addcmul_(d_hs[t], update[t])
        inside = d_inner.view(T * B, 3 * H)
        outside = torch.cat((d_inner[:, :, :2], (d_hs * d_new)[:, :, None]), 2).view(T * B, 3 * H)
        d_x = d_w_ih = d_w_hh = None
        if ctx.needs_input_grad[0]:
            d_x = product(outside.to(factor), w_ih.t()).view(T, B, -1).transpose(0, 1).to(given)
        if ctx.needs_input_grad[2]:
            d_w_ih = product(outside.to(factor).t(), read.t()).to(own)
        if ctx.needs_input_grad[3]:
            d_w_hh = product(inside.to(factor).t(), hs[:-1].reshape(T * B, H).to(factor).t()).to(own)
        return d_x, d_h, d_w_ih, d_w_hh, outside.sum(0), inside.sum(0), None
