"""A wheel built from the tree works anywhere: recipes and the built-in corpus are inside the package."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
USE = """
import sys
from pathlib import Path
import zentence
from zentence.corpora.captions import make_corpus
from zentence.settings import load_settings, recipe_names

assert Path(zentence.__file__).is_relative_to(sys.argv[1]), zentence.__file__
print(*[name for name in recipe_names() if load_settings(name).stages])
make_corpus(Path("made"), 100, seed=0)
"""


def run(*command: object, cwd: Path, **env: str) -> str:
    """Run a Python command and return what it prints."""
    words = [sys.executable, *map(str, command)]
    every = {**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **env}
    done = subprocess.run(words, cwd=cwd, env=every, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel from a copy of the tree, so that the tree stays as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__"))
    run("-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist", tree, cwd=folder)
    [built] = (folder / "dist").glob("*.whl")
    return built


def test_everything_is_inside(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    package = ROOT / "src" / "zentence"
    wanted = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert inside >= {path.relative_to(package.parent).as_posix() for path in wanted}
    assert {"zentence/recipes/default.toml", "zentence/corpora/captions.toml"} <= inside
    assert not [name for name in inside if name.startswith(("tests/", "benchmarks/"))]
    assert any(name.endswith("dist-info/entry_points.txt") for name in inside)


def test_installed_elsewhere_it_works(wheel: Path, captions: Path, tmp_path: Path) -> None:
    target = tmp_path / "installed"
    run("-m", "pip", "install", "--quiet", "--no-deps", "--target", target, wheel, cwd=tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    names = run("-c", USE, target, cwd=elsewhere, PYTHONPATH=str(target)).split()
    assert names == sorted(path.stem for path in (ROOT / "src" / "zentence" / "recipes").glob("*.toml"))
    assert {path.name for path in (elsewhere / "made").iterdir()} == {path.name for path in captions.iterdir()}
    shown = run("-m", "zentence", "parts", "--json", cwd=elsewhere, PYTHONPATH=str(target))
    assert shown.startswith("[")
    command: list[Any] = ["corpus", "make", "captions", "--sentences", 400, "--out", "again"]
    run(target / "bin" / "zentence", *command, cwd=elsewhere, PYTHONPATH=str(target))
    assert (elsewhere / "again" / "train.txt").read_bytes() == (captions / "train.txt").read_bytes()
