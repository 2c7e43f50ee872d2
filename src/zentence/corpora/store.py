"""Memory-mapped tokens of one split, in a cache folder named by its content.

A store is written once, in a stream, and never changed: `tokens.bin` (all sentences' ids, end to end), `offsets.bin`
(where each begins), `order.bin` (sentence numbers by length), `labels.bin` and `meta.json`; where the encoder has a
tokeniser of its own, `source_tokens.bin` and `source_offsets.bin` hold what it reads.
"""

import hashlib
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zentence.corpora.ledger import Ledger
from zentence.corpora.vocabulary import Vocabulary
from zentence.errors import ZentenceError
from zentence.files import write_atomically
from zentence.special import UNK

FORMAT = 1
_BATCH_SENTENCES = 4096  # encoded together
_BATCH_CHARACTERS = 2_000_000
_SORT_CHUNK = 1 << 16
_STALE_SECONDS = 7 * 24 * 3600


def cache_folder() -> Path:
    """Return `$ZENTENCE_CACHE`, or zentence's folder in the platform's place for caches."""
    if given := os.environ.get("ZENTENCE_CACHE"):
        return Path(given)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "zentence"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "zentence"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "zentence"


def content_key(**parts: Any) -> str:
    """Return a hexadecimal key that depends on every (JSON-able) part."""
    text = json.dumps({"format": FORMAT, **parts}, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


class Limit(NamedTuple):
    """The length limit of training sentences, in words."""

    max_words: int
    drop: bool

    def cut(self, text: str) -> str | None:
        """Return what is kept of a whitespace-normalised sentence: all, its first words, or nothing (None)."""
        if text.count(" ") < self.max_words:
            return text
        return None if self.drop else " ".join(text.split(" ", self.max_words)[: self.max_words])


class DamagedStore(ZentenceError):  # noqa: N818 (a state of the cache, which is then rebuilt)
    """A folder is not a whole token store."""


class TokenStore:
    """The sentences of one split, read where they lie on disk.

    `tokens`, `offsets` and `order` are views of the files: sentence i is `tokens[offsets[i]:offsets[i + 1]]`, without
    `<bos>` and `<eos>`; `order` lists sentence numbers by length, equal lengths by number. `length_counts[n]` is the
    number of sentences of n tokens. `labels` are indices into `label_names`, or None. `sources` are tokens and offsets
    of what the encoder reads, where its tokeniser is another one, else None; the longest has `longest_source` tokens.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
            if meta["format"] != FORMAT:
                raise DamagedStore(f"{folder} has another format of token store")
            self.ledger = Ledger.from_dict(meta["ledger"])
            count, size = self.ledger.sentences, self.ledger.tokens
            names = meta["label_names"]
            self.label_names: tuple[str, ...] | None = None if names is None else tuple(names)
            lengths = np.array(meta["length_counts"], dtype=np.int64).reshape(-1, 2)
            self.tokens = _map(folder / "tokens.bin", np.dtype(meta["dtype"]), size)
            self.offsets: NDArray[np.int64] = _map(folder / "offsets.bin", np.dtype(np.int64), count + 1)
            self.order: NDArray[np.int64] = _map(folder / "order.bin", np.dtype(np.int64), count)
            self.labels: NDArray[np.int32] | None = None
            if self.label_names is not None:
                self.labels = _map(folder / "labels.bin", np.dtype(np.int32), count)
            self.sources, self.longest_source = _map_sources(folder, meta.get("source"), count)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedStore(f"{folder} is not a whole token store: {' '.join(str(error).split())}") from error
        self.length_counts = np.zeros(lengths[-1, 0] + 1 if len(lengths) else 0, dtype=np.int64)
        self.length_counts[lengths[:, 0]] = lengths[:, 1]
        if self.offsets[-1] != size or self.length_counts.sum() != count:
            raise DamagedStore(f"{folder} is not a whole token store: its counts disagree")

    def __len__(self) -> int:
        return self.ledger.sentences

    def __reduce__(self) -> tuple[type["TokenStore"], tuple[Path]]:
        return TokenStore, (self.folder,)  # another process maps the files again

    def length(self, number: int) -> int:
        """Return the number of tokens of a sentence."""
        return int(self.offsets[number + 1] - self.offsets[number])

    def sentence(self, number: int) -> NDArray[np.int64]:
        """Return the ids of a sentence."""
        if not 0 <= number < len(self):
            raise IndexError(f"sentence {number} of {len(self)}")
        return self.tokens[self.offsets[number] : self.offsets[number + 1]].astype(np.int64)

    @property
    def longest(self) -> int:
        """Tokens of the longest sentence."""
        return max(0, len(self.length_counts) - 1)


Sources = tuple[NDArray[np.integer], NDArray[np.int64]]  # tokens, offsets


def _map_sources(folder: Path, meta: dict[str, Any] | None, count: int) -> tuple[Sources | None, int]:
    if meta is None:
        return None, 0
    tokens = _map(folder / "source_tokens.bin", np.dtype(meta["dtype"]), meta["tokens"])
    offsets = _map(folder / "source_offsets.bin", np.dtype(np.int64), count + 1)
    if offsets[-1] != meta["tokens"]:
        raise ValueError("its counts disagree")
    return (tokens, offsets), int(meta["longest"])


class _SourceWriter:
    """Writes what the encoder reads with a tokeniser of its own."""

    def __init__(self, folder: Path, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._dtype = np.dtype(np.uint16 if len(vocabulary) < 65536 else np.uint32)
        self.files = [(folder / f"source_{name}.bin").open("wb") for name in ("tokens", "offsets")]
        np.zeros(1, dtype=np.int64).tofile(self.files[1])
        self._tokens = self._longest = 0

    def write(self, texts: list[str]) -> None:
        """Add sentences."""
        rows = self._vocabulary.encode_batch(texts)
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        np.concatenate(rows).astype(self._dtype).tofile(self.files[0])
        (self._tokens + np.cumsum(lengths)).tofile(self.files[1])
        self._tokens += int(lengths.sum())
        self._longest = max(self._longest, int(lengths.max()))

    def meta(self) -> dict[str, Any]:
        """Return what the store must remember."""
        return {"dtype": self._dtype.name, "tokens": self._tokens, "longest": self._longest}


class StoreWriter:
    """Writes a store sentence by sentence, in bounded memory; `commit` puts it in its place, leaving it discards it."""

    def __init__(
        self, key: str, vocabulary: Vocabulary, label_names: Sequence[str] | None = None, limit: Limit | None = None
    ) -> None:
        self.folder = store_folder(key)
        self._vocabulary = vocabulary
        self._label_names = label_names
        self._label_ids = {name: number for number, name in enumerate(label_names or ())}
        self._limit = limit
        self._texts: list[str] = []
        self._labels: list[int] = []
        self._characters = 0
        self._ledger = Ledger()
        self._cut = {"truncated": 0, "dropped": 0, "cut_words": 0}
        self._length_counts = np.zeros(1, dtype=np.int64)
        self._dtype = np.dtype(np.uint16 if len(vocabulary) < 65536 else np.uint32)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(self.folder.parent)
        self._temporary = _temporary_sibling(self.folder)
        self._temporary.mkdir()
        self._files = {name: (self._temporary / f"{name}.bin").open("wb") for name in ("tokens", "offsets", "labels")}
        np.zeros(1, dtype=np.int64).tofile(self._files["offsets"])
        own = vocabulary.encoder
        self._sources = None if own is None else _SourceWriter(self._temporary, own)

    @property
    def _open_files(self) -> list[Any]:
        return [*self._files.values(), *(self._sources.files if self._sources else ())]

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open_files:
            file.close()
        shutil.rmtree(self._temporary, ignore_errors=True)

    def add(self, text: str, label: str | None = None) -> None:
        """Add a whitespace-normalised sentence; the length limit applies. An unknown label raises KeyError."""
        kept = self._limit.cut(text) if self._limit else text
        if kept is not text:
            lost = text.count(" ") + 1 - (kept.count(" ") + 1 if kept else 0)
            self._cut["dropped" if kept is None else "truncated"] += 1
            self._cut["cut_words"] += lost
            if kept is None:
                return
        self._labels.append(-1 if label is None else self._label_ids[label])
        self._texts.append(kept)
        self._characters += len(kept)
        if len(self._texts) == _BATCH_SENTENCES or self._characters > _BATCH_CHARACTERS:
            self._flush()

    def add_blank_lines(self, count: int) -> None:
        """Count lines that were skipped."""
        self._ledger += Ledger(blank_lines=count)

    def _flush(self) -> None:
        if not self._texts:
            return
        rows = self._vocabulary.encode_batch(self._texts)
        if self._sources is not None:
            self._sources.write(self._texts)
        ids = np.concatenate(rows)
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        ids.astype(self._dtype).tofile(self._files["tokens"])
        (self._ledger.tokens + np.cumsum(lengths)).tofile(self._files["offsets"])
        np.array(self._labels, dtype=np.int32).tofile(self._files["labels"])
        counts = np.bincount(lengths, minlength=len(self._length_counts))
        counts[: len(self._length_counts)] += self._length_counts
        self._length_counts = counts
        self._ledger += Ledger(
            sentences=len(rows),
            words=sum(text.count(" ") + 1 for text in self._texts),
            tokens=len(ids),
            bytes=sum(len(text) if text.isascii() else len(text.encode()) for text in self._texts) + len(rows),
            unknown=int(np.count_nonzero(ids == UNK)),
        )
        self._texts, self._labels, self._characters = [], [], 0

    def commit(self) -> TokenStore:
        """Finish the files and move them into place, unless another process was faster; return the store."""
        self._flush()
        for file in self._open_files:
            file.flush()
            os.fsync(file.fileno())
            file.close()
        if self._label_names is None:
            (self._temporary / "labels.bin").unlink()
        _write_order(self._temporary, self._length_counts)
        present = np.flatnonzero(self._length_counts)
        meta = {
            "format": FORMAT,
            "dtype": self._dtype.name,
            "ledger": (self._ledger + Ledger(**self._cut)).to_dict(),
            "label_names": None if self._label_names is None else list(self._label_names),
            "length_counts": np.stack((present, self._length_counts[present]), axis=1).tolist(),
        }
        if self._sources is not None:
            meta["source"] = self._sources.meta()
        write_atomically(self._temporary / "meta.json", json.dumps(meta, indent=1))
        _sync_folder(self._temporary)
        return _publish(self._temporary, self.folder)


def store_folder(key: str) -> Path:
    """Return the folder of the store with a key, whether it exists or not."""
    return cache_folder() / "tokens" / key


def open_store(key: str) -> TokenStore | None:
    """Return the cached store with a key; None if there is none, or only a damaged one."""
    try:
        return TokenStore(store_folder(key))
    except DamagedStore:
        return None


def _map(path: Path, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """Map a file of `count` numbers, as a plain array (np.memmap's own indexing is slow)."""
    if path.stat().st_size != count * dtype.itemsize:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes, not {count * dtype.itemsize}")
    if count == 0:  # an empty file cannot be mapped
        return np.zeros(0, dtype=dtype)
    return np.asarray(np.memmap(path, dtype=dtype, mode="r", shape=(count,)))


def _write_order(folder: Path, length_counts: NDArray[np.int64]) -> None:
    """Sort the sentences by length, stably: a counting sort over chunks, so that memory does not grow."""
    count = int(length_counts.sum())
    if count == 0:
        (folder / "order.bin").touch()
        return
    offsets = _map(folder / "offsets.bin", np.dtype(np.int64), count + 1)
    order = np.memmap(folder / "order.bin", dtype=np.int64, mode="w+", shape=(count,))
    place = np.cumsum(length_counts) - length_counts  # where the next sentence of each length goes
    for first in range(0, count, _SORT_CHUNK):
        lengths = np.diff(offsets[first : first + _SORT_CHUNK + 1])
        by_length = np.argsort(lengths, kind="stable")
        values, starts, repeats = np.unique(lengths[by_length], return_index=True, return_counts=True)
        rank = np.arange(len(lengths)) - np.repeat(starts, repeats)
        order[np.repeat(place[values], repeats) + rank] = first + by_length
        place[values] += repeats
    order.flush()


def _publish(temporary: Path, final: Path) -> TokenStore:
    """Rename a finished folder; where a whole store has appeared meanwhile, return that; replace a damaged one."""
    for _ in range(100):
        try:
            temporary.rename(final)
        except OSError:
            if not final.is_dir():
                raise
            try:
                return TokenStore(final)
            except DamagedStore:
                _remove(final)
        else:
            _sync_folder(final.parent)
            try:
                return TokenStore(final)
            except DamagedStore as error:
                raise ZentenceError(f"The token cache was changed while in use: {error}") from error
    raise ZentenceError(f"Cannot replace the damaged token store {final}: remove it")


def _remove(folder: Path) -> None:
    """Remove a folder in one step as others see it: rename, then delete."""
    aside = _temporary_sibling(folder)
    with suppress(FileNotFoundError):  # another process was faster
        folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _temporary_sibling(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.{os.getpid()}.{secrets.token_hex(4)}")


def _sweep(folder: Path) -> None:
    """Delete temporary folders that a killed process left long ago."""
    for left in folder.glob(".*"):
        with suppress(OSError):  # another process was faster
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return  # Windows cannot open folders
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
