"""What every section of the benchmark shares: rows, and measurements in child processes."""

import json
import subprocess
import sys
from typing import NamedTuple

REPEATS = 3  # what is compared takes turns, so that a busy moment does not fall on one of them


class Row(NamedTuple):
    """A line of the table."""

    what: str
    measured: str
    ratio: str = ""
    goal: str = ""


class Section(NamedTuple):
    """A table with words before and after it."""

    title: str
    rows: list[Row]
    before: str = ""
    after: str = ""

    def text(self) -> str:
        """Return the section as Markdown."""
        lines = [f"| {' | '.join(row)} |" for row in self.rows]
        table = "\n".join(["| what | measured | ratio | goal |", "| --- | --- | --- | --- |", *lines])
        return "\n\n".join(part for part in (f"## {self.title}", self.before, table, self.after) if part)


def measure(module: str, name: str, *arguments: object) -> dict[str, float]:
    """Run one measurement of a module's MEASUREMENTS in a child process, so that allocators and caches do not meet."""
    command = [sys.executable, "-m", "benchmarks.child", module, name, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise SystemExit(f"{name} failed:\n{result.stderr}")
    found: dict[str, float] = json.loads(result.stdout)
    print(f"{module}.{name} {' '.join(map(str, arguments))}: {found}", file=sys.stderr)
    return found


def best(key: str, module: str, name: str, *arguments: object) -> float:
    """Return the best of several runs."""
    return max(measure(module, name, *arguments)[key] for _ in range(REPEATS))
