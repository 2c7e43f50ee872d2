"""`make bench`: speed as ratios within one run on one machine; writes benchmarks/RESULTS.md."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from benchmarks.shapes import TRAINED_FLOP

FEW, MANY = 32, 186  # sentences of 22 tokens: the papers' batch, and a budget of about 4,096 tokens
REPEATS = 3  # the ceiling, plain and zentence take turns, so that a busy moment does not fall on one of them


def measure(name: str, *arguments: object) -> dict[str, float]:
    """Run one measurement in a child process."""
    command = [sys.executable, "-m", "benchmarks.measure", name, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise SystemExit(f"{name} failed:\n{result.stderr}")
    found: dict[str, float] = json.loads(result.stdout)
    print(f"{name} {' '.join(map(str, arguments))}: {found}", file=sys.stderr)
    return found


def best(key: str, name: str, *arguments: object) -> float:
    """Return the best of several runs."""
    return max(measure(name, *arguments)[key] for _ in range(REPEATS))


def main() -> None:
    """Measure everything and write the table."""
    flops = best("flops", "ceiling")
    plain, own = best("tokens_per_second", "plain", FEW), best("tokens_per_second", "zentence", FEW)
    plain_many, many = best("tokens_per_second", "plain", MANY), best("tokens_per_second", "zentence", MANY)
    importance = best("flops", "importance", 500)
    decoding = measure("decoding", 256)
    small, large = (measure("memory", n)["rss_anon_mb"] for n in (100_000, 2_000_000))
    profiles = {which: measure("profile", which) for which in ("plain", "zentence")}
    rows = [
        ("best float32 matrix product", f"{flops / 1e9:.0f} GFLOP/s", "", ""),
        (f"training, batch {FEW}: plain PyTorch", f"{plain:,.0f} tokens/s", "", ""),
        (f"training, batch {FEW}: zentence", f"{own:,.0f} tokens/s", f"{own / plain:.2f} × plain", "≥ 1.25 ×"),
        (f"training, batch {MANY}: plain PyTorch", f"{plain_many:,.0f} tokens/s", "", ""),
        (
            f"training, batch {MANY}: zentence",
            f"{many:,.0f} tokens/s",
            f"{many * TRAINED_FLOP / flops:.0%} of the matrix product, {many / plain_many:.2f} × plain",
            "≥ 80 %",
        ),
        ("importance weighting, K = 500", f"{importance / 1e9:.0f} GFLOP/s", f"{importance / flops:.0%}", "≥ 70 %"),
        (
            "greedy decoding, 256 codes at once",
            f"{decoding['batched']:,.0f} sentences/s",
            f"{decoding['batched'] / decoding['one_by_one']:.1f} × one by one",
            "≥ 5 ×",
        ),
        (
            "anonymous memory, 2M against 100k sentences",
            f"{large:.0f} MB against {small:.0f} MB",
            f"{large / small:.2f} ×",
            "flat",
        ),
    ]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    text = f"""# Speed

Written by `make bench`; all ratios are from one run on one machine. The shape is Penn Treebank's: vocabulary 10,000,
embedding and state 256, code 32, untied output, sentences of 22 tokens; {TRAINED_FLOP / 1e6:.1f} MFLOP a trained token.
Plain PyTorch is `benchmarks/plain.py`: nn.LSTM, materialised scores, the default allocator.

Machine: {_processor()}, {os.cpu_count()} cores, Python {platform.python_version()}. Commit {commit.stdout.strip()}.

| what | measured | ratio | goal |
| --- | --- | --- | --- |
{chr(10).join(lines)}

Where a step's time goes at batch {FEW}, by kernel: both share the matrix products and the LSTM kernels of the library,
so what zentence can save is the rest.

| | |
| --- | --- |
{chr(10).join(_shares(which, profile) for which, profile in profiles.items())}
"""
    path = Path(__file__).parent / "RESULTS.md"
    path.write_text(text, encoding="utf-8")
    print(text)


def _shares(which: str, profile: dict[str, float]) -> str:
    return f"| {which} | {', '.join(f'{name} {share:.0%}' for name, share in profile.items())} |"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
