"""Random numbers that depend on a key and a sentence's index only.

A sentence receives the same noise whatever batch, process or chunk of samples it falls in, so that one process and
two agree, and figures do not depend on the batch size. Numbers are made by hashing counters (splitmix64), not by
a generator with a state, so there is no state to save.
"""

import hashlib
import math
from typing import NamedTuple

import torch
from torch import Tensor

_GOLDEN = -7046029254386353131  # 2^64 / golden ratio, as a signed 64-bit integer
_MIX_1 = -4658895280553007687
_MIX_2 = -7723592293110705685


def derive_key(*parts: int | str) -> int:
    """Return a 63-bit key that depends on every part and on their order."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def _shift(x: Tensor, bits: int) -> Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)  # torch shifts arithmetically; the mask makes it logical


def scramble(x: Tensor) -> Tensor:
    """Map int64 values to int64 values as splitmix64's finaliser does (a bijection)."""
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


class Noise(NamedTuple):
    """The source of all noise for the sentences of one batch in one step."""

    key: int
    index: Tensor  # type: ignore[assignment]  # [B] the sentences' numbers in their split
    first_sample: int = 0  # samples are numbered, so that chunks of samples join without a seam

    def fork(self, *names: int | str) -> "Noise":
        """Return a stream that is independent of this one."""
        return self._replace(key=derive_key(self.key, *names))

    def from_sample(self, first: int) -> "Noise":
        """Return the same stream, counted from sample `first`."""
        return self._replace(first_sample=first)

    def _bits(self, counters: Tensor) -> Tensor:
        row = scramble(self.index.to(torch.int64) * _GOLDEN + self.key)  # [B]
        return scramble(row[:, None] + (counters + 1) * _GOLDEN)  # [B, C]

    def uniform(self, count: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return [B, count] numbers in [0, 1): one per sentence and position."""
        counters = torch.arange(count, device=self.index.device)
        return _shift(self._bits(counters), 40).to(dtype) / (1 << 24)

    def normal(self, num_samples: int, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return standard normal [S, B, size], by Box and Muller's transform of the two halves of each hash."""
        pairs = (size + 1) // 2
        first = self.first_sample * pairs
        counters = torch.arange(first, first + num_samples * pairs, device=self.index.device)
        bits = self._bits(counters)  # [B, S * pairs]
        radius = torch.sqrt(-2.0 * torch.log((_shift(bits, 32).to(dtype) + 0.5) / (1 << 32)))
        angle = (bits & 0xFFFFFFFF).to(dtype) * (2.0 * math.pi / (1 << 32))
        both = torch.stack((radius * torch.cos(angle), radius * torch.sin(angle)), dim=-1)
        batch = self.index.shape[0]
        return both.view(batch, num_samples, 2 * pairs)[..., :size].transpose(0, 1)
