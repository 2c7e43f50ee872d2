import math

import pytest
import torch

from zentence.noise import Noise, derive_key


def test_normal_numbers_are_standard_normal() -> None:
    noise = Noise(derive_key("test"), torch.arange(500)).normal(40, 11, torch.float64)
    values = noise.reshape(-1)
    error = 1.0 / math.sqrt(values.numel())
    assert abs(values.mean()) < 5 * error
    assert abs(values.var() - 1.0) < 5 * math.sqrt(2) * error
    assert abs((values**3).mean()) < 5 * math.sqrt(15) * error
    assert abs((values**4).mean() - 3.0) < 5 * math.sqrt(96) * error
    flat = noise.reshape(-1, 11)
    correlation = torch.corrcoef(flat.t()) - torch.eye(11, dtype=torch.float64)
    assert correlation.abs().max() < 5 / math.sqrt(len(flat))


def test_uniform_numbers_are_uniform() -> None:
    values = Noise(3, torch.arange(2000)).uniform(50, torch.float64).reshape(-1)
    assert values.min() >= 0.0 and values.max() < 1.0
    counts = torch.histc(values, 20, 0.0, 1.0)
    expected = len(values) / 20
    assert float(((counts - expected) ** 2 / expected).sum()) < 50  # χ² with 19 degrees of freedom


def test_noise_belongs_to_the_sentence_not_to_the_batch() -> None:
    whole = Noise(7, torch.tensor([3, 14, 15, 92])).normal(6, 5)
    part = Noise(7, torch.tensor([15, 3])).normal(6, 5)
    assert torch.equal(whole[:, [2, 0]], part)


@pytest.mark.parametrize("size", [1, 4, 5])
def test_chunks_of_samples_join_without_a_seam(size: int) -> None:
    noise = Noise(7, torch.arange(3))
    joined = torch.cat([noise.normal(2, size), noise.from_sample(2).normal(5, size)])
    assert torch.equal(joined, noise.normal(7, size))


def test_keys_and_forks_differ() -> None:
    noise = Noise(1, torch.arange(4))
    streams = [noise, noise.fork("a"), noise.fork("b"), noise.fork("a", 1), Noise(2, torch.arange(4))]
    draws = [stream.normal(1, 3).flatten().tolist() for stream in streams]
    assert len({tuple(draw) for draw in draws}) == len(streams)
    assert derive_key(1, "2") != derive_key("1", 2)
