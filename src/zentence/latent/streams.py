"""Encoding and decoding of any amount, in streams: files of sentences to files of codes, and back.

Nothing here grows with the number of sentences. Work goes in windows whose borders follow from the input alone, so a
run that was ended (Ctrl-C, SIGKILL) and goes on later gives the same bytes as one that never stopped.
"""

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save as save_tensors

from zentence.checkpoint import tensors_of
from zentence.corpora import Line, collate, read_sentences
from zentence.corpora.readers import LabelMode, display_name, is_stream, open_file
from zentence.corpora.store import Limit
from zentence.decoders.generation import Generation
from zentence.errors import ZentenceError
from zentence.files import checksum
from zentence.latent.partial import PartialFile
from zentence.latent.space import Codes, LatentSpace
from zentence.noise import Noise, derive_key
from zentence.parts import parse_options
from zentence.special import UNK

WINDOW, WINDOW_CHARACTERS = 1 << 14, 1 << 23  # sentences (or characters) that are sorted by length together
BATCH_SENTENCES, BATCH_TOKENS = 128, 1 << 14  # of one forward pass, padding included
DECODED_WINDOW, DECODED_BATCH = 4096, 256  # codes


Announce = Callable[[str], None]


class Progress(Protocol):
    """Told how far a phase is; the total is None where it is not known."""

    def __call__(self, phase: str, done: int, total: int | None, unit: str) -> None:
        """Take note of it."""


@dataclass
class Remarks:
    """What is worth saying of the sentences of a stream: those beyond the limit, those without a known word."""

    limit: int | None = None  # words
    cut: int = 0
    first_cut: str = ""
    strange: int = 0
    first_strange: str = ""

    def warnings(self) -> list[str]:
        """Return a line for each kind: its first sentence, and how many more there are."""
        lines = []
        if self.cut:
            more = f" (and of {self.cut - 1:,} more sentences)" if self.cut > 1 else ""
            lines.append(f"{self.first_cut}: only the first {self.limit} words are read{more}: the model's limit")
        if self.strange:
            more = f" (nor of {self.strange - 1:,} more sentences)" if self.strange > 1 else ""
            lines.append(f"no word of {self.first_strange!r} is in this model's vocabulary{more}")
        return lines


@dataclass(frozen=True)
class Done:
    """What a streamed run did."""

    rows: int  # in the file
    resumed: int  # those of them that an earlier run had made
    restarted: str | None  # why an earlier run was not gone on with
    warnings: list[str]


def model_identity(space: LatentSpace) -> str:
    """Return the SHA-256 of the model's weights: that of its model.safetensors."""
    return hashlib.sha256(save_tensors(tensors_of(space.model))).hexdigest()


def encode_stream(
    space: LatentSpace,
    sentences: Iterable[str],
    *,
    sample: bool = False,
    seed: int = 0,
    remarks: Remarks | None = None,
) -> Iterator[Codes]:
    """Yield codes [n, D] of consecutive sentences, window by window: what `LatentSpace.encode` gives in one go."""
    if isinstance(sentences, str):
        raise ZentenceError("Give sentences, not one string")
    remarks, first = remarks or Remarks(), 0
    lines = (Line(" ".join(text.split()), None, number) for number, text in enumerate(sentences, 1))
    for window in _windows(lines):
        yield _encode_window(space, window, "sentence", first, sample, seed, remarks, None)
        first += len(window)


def encode_file(
    space: LatentSpace,
    source: Path | str,
    out: Path,
    *,
    sample: bool = False,
    seed: int = 0,
    labels: LabelMode = "auto",
    where: str | None = None,
    progress: Progress | None = None,
    announce: Announce | None = None,
) -> Done:
    """Write the codes of a file's sentences as a NumPy file [N, D] of float32; go on with what an ended run left.

    `source` is read as a corpus is (plain or gzip, labels dropped; `-`: standard input, which cannot be resumed).
    `where` stands before a line's number in messages. `announce` is told at once where an earlier run is gone on with.
    """
    _need_code(space)
    identity = None
    if not is_stream(source):
        open_file(source).close()  # complains of what is no file
        said = {"input": checksum(Path(source)), "labels": labels, "seed": seed, "mode": "sample" if sample else "mean"}
        identity = {**said, **_machine(space), "window": [WINDOW, WINDOW_CHARACTERS, BATCH_SENTENCES, BATCH_TOKENS]}
    meter = _Meter(progress, None if identity is None else Path(source).stat().st_size)
    with PartialFile(out, identity, _npy_head(0, space.size)) as partial:
        resumed, remarks = partial.rows, Remarks(**partial.notes)
        where = where or f"{display_name(source)}, line"
        _announce(partial, announce)
        lines = read_sentences(source, labels, progress=meter.read)
        for window in _windows(islice(lines, resumed, None)):
            codes = _encode_window(space, window, where, partial.rows, sample, seed, remarks, meter)
            partial.append(codes.tobytes(), len(codes), asdict(remarks))
        partial.finish(_npy_head(partial.rows, space.size))
    return Done(partial.rows, resumed, partial.restarted, remarks.warnings())


class _Meter:
    """Progress in bytes of the file: a window counts as it is encoded, not as it is read. Of a stream, sentences."""

    def __init__(self, progress: Progress | None, size: int | None) -> None:
        self.progress, self.size = progress, size
        self.before = self.now = 0  # bytes read up to the window at hand, and with it
        self.sentences = 0

    def read(self, done: int, _total: int) -> None:
        self.now = done

    def encoded(self, sentences: int, done: int, window: int) -> None:
        """Count some sentences of a window, of which `done` are now encoded."""
        self.sentences += sentences
        if self.progress is not None and self.size is None:
            self.progress("encoding", self.sentences, None, "sentences")
        elif self.progress is not None:
            share = self.before + (self.now - self.before) * done // window
            self.progress("encoding", share, self.size, "bytes")
        if done == window:
            self.before = self.now


def _windows(lines: Iterable[Line]) -> Iterator[list[Line]]:
    window: list[Line] = []
    characters = 0
    for line in lines:
        window.append(line)
        characters += len(line.text)
        if len(window) == WINDOW or characters >= WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


@torch.no_grad()
def _encode_window(
    space: LatentSpace,
    window: list[Line],
    where: str,
    first: int,
    sample: bool,
    seed: int,
    remarks: Remarks,
    meter: _Meter | None,
) -> Codes:
    """Return codes [n, D] of a window's sentences, the first of which is number `first` of all."""
    _need_code(space)
    texts = _within_limit(space, window, where, remarks)
    ids, read = space.vocabulary.encode_batch(texts), space.vocabulary.encode_sources(texts)
    for line, row in zip(window, ids, strict=True):
        if len(row) == 0:
            raise ZentenceError(f"{where} {line.number} is empty: there is no word in it")
        if (row == UNK).all():
            remarks.strange += 1
            remarks.first_strange = remarks.first_strange or line.text[:60]
    codes: Codes = np.empty((len(window), space.size), dtype=np.float32)
    done = 0
    for places in _by_length(np.array([len(row) for row in ids])):
        sources = None if read is None else [read[i] for i in places]
        batch = collate([ids[i] for i in places], first + places, sources=sources).to(space.device)
        q = space.model.infer(batch.source)
        noise = Noise(derive_key(seed, "encode"), batch.index)
        z = q.rsample_and_log_prob(1, noise)[0][0] if sample else q.center
        codes[places] = z.float().cpu().numpy()
        done += len(places)
        if meter is not None:
            meter.encoded(len(places), done, len(window))
    return codes


def _within_limit(space: LatentSpace, window: list[Line], where: str, remarks: Remarks) -> list[str]:
    remarks.limit = space.max_words
    texts = [line.text for line in window]
    if remarks.limit is None:
        return texts
    limit = Limit(remarks.limit, drop=False)
    for place, line in enumerate(window):
        kept = limit.cut(line.text)
        if kept is not None and kept is not line.text:
            texts[place] = kept
            remarks.cut += 1
            remarks.first_cut = remarks.first_cut or f"{where} {line.number}"
    return texts


def _by_length(lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield the places of sentences of similar length, as many as go into one forward pass, long ones last."""
    order = np.argsort(lengths, kind="stable")
    first = 0
    while first < len(order):
        last = min(first + BATCH_SENTENCES, len(order))
        while last > first + 1 and (last - first) * int(lengths[order[last - 1]]) > BATCH_TOKENS:
            last = first + max(1, (last - first) // 2)
        yield order[first:last]
        first = last


def open_codes(path: Path, space: LatentSpace) -> NDArray[Any]:
    """Map a NumPy file of codes [N, D] (or [N, L, D], for a model that averages L) after a look at all of it."""
    _need_code(space)
    try:
        codes = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise ZentenceError(f"No such file: {path}") from None
    except IsADirectoryError:
        raise ZentenceError(f"{path} is a directory: give a NumPy file of codes") from None
    except (OSError, ValueError, EOFError, MemoryError) as error:
        raise ZentenceError(f"{path} is not a NumPy file (.npy) of numbers: write one with np.save") from error
    if not isinstance(codes, np.ndarray) or codes.dtype.kind not in "fiu":
        raise ZentenceError(f"{path} is not a NumPy file (.npy) of numbers: write one with np.save")
    L = space.model.averaged_codes
    grouped = L > 1 and codes.ndim == 3 and codes.shape[1] == L
    if (codes.ndim != 2 and not grouped) or codes.shape[-1] != space.size:
        raise ZentenceError(f"{path} has codes of shape {list(codes.shape)}: this model's are [N, {space.size}]")
    if len(codes) == 0:
        raise ZentenceError(f"{path} is empty: there is no code in it")
    for first in range(0, len(codes), DECODED_WINDOW):
        rows = np.asarray(codes[first : first + DECODED_WINDOW], dtype=np.float32)
        finite = np.isfinite(rows.reshape(len(rows), -1)).all(1)
        if not finite.all():
            raise ZentenceError(f"{path}: code {first + int(finite.argmin())} (from 0) is not of finite numbers")
    return codes


def decode_stream(
    space: LatentSpace, codes: NDArray[Any], *, first: int = 0, progress: Progress | None = None, **options: Any
) -> Iterator[list[str]]:
    """Yield the sentences of codes, some thousands at a time, from row `first` on; options as `Generation`.

    They are those of `LatentSpace.decode`, and one a line: no sentence has a line break.
    """
    _need_code(space)
    choice: Generation = parse_options("", Generation, options)
    size = max(1, DECODED_BATCH // choice.beam) if choice.method == "beam" else DECODED_BATCH
    for start in range(first, len(codes), DECODED_WINDOW):
        end = min(start + DECODED_WINDOW, len(codes))

        def told(done: int, start: int = start) -> None:
            if progress is not None:
                progress("decoding", start + done, len(codes), "codes")

        part = np.array(codes[start:end], dtype=np.float32)
        sentences = space.decode(part, first=start, batch_size=size, progress=told, **options)
        yield [" ".join(sentence.splitlines()) for sentence in sentences]


def decode_file(
    space: LatentSpace,
    codes: Path,
    out: Path,
    *,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    announce: Announce | None = None,
) -> Done:
    """Write the sentences of a file of codes, one a line; go on with what an ended run left.

    Options as `Generation`; `announce` as in `encode_file`.
    """
    _need_code(space)
    found = open_codes(codes, space)
    choice: Generation = parse_options("", Generation, options or {})
    said = {"input": checksum(codes), "options": choice.model_dump(mode="json"), **_machine(space)}
    with PartialFile(out, {**said, "window": [DECODED_WINDOW, DECODED_BATCH]}) as partial:
        resumed = partial.rows
        _announce(partial, announce)
        for sentences in decode_stream(space, found, first=resumed, progress=progress, **(options or {})):
            partial.append("".join(f"{sentence}\n" for sentence in sentences).encode(), len(sentences))
        partial.finish()
    return Done(partial.rows, resumed, partial.restarted, [])


def _announce(partial: PartialFile, announce: Announce | None) -> None:
    if announce is not None and partial.restarted:
        announce(partial.restarted)
    elif announce is not None and partial.rows:
        announce(f"going on with what an earlier run left of {partial.out}: {partial.rows:,} are done")


def _machine(space: LatentSpace) -> dict[str, Any]:
    """Return what codes follow from besides the input: the model, and all that decides how floats are rounded."""
    versions = {"torch": torch.__version__, "device": space.device.type, "threads": torch.get_num_threads()}
    return {"model": model_identity(space), "vocabulary": space.vocabulary.hash, **versions}


def _npy_head(rows: int, size: int) -> bytes:
    """Return the head of a NumPy file [rows, size] of float32; its length does not depend on the rows."""
    buffer = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, size)}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue()


def _need_code(space: LatentSpace) -> None:
    if not space.model.has_code:
        raise ZentenceError("This model is a language model: it has no codes")
