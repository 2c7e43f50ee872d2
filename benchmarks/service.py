"""What the service bears: many clients at once, with shared model calls and without them.

`python -m benchmarks.child service load SECONDS CLIENTS TOGETHER` measures one side; ZENTENCE_BENCH_SECONDS shortens
the section. Clients run in a process of their own, each with one connection and one request at a time.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from benchmarks.harness import REPEATS, Row, Section, measure
from benchmarks.latent import _space
from zentence.machine import bound_kernel_cache, prepare_process

SECONDS, CLIENTS = int(os.environ.get("ZENTENCE_BENCH_SECONDS", "60")), 50
WARM = 20  # seconds before memory is looked at
WORDS, STEPS = 20, 7
MIX = ("encode", "decode", "interpolate")  # in turn


def measure_load(seconds: str, clients: str, together: str) -> dict[str, float]:
    """Serve for so many seconds; requests a second, latencies in milliseconds, errors, and memory before and after."""
    import uvicorn

    from zentence.web.api import create_app
    from zentence.web.guard import Guard
    from zentence.web.service import Service
    from zentence.web.worker import Worker

    bound_kernel_cache()
    prepare_process()
    worker = Worker(together=together == "together")
    service = Service(_space(), worker=worker)
    app: Any = Guard(create_app(service, page=False))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False))
    opened = socket.create_server(("127.0.0.1", 0), backlog=256)
    Thread(target=lambda: asyncio.run(server.serve(sockets=[opened])), daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    port = opened.getsockname()[1]
    _drive(port, WARM, int(clients))  # allocator, threads, kernels
    before = _resident_mb()
    found = _drive(port, float(seconds), int(clients))
    after = _resident_mb()
    server.should_exit = True
    return {**found, "rss_before_mb": before, "rss_after_mb": after, "jobs_a_call": worker.jobs / max(1, worker.calls)}


def _drive(port: int, seconds: float, clients: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.service", str(port), str(seconds), str(clients)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _resident_mb() -> float:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return float(lines["VmRSS"].split()[0]) / 1024.0


def _questions(random: np.random.Generator) -> dict[str, bytes]:
    def sentence() -> str:
        return " ".join(f"w{number:05}" for number in random.integers(0, 9_000, size=int(random.integers(5, 30))))

    code = [round(float(x), 5) for x in random.normal(size=32)]
    bodies: dict[str, Any] = {
        "encode": {"sentences": [sentence()]},
        "decode": {"codes": [code], "max_words": WORDS},
        "interpolate": {"start": sentence(), "end": sentence(), "steps": STEPS, "max_words": WORDS},
    }
    return {name: json.dumps(body).encode() for name, body in bodies.items()}


async def _client(number: int, port: int, end: float, times: list[float], errors: list[str]) -> None:
    random = np.random.default_rng(number)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    turn = number
    while time.perf_counter() < end:
        name = MIX[turn % len(MIX)]
        turn, body = turn + 1, _questions(random)[name]
        head = f"POST /api/{name} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        began = time.perf_counter()
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        try:
            answer = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1]) for line in answer.split(b"\r\n") if line.lower().startswith(b"content-length")
            )
            content = json.loads(await reader.readexactly(length))
        except (OSError, asyncio.IncompleteReadError) as error:  # a request without an answer
            errors.append(repr(error))
            return
        times.append(time.perf_counter() - began)
        wanted = {"encode": 1, "decode": 1, "interpolate": STEPS}[name]
        if not answer.startswith(b"HTTP/1.1 200") or len(content.get("sentences", content.get("codes", []))) != wanted:
            errors.append(f"{answer[:60]!r} {str(content)[:200]}")
    writer.close()


async def _clients(port: int, seconds: float, clients: int) -> dict[str, float]:
    times: list[float] = []
    errors: list[str] = []
    began = time.perf_counter()
    await asyncio.gather(*(_client(n, port, began + seconds, times, errors) for n in range(clients)))
    passed = time.perf_counter() - began
    if errors:
        print(errors[0], file=sys.stderr)
    p50, p95 = np.quantile(times, [0.5, 0.95]) * 1e3
    return {
        "requests": len(times),
        "a_second": len(times) / passed,
        "p50_ms": p50,
        "p95_ms": p95,
        "errors": len(errors),
    }


MEASUREMENTS = {"load": measure_load}


def section() -> Section:
    """Measure and return the table: both sides take turns, every run has its full time, and the worst memory counts."""
    sides = ("together", "alone")
    turns = [[measure("service", "load", SECONDS, CLIENTS, side) for side in sides] for _ in range(REPEATS)]
    shared, alone = (
        {key: sum(run[key] for run in runs) / REPEATS for key in runs[0]} for runs in zip(*turns, strict=True)
    )
    ratios = sorted(one["a_second"] / other["a_second"] for one, other in turns)
    errors, requests = (int(sum(run[key] for turn in turns for run in turn)) for key in ("errors", "requests"))
    grown = max((turn[0] for turn in turns), key=lambda run: run["rss_after_mb"] / run["rss_before_mb"])
    rows = [
        Row(
            f"{CLIENTS} clients for {SECONDS} s: encode, decode, interpolate in turn",
            f"{shared['a_second']:,.0f} requests/s ({alone['a_second']:,.0f} without shared calls)",
            f"{shared['a_second'] / alone['a_second']:.1f} × ({ratios[0]:.1f} to {ratios[-1]:.1f} in {REPEATS} turns)",
            "≥ 3 ×",
        ),
        Row(
            "latency with shared calls, median and 95 %",
            f"{shared['p50_ms']:.0f} and {shared['p95_ms']:.0f} ms "
            f"({alone['p50_ms']:.0f} and {alone['p95_ms']:.0f} ms without)",
            f"{alone['p95_ms'] / shared['p95_ms']:.1f} × shorter",
        ),
        Row("errors and lost requests", f"{errors} of {requests:,}", "", "0"),
        Row(
            f"memory after {SECONDS} s against before, the worst turn",
            f"{grown['rss_after_mb']:.0f} MB against {grown['rss_before_mb']:.0f} MB",
            f"{grown['rss_after_mb'] / grown['rss_before_mb']:.2f} ×",
            "flat",
        ),
    ]
    before = (
        f"Over HTTP on loopback, clients on the same cores; sentences of 5 to 29 words, {WORDS} words a decoded one, "
        f"{STEPS} steps an interpolation; {shared['jobs_a_call']:.1f} requests shared a model call on average."
    )
    return Section("Service", rows, before)


if __name__ == "__main__":
    given_port, given_seconds, given_clients = sys.argv[1:]
    print(json.dumps(asyncio.run(_clients(int(given_port), float(given_seconds), int(given_clients)))))
