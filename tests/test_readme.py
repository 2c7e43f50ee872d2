"""Every command and every Python example of the README runs as it stands there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
PROSE = re.sub(r"^```.*?^```", "", README, flags=re.MULTILINE | re.DOTALL)
COMMANDS = [
    line.split("  #")[0].strip()
    for language, block in BLOCKS
    if language == ""
    for line in block.splitlines()
    if line.startswith("zentence ")
]
COMMANDS += [command for command in re.findall(r"`(zentence [^`]+)`", PROSE) if "split-sentences" not in command]


@pytest.fixture(scope="module")
def folder(captions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with the files that the README speaks of."""
    place = tmp_path_factory.mktemp("readme")
    lines = (captions / "train.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    parts = {"my.txt": lines[:200], "a.txt": lines[:80], "b.txt": lines[80:160], "v.txt": lines[160:200]}
    for name, part in {**parts, "test.txt": lines[200:230]}.items():
        (place / name).write_text("".join(part), encoding="utf-8")
    for name, part in {"happy.txt": lines[:20], "sad.txt": lines[20:40]}.items():
        (place / name).write_text("".join(part), encoding="utf-8")
    labelled = (f"{number % 2}\t{line}" for number, line in enumerate(lines[:60]))
    (place / "labelled.tsv").write_text("".join(labelled), encoding="utf-8")
    answers = "who is walking ?\ta man is walking .\t1\nwho is walking ?\tthe food was great !\t0\n"
    (place / "qa.tsv").write_text(f"question\tanswer\tlabel\n{answers}", encoding="utf-8")
    return place


def test_the_readme_has_examples() -> None:
    assert len(COMMANDS) > 10
    assert sum(language == "python" for language, _ in BLOCKS) == 2


def test_commands_and_python_run_in_order(folder: Path, zentence: Any) -> None:
    for command in COMMANDS:
        options = ["--out", "captions"] if command.endswith("corpus make captions") else []
        result = zentence(*shlex.split(command)[1:], *options, cwd=folder, timeout=1200)
        assert "Traceback" not in result.err, command
    for number, code in enumerate(code for language, code in BLOCKS if language == "python"):
        change = code.replace("callbacks=[print]", f'callbacks=[print], out="runs/python-{number}"')
        run = subprocess.run(
            [sys.executable, "-c", change], cwd=folder, capture_output=True, text=True, check=False, timeout=300
        )
        assert run.returncode == 0, run.stderr
