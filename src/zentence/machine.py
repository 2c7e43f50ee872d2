"""The machine that a process runs on: threads, memory, device, precision."""

import ctypes
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from zentence.errors import ZentenceError

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1


@cache
def _glibc() -> ctypes.CDLL | None:
    """Return the C library where it is glibc; with another one all is slower, not wrong."""
    try:
        libc = ctypes.CDLL("libc.so.6") if sys.platform == "linux" else None
        return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
    except OSError:
        return None


def prepare_process(threads: int | None = None) -> None:
    """Set the number of threads, keep freed memory, and flush denormals; call before the first tensor operation.

    By default glibc hands large blocks back to the system and asks for them again, page fault by page fault, at every
    step: worth 20-50 % of the training time at our shapes.
    """
    if (libc := _glibc()) is not None:
        libc.mallopt(_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)
    torch.set_flush_denormal(True)
    if threads is not None:
        torch.set_num_threads(threads)


def give_back_memory() -> None:
    """Hand freed memory back to the system, where blocks of many sizes come and go.

    Each block that torch aligns leaves crumbs in glibc's lists that keep its place from being used for the next one:
    an evaluation of 10,000 sentences had grown to 14 GB; after 1,500 it held 6.8 GB, of which all but 0.4 were free.
    """
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


def bound_kernel_cache(shapes: int = 32) -> None:
    """Keep the kernels of so many shapes; call before the first tensor operation.

    A service meets ever new shapes of batches, and oneDNN would keep what it made for 1,024 of them: twice the growth
    of memory in the first minutes under load, and no more requests a second.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(shapes))


@cache
def _prefers_onednn() -> bool:
    """Say whether this is an x86 processor on which MKL, torch's own choice, does without AVX-512: all but Intel's."""
    try:
        described = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "AuthenticAMD" in described and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


def product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return left rightᵀ + bias [N, M] for left [N, K] and right [M, K], outside of autograd.

    In float32 on AMD's processors oneDNN takes about half the time that MKL does, and adds up in another order.
    """
    if left.dtype == torch.float32 and left.device.type == "cpu" and _prefers_onednn():
        found: Tensor = torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")
        return found
    return left @ right.t() if bias is None else torch.addmm(bias, left, right.t())


def choose_device(name: str) -> torch.device:
    """Return the device for 'auto', 'cpu' or 'cuda'."""
    if name not in ("auto", "cpu", "cuda"):
        raise ZentenceError(f"Unknown device '{name}': choose one of auto, cpu, cuda")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ZentenceError("No CUDA device is available: use --device cpu")
    if name == "cuda":
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cpu")


def has_bfloat16_units(device: torch.device) -> bool:
    """Say whether a device claims instructions for bfloat16, which take half the time; others emulate it slowly."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    found = torch.cpu.get_capabilities()
    return any(found.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def supports_bfloat16(device: torch.device) -> bool:
    """Try a bfloat16 product in a child process: some CPUs promise it and die of an illegal instruction."""
    code = (
        f"import torch; a = torch.randn(64, 64, device={device.type!r}, dtype=torch.bfloat16); "
        "assert bool((a @ a).float().isfinite().all())"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
