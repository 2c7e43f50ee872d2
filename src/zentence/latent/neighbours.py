"""Neighbours: an index of sentences by their codes, on disk, and the search in it.

The search is exact (`nearest.py`). Beyond a million codes a graph makes it quicker and approximate (HNSW: Malkov and
Yashunin 2016, arXiv:1603.09320). It is the library usearch's: wheels of 2 MB without an OpenMP of their own, and graphs
that are used where they lie on disk.
"""

import importlib.metadata
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from zentence.corpora.readers import LabelMode, display_name, read_sentences
from zentence.errors import ZentenceError
from zentence.files import write_atomically
from zentence.latent.nearest import METRICS, Ids, Metric, Scores, check_metric, nearest
from zentence.latent.space import Codes, LatentSpace
from zentence.latent.streams import Announce, Progress, encode_file, model_identity

FORMAT = 1
KIND = "zentence index"
EXACT_LIMIT = 1_000_000  # codes; beyond, a graph is built where its library is installed
CONNECTIVITY, EXPANSION_ADD, EXPANSION_SEARCH = 16, 128, 256  # of the graph: edges a code, candidates while it grows, …


class Index:
    """Sentences and their codes in a folder: `codes.npy`, `sentences.txt`, `offsets.npy`, `meta.json`, perhaps a graph.

    All of it stays on disk and is mapped, so that an index of any size opens at once.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ZentenceError(f"{folder} is not an index: build one with `zentence index`") from None
        except (OSError, ValueError) as error:
            raise ZentenceError(f"{folder} is a damaged index: meta.json cannot be read") from error
        try:
            if meta["kind"] != KIND or meta["format"] > FORMAT:
                raise ZentenceError(f"{folder} is not an index that this zentence reads: build it anew")
            self.meta: dict[str, Any] = meta
            self.metric: Metric = meta["metric"]
            self.codes: Codes = np.load(folder / "codes.npy", mmap_mode="r", allow_pickle=False)
            self._offsets: Ids = np.load(folder / "offsets.npy", mmap_mode="r", allow_pickle=False)
            self._text = np.memmap(folder / "sentences.txt", dtype=np.uint8, mode="r")
            whole = self.codes.shape == (meta["count"], meta["size"]) and self._offsets.shape == (meta["count"] + 1,)
            whole = whole and self.codes.dtype == np.float32 and int(self._offsets[-1]) == len(self._text)
            if not whole or self.metric not in METRICS:
                raise ValueError("its files disagree")
        except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
            why = " ".join(str(error).split())
            raise ZentenceError(f"{folder} is a damaged index ({why}): build it anew") from error
        self._graph: Any = None
        self.why_exact: str | None = None  # a graph that could not be used, and why
        self.warnings: list[str] = []  # of building it

    @classmethod
    def open(cls, folder: str | Path) -> "Index":
        """Open the index in a folder."""
        return cls(Path(folder))

    @classmethod
    def build(
        cls,
        space: LatentSpace,
        source: str | Path | Iterable[str],
        out: str | Path,
        *,
        metric: Metric = "euclidean",
        graph: bool | None = None,
        labels: LabelMode = "auto",
        overwrite: bool = False,
        progress: Progress | None = None,
        announce: Announce | None = None,
    ) -> "Index":
        """Write an index of a file's sentences (a path), or of sentences; a build that was ended goes on.

        `graph`: build one for the approximate search; by default beyond a million codes. `announce` as in
        `encode_file`.
        """
        out = Path(out)
        check_metric(metric)
        _check_free(out, overwrite)
        work = out.with_name(f".{out.name}.partial")
        try:
            work.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ZentenceError(f"Cannot write {out}: {error.strerror}") from error
        done = False
        try:
            count = _write_sentences(source, labels, work, progress)
            where = f"{display_name(source)}, sentence" if isinstance(source, (str, Path)) else "sentence"
            text, codes = work / "sentences.txt", work / "codes.npy"
            # a part left by another model or text is noticed by its journal; finished codes have none, so are redone
            made = encode_file(space, text, codes, labels="no", where=where, progress=progress, announce=announce)
            warnings, built = list(made.warnings), None
            if count > EXACT_LIMIT if graph is None else graph:
                built = _write_graph(work, metric, progress)
                warnings += [] if built else [f"{_NOT_INSTALLED}: no graph is built, and the search will be exact"]
            owner = {"model": model_identity(space), "vocabulary": space.vocabulary.hash}
            content = {"count": count, "size": space.size, "metric": metric, "graph": built}
            meta = {"kind": KIND, "format": FORMAT, **owner, **content}
            write_atomically(work / "meta.json", json.dumps(meta, indent=1))
            _publish(work, out)
            done = True
        except OSError as error:
            raise ZentenceError(f"Cannot write {out}: {error.strerror or error}") from error
        finally:
            if not done and not (work / ".codes.npy.journal").exists():
                shutil.rmtree(work, ignore_errors=True)
        index = cls(out)
        index.warnings = warnings
        return index

    def __len__(self) -> int:
        return int(self.meta["count"])

    @property
    def size(self) -> int:
        """Dimensions of a code."""
        return int(self.meta["size"])

    def sentence(self, number: int) -> str:
        """Return a sentence by its number, from 0."""
        if not 0 <= number < len(self):
            raise IndexError(f"sentence {number} of {len(self)}")
        first, end = int(self._offsets[number]), int(self._offsets[number + 1])
        return bytes(self._text[first : end - 1]).decode("utf-8")

    def check(self, space: LatentSpace) -> None:
        """Complain if the codes are another model's."""
        if (self.meta["model"], self.meta["vocabulary"]) != (model_identity(space), space.vocabulary.hash):
            raise ZentenceError(f"{self.folder} is an index of another model: build one of this with `zentence index`")

    def search(
        self, codes: NDArray[Any], k: int = 10, *, metric: Metric | None = None, exact: bool | None = None
    ) -> tuple[Ids, Scores]:
        """Return the numbers [N, k] of the nearest sentences to codes [N, D], nearest first, and their scores [N, k].

        Scores are euclidean distances, or cosines (of a zero code: 0). Of equal ones the lower number comes first.
        There are fewer than k where the index is smaller. `exact` False asks for the graph, which knows its own metric.
        """
        metric = check_metric(metric or self.metric)
        queries = np.asarray(codes, dtype=np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.size:
            raise ZentenceError(f"Codes must have shape [N, {self.size}], not {list(queries.shape)}")
        if not np.isfinite(queries).all():
            raise ZentenceError("Codes must be finite numbers")
        if k < 1:
            raise ZentenceError("Ask for at least 1 neighbour")
        k = min(k, len(self))
        if self.is_exact(metric, exact):
            return nearest(self.codes, queries, k, metric)
        return self._by_graph(queries, k, metric)

    def is_exact(self, metric: Metric | None = None, exact: bool | None = None) -> bool:
        """Tell whether a search is exact; if that is for want of something, `why_exact` says of what."""
        graph, self.why_exact = self.meta["graph"], None
        if exact or graph is None:
            if exact is False:
                raise ZentenceError(f"{self.folder} has no graph for an approximate search: build it with one")
            return True
        if (metric or self.metric) != self.metric:
            self.why_exact = f"the index has a graph for {self.metric} only: the search is exact, and slower"
        elif self._graph is None:
            try:
                from usearch.index import Index as Graph

                self._graph = Graph.restore(str(self.folder / graph["file"]), view=True)
                self._graph.expansion_search = EXPANSION_SEARCH
            except ImportError:
                self.why_exact = f"{_NOT_INSTALLED}: the search is exact, and slower"
            except (OSError, RuntimeError, ValueError) as error:
                raise ZentenceError(f"{self.folder} is a damaged index ({error}): build it anew") from error
        return self.why_exact is not None

    def _by_graph(self, queries: Codes, k: int, metric: Metric) -> tuple[Ids, Scores]:
        """Let the graph propose, and rank what it proposes exactly."""
        wanted = min(len(self), max(2 * k, 32))
        ids, scores = np.empty((len(queries), k), dtype=np.int64), np.empty((len(queries), k))
        matches = self._graph.search(queries, wanted, threads=torch.get_num_threads())
        several = len(queries) > 1  # of one query usearch gives its matches alone
        for number, query in enumerate(queries):
            found = np.sort((matches[number] if several else matches).keys.astype(np.int64))
            if len(found) < k:  # a graph may miss codes that nothing leads to
                ids[number], scores[number] = (row[0] for row in nearest(self.codes, query[None], k, metric))
                continue
            best, value = nearest(np.asarray(self.codes[found]), query[None], k, metric)
            ids[number], scores[number] = found[best[0]], value[0]
        return ids, scores


_NOT_INSTALLED = "the library usearch is not installed (pip install 'zentence[search]')"


def _check_free(out: Path, overwrite: bool) -> None:
    """Complain if an index cannot go where something is: only another index is ever replaced."""
    if not out.exists():
        return
    if not overwrite:
        raise ZentenceError(f"{out} exists: choose another name, or pass --overwrite")
    try:
        ours = json.loads((out / "meta.json").read_text(encoding="utf-8"))["kind"] == KIND
    except (OSError, ValueError, KeyError, TypeError):
        ours = False
    if not ours:
        raise ZentenceError(f"{out} is not an index: it is not overwritten; choose another name")


def _write_sentences(
    source: str | Path | Iterable[str], labels: LabelMode, folder: Path, progress: Progress | None
) -> int:
    """Write sentences.txt, one a line, and offsets.npy, where each begins; return how many there are."""

    def told(done: int, total: int) -> None:
        if progress is not None:
            progress("reading", done, total, "bytes")

    if isinstance(source, (str, Path)):
        texts: Iterable[str] = (line.text for line in read_sentences(source, labels, progress=told))
    else:
        texts = (" ".join(text.split()) for text in source)
    count = position = 0
    with (folder / "sentences.txt").open("wb") as file, (folder / "offsets.bin").open("wb") as offsets:
        np.zeros(1, dtype=np.int64).tofile(offsets)
        pending: list[int] = []
        for count, text in enumerate(texts, 1):
            if not text:
                raise ZentenceError(f"Sentence {count} is empty")
            position += file.write(text.encode() + b"\n")
            pending.append(position)
            if len(pending) == 1 << 16:
                np.array(pending, dtype=np.int64).tofile(offsets)
                pending = []
        np.array(pending, dtype=np.int64).tofile(offsets)
    if count == 0:
        raise ZentenceError("There is no sentence to index")
    found = np.memmap(folder / "offsets.bin", dtype=np.int64, mode="r")
    np.save(folder / "offsets.npy", found)
    (folder / "offsets.bin").unlink()
    return count


def _write_graph(folder: Path, metric: Metric, progress: Progress | None) -> dict[str, str] | None:
    """Build and save a graph of the codes; return what it is, or None where its library is not installed.

    It depends on the number of threads: with one, and only then, it comes out the same each time.
    """
    try:
        from usearch.index import Index as Graph
    except ImportError:
        return None
    codes: Codes = np.load(folder / "codes.npy", mmap_mode="r", allow_pickle=False)
    kind = "l2sq" if metric == "euclidean" else "cos"
    graph = Graph(
        ndim=codes.shape[1],
        metric=kind,
        dtype="f32",
        connectivity=CONNECTIVITY,
        expansion_add=EXPANSION_ADD,
        expansion_search=EXPANSION_SEARCH,
    )
    rows = 1 << 15
    for first in range(0, len(codes), rows):
        part = np.array(codes[first : first + rows])
        graph.add(np.arange(first, first + len(part)), part, threads=torch.get_num_threads())
        if progress is not None:
            progress("linking", first + len(part), len(codes), "codes")
    graph.save(str(folder / "graph.usearch"))
    return {"file": "graph.usearch", "library": "usearch", "version": importlib.metadata.version("usearch")}


def _publish(work: Path, out: Path) -> None:
    """Give a finished folder its name; an index that was there is moved aside first and then removed."""
    if not out.exists():
        work.rename(out)
        return
    aside = out.with_name(f".{out.name}.{os.getpid()}.old")
    out.rename(aside)
    work.rename(out)
    shutil.rmtree(aside, ignore_errors=True)
