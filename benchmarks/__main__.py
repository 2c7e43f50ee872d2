"""`make bench`: speed as ratios within one run on one machine; writes benchmarks/RESULTS.md.

`python -m benchmarks parts` measures one section and leaves the others as they stand.
"""

import importlib
import os
import platform
import subprocess
import sys
from pathlib import Path

from benchmarks.shapes import TRAINED_FLOP

# modules with a `section()`
SECTIONS = ("training", "parts", "text", "latent", "evaluation", "service", "transformers")
RESULTS = Path(__file__).parent / "RESULTS.md"
MARK = "<!-- section: {} -->"


def main() -> None:
    """Measure the sections named on the command line, or all, and write the page."""
    chosen = sys.argv[1:] or list(SECTIONS)
    if unknown := [name for name in chosen if name not in SECTIONS]:
        raise SystemExit(f"Unknown section '{unknown[0]}': choose from {', '.join(SECTIONS)}")
    texts = _standing()
    for name in chosen:
        where = f"Machine: {_processor()}, {os.cpu_count()} cores, Python {platform.python_version()}. {_commit()}"
        texts[name] = f"{importlib.import_module(f'benchmarks.{name}').section().text()}\n\n{where}"
        _write(texts)
    print(RESULTS.read_text(encoding="utf-8"))


def _standing() -> dict[str, str]:
    """Return the sections that stand in the page, by their marks."""
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    found = {}
    for name in SECTIONS:
        if (mark := MARK.format(name)) in text:
            found[name] = text.split(mark, 1)[1].split("<!-- section:", 1)[0].strip()
    return found


def _write(texts: dict[str, str]) -> None:
    head = f"""# Speed

Written by `make bench`; all ratios of a section are from one run on one machine. Unless a section says otherwise the
shape is Penn Treebank's: vocabulary 10,000, embedding and state 256, code 32, untied output, sentences of 22 tokens;
{TRAINED_FLOP / 1e6:.1f} MFLOP a trained token.
"""
    parts = [f"{MARK.format(name)}\n{texts[name]}\n" for name in SECTIONS if name in texts]
    RESULTS.write_text("\n".join([head, *parts]), encoding="utf-8")


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return f"Commit {found.stdout.strip()}."


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
