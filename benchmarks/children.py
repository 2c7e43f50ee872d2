"""Rows of a table, each trained by `zentence train` in a process of its own; finished ones are kept."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zentence.files import write_atomically


def train_row(
    name: str, arguments: Sequence[str], changes: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return {"seconds", "figures"} of a run into `folder`; what `<folder>.json` holds is not made again."""
    done = folder.with_name(f"{folder.name}.json")
    if not done.exists():
        command = [sys.executable, "-m", "zentence", "train", *arguments, "--out", str(folder), "--resume"]
        command += [part for change in changes for part in ("--set", change)]
        started = time.monotonic()
        child = {**os.environ, **environment}
        result = subprocess.run(command, capture_output=True, text=True, check=False, env=child)
        if result.returncode != 0:
            raise SystemExit(f"{name}: {(result.stderr.strip().splitlines() or ['no message'])[-1]}")
        measurements = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        found = {row["name"]: row for row in measurements if row["split"] == "valid"}
        write_atomically(done, json.dumps({"seconds": time.monotonic() - started, "figures": found}))
    content: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
    print(f"{name}: {content['seconds']:.0f} s", file=sys.stderr)
    return content


def write_between(page: Path, marks: tuple[str, str], text: str) -> None:
    """Put text between two marks of a page, in the place of what stood there."""
    whole = page.read_text(encoding="utf-8")
    before, after = whole.split(marks[0])[0], whole.split(marks[1])[1]
    page.write_text(f"{before}{marks[0]}\n{text}\n{marks[1]}{after}", encoding="utf-8")
