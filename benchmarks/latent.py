"""What streams of sentences and codes cost: encoding, decoding, and the search for neighbours."""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.harness import Row, Section, measure
from benchmarks.shapes import CODE, VOCABULARY, WORDS, ptb_model, ptb_settings, seconds
from zentence.corpora import collate
from zentence.corpora.vocabulary import build_vocabulary
from zentence.latent import LatentSpace
from zentence.latent.nearest import nearest
from zentence.latent.streams import BATCH_SENTENCES, decode_stream, encode_file, open_codes
from zentence.machine import prepare_process
from zentence.settings import CorpusSettings

SENTENCES, CODES, FEW_CODES, INDEXED, QUERIES = 100_000, 10_000, 1_000, 1_000_000, 32
ALONE = 40  # codes decoded one by one


def _space() -> LatentSpace:
    words = {f"w{number:05}": 1 for number in range(VOCABULARY - 4)}
    model = ptb_model().eval()
    with torch.no_grad():
        model.decoder.output.weight[2] = 0.0  # an untrained model that does not end early
    return LatentSpace(model, build_vocabulary(words, CorpusSettings()), ptb_settings())


def _anonymous_mb() -> float:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return float(lines["RssAnon"].split()[0]) / 1024.0


def measure_decoding(count: str) -> dict[str, float]:
    """Greedy decoding of a file of codes to 20 words each, and one code at a time before and after."""
    prepare_process()
    space = _space()

    def alone() -> float:
        began = time.perf_counter()
        for number in range(ALONE):
            space.decode(np.array(codes[number : number + 1]), max_words=20)
        return ALONE / (time.perf_counter() - began)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "codes.npy"
        np.save(path, np.random.default_rng(0).normal(size=(int(count), CODE)).astype(np.float32))
        codes = open_codes(path, space)
        before = alone()
        began = time.perf_counter()
        written = sum(len(part) for part in decode_stream(space, codes, max_words=20))
        together = written / (time.perf_counter() - began)
        return {"batched": together, "one_by_one": max(before, alone()), "rss_anon_mb": _anonymous_mb()}


@torch.no_grad()
def measure_encoding(count: str) -> dict[str, float]:
    """`encode` from a text file to a file of codes, and the encoder's bare forward pass over ready batches."""
    prepare_process()
    space, random = _space(), np.random.default_rng(0)
    lengths = np.clip(np.rint(random.normal(WORDS, 10.0, size=int(count))), 1, 80).astype(int)
    rows = np.sort(lengths)[: int(count) // BATCH_SENTENCES * BATCH_SENTENCES].reshape(-1, BATCH_SENTENCES)
    rows = rows[len(rows) // 200 :: max(1, len(rows) // 100)]  # a hundred batches: short, middling and long sentences
    ready = [collate([random.integers(4, VOCABULARY, size=n) for n in row], np.arange(len(row))) for row in rows]

    def bare() -> float:
        began = time.perf_counter()
        for batch in ready:
            space.model.infer(batch.source).center.sum()
        return len(ready) * BATCH_SENTENCES / (time.perf_counter() - began)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.txt"
        with path.open("w", encoding="utf-8") as file:
            for length in lengths:
                numbers = random.integers(0, VOCABULARY - 4, size=length)
                file.write(" ".join(f"w{number:05}" for number in numbers) + "\n")
        bare()  # warm
        speeds = [bare(), bare()]
        began = time.perf_counter()
        encode_file(space, path, Path(folder) / "codes.npy")
        streamed = int(count) / (time.perf_counter() - began)
        speeds += [bare(), bare()]
        return {"streamed": streamed, "forward": float(np.median(speeds))}


def measure_neighbours(count: str) -> dict[str, float]:
    """Exact search for the 10 nearest codes of a mapped file, in batches of 32 queries; milliseconds a query."""
    prepare_process()
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "codes.npy"
        np.save(path, random.standard_normal((int(count), CODE), dtype=np.float32))
        codes = np.load(path, mmap_mode="r", allow_pickle=False)
        queries = random.standard_normal((QUERIES, CODE), dtype=np.float32)
        found = {}
        for metric in ("euclidean", "cosine"):
            found[metric] = 1e3 / QUERIES * seconds(lambda metric=metric: nearest(codes, queries, 10, metric), 2.0)  # type: ignore[misc]
        return found


MEASUREMENTS = {"decoding": measure_decoding, "encoding": measure_encoding, "neighbours": measure_neighbours}


def section() -> Section:
    """Measure and return the table."""
    few, many = measure("latent", "decoding", FEW_CODES), measure("latent", "decoding", CODES)
    encoding, search = measure("latent", "encoding", SENTENCES), measure("latent", "neighbours", INDEXED)
    rows = [
        Row(
            f"greedy decoding of a file of {CODES:,} codes",
            f"{many['batched']:,.0f} sentences/s",
            f"{many['batched'] / many['one_by_one']:.1f} × one by one",
            "≥ 10 ×",
        ),
        Row(
            f"anonymous memory, {CODES:,} against {FEW_CODES:,} codes",
            f"{many['rss_anon_mb']:.0f} MB against {few['rss_anon_mb']:.0f} MB",
            f"{many['rss_anon_mb'] / few['rss_anon_mb']:.2f} ×",
            "flat",
        ),
        Row(
            f"encoding a file of {SENTENCES:,} sentences",
            f"{encoding['streamed']:,.0f} sentences/s",
            f"{encoding['streamed'] / encoding['forward']:.0%} of the bare forward pass",
            "≥ 80 %",
        ),
        *(
            Row(
                f"exact 10 nearest of {INDEXED:,} codes, {metric}, {QUERIES} queries at once",
                f"{search[metric]:.1f} ms a query",
                "",
                "< 50 ms",
            )
            for metric in search
        ),
    ]
    before = "Whole commands' work, files included; sentences of 21 ± 10 words, decoded ones of 20."
    return Section("Codes", rows, before)
