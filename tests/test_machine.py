import subprocess
import sys

import pytest
import torch

from zentence import machine


@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 300, 7), (130, 64, 1000)])
def test_products_are_the_same_whoever_computes_them(
    onednn: bool, dtype: torch.dtype, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_prefers_onednn", lambda: onednn and torch.backends.mkldnn.is_available())
    torch.manual_seed(0)
    N, K, M = shape
    left, right, bias = torch.randn(N, K, dtype=dtype), torch.randn(M, K, dtype=dtype), torch.randn(M, dtype=dtype)
    atol = 1e-4 if dtype == torch.float32 else 1e-12
    expected = left.double() @ right.double().t()
    assert torch.allclose(machine.product(left, right).double(), expected, atol=atol)
    assert torch.allclose(machine.product(left, right, bias).double(), expected + bias.double(), atol=atol)
    turned = machine.product(right.t().contiguous().t(), left.t().contiguous().t())  # neither is contiguous
    assert turned.dtype == dtype and torch.allclose(turned.double(), expected.t(), atol=atol)
    assert machine.product(left[:0], right).shape == (0, M)


@pytest.mark.skipif(machine._glibc() is None, reason="the C library of this machine is not glibc")
def test_freed_memory_goes_back_to_the_system() -> None:
    script = """
import resource
import torch
from pathlib import Path
from zentence.machine import give_back_memory, prepare_process

def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20

prepare_process(1)
blocks = [torch.ones(1 << 18) for _ in range(200)]  # a megabyte each
full = resident()
end = torch.ones(1000)
del blocks
kept = resident()
give_back_memory()
print(full - kept, kept - resident())
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    at_once, after = map(int, found.stdout.split())
    assert after > 150 > 50 > at_once
