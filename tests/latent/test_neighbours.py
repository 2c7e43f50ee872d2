"""The search against comparing all pairs in float64, and indices on disk."""

import builtins
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_streams import Stopped, make, stop_at

from zentence.errors import ZentenceError
from zentence.latent import LatentSpace, nearest, neighbours, streams
from zentence.latent.nearest import Metric, pair_scores
from zentence.latent.neighbours import Index

SENTENCES = [
    "a cat sat .",
    "über größe ran .",
    "the dog ran to the cat .",
    "a dog .",
    "日本 \u2603 naïve .",
    "a cat sat .",
]


def brute_force(codes: Any, queries: Any, k: int, metric: Metric) -> tuple[Any, Any]:
    """Compare all pairs; ties by number."""
    codes, queries = np.asarray(codes, dtype=np.float64), np.asarray(queries, dtype=np.float64)
    pairs = [pair_scores(np.broadcast_to(query, codes.shape), codes, metric) for query in queries]
    order = [np.lexsort((np.arange(len(codes)), score if metric == "euclidean" else -score))[:k] for score in pairs]
    return np.array(order), np.array([score[row] for score, row in zip(pairs, order, strict=True)])


def test_scores_of_pairs_are_distances_and_cosines() -> None:
    a, b = np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0]]), np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    assert pair_scores(a, b, "euclidean") == pytest.approx([5.0, 1.0, 5.0**0.5])
    assert pair_scores(a, b, "cosine") == pytest.approx([0.0, 0.5**0.5, 0.0])


CASES = {
    "gaussian": lambda random: random.normal(size=(1000, 7)),
    "grid of ties": lambda random: random.integers(0, 3, size=(1000, 3)),
    "all alike": lambda random: np.ones((500, 4)),
    "far from zero": lambda random: 1000.0 + 0.001 * random.normal(size=(800, 5)),
    "nearer and nearer": lambda random: np.linspace(5.0, 0.0, 1000)[:, None] * np.ones(4),
    "tiny": lambda random: 1e-30 * random.normal(size=(300, 3)),
    "huge": lambda random: 1e25 * random.normal(size=(300, 3)),
    "one dimension": lambda random: random.normal(size=(400, 1)),
    "with zeros": lambda random: random.normal(size=(300, 3)) * random.integers(0, 2, size=(300, 1)),
}


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("chunk", [64, 1 << 21])
def test_the_search_equals_comparing_all_pairs(
    case: str, metric: Metric, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "CHUNK_NUMBERS", chunk)
    monkeypatch.setattr(nearest, "QUERIES", 5)
    random = np.random.default_rng(0)
    codes = CASES[case](random).astype(np.float32)
    queries = np.concatenate((codes[:9], codes[5:9] + codes[11:15]))
    for k in (1, 10):
        ids, scores = nearest.nearest(codes, queries, k, metric)
        expected, values = brute_force(codes, queries, k, metric)
        assert np.array_equal(ids, expected)
        assert np.array_equal(scores, values)


def test_more_neighbours_than_a_chunk_has_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "CHUNK_NUMBERS", 8)
    codes = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    ids, _ = nearest.nearest(codes, codes[:3], 50, "euclidean")
    assert np.array_equal(ids, brute_force(codes, codes[:3], 50, "euclidean")[0])


@pytest.fixture(scope="module")
def space() -> LatentSpace:
    return make()


def test_an_index_finds_sentences_by_their_codes(space: LatentSpace, tmp_path: Path) -> None:
    built = Index.build(space, SENTENCES, tmp_path / "index")
    assert built.warnings == []
    index = Index.open(tmp_path / "index")
    assert [index.sentence(i) for i in range(len(index))] == SENTENCES
    codes = space.encode(SENTENCES)
    assert np.asarray(index.codes) == pytest.approx(codes, abs=1e-6)
    ids, scores = index.search(np.asarray(index.codes), 3)
    assert ids.shape == scores.shape == (6, 3)
    assert ids[:, 0].tolist() == [0, 1, 2, 3, 4, 0]  # the last sentence is also the first: ties go by number
    assert ids[5].tolist()[:2] == [0, 5] and scores[5, 0] == scores[5, 1] == 0.0
    for metric in ("euclidean", "cosine"):
        expected = brute_force(index.codes, codes, 4, metric)  # type: ignore[arg-type]
        assert np.array_equal(index.search(codes, 4, metric=metric)[0], expected[0])  # type: ignore[arg-type]
    assert index.search(codes, 100)[0].shape == (6, 6)
    assert index.search(codes[:0], 2)[0].shape == (0, 2)
    with pytest.raises(IndexError):
        index.sentence(6)
    with pytest.raises(IndexError):
        index.sentence(-1)


def test_an_index_of_a_file_drops_labels_and_keeps_its_metric(space: LatentSpace, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("".join(f"x\t {s} \n\n" for s in SENTENCES), encoding="utf-8")
    index = Index.build(space, tmp_path / "text.txt", tmp_path / "index", metric="cosine")
    assert index.metric == "cosine" and [index.sentence(i) for i in range(6)] == SENTENCES
    codes = space.encode(SENTENCES)
    assert index.search(codes, 1)[1] == pytest.approx(np.ones((6, 1)), abs=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "text.txt"]
    assert sorted(path.name for path in (tmp_path / "index").iterdir()) == [
        *("codes.npy", "meta.json", "offsets.npy", "sentences.txt")
    ]


def test_a_build_that_was_ended_goes_on(space: LatentSpace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "WINDOW", 50)
    monkeypatch.setattr(streams, "BATCH_SENTENCES", 10)
    text = [f"a cat {'ran ' * (i % 7)}." for i in range(400)]
    whole = Index.build(space, text, tmp_path / "whole")
    with pytest.raises(Stopped):
        Index.build(space, text, tmp_path / "index", progress=stop_at(18))
    assert not (tmp_path / "index").exists()
    said: list[str] = []
    index = Index.build(space, text, tmp_path / "index", announce=said.append)
    assert "going on" in said[0]
    for name in ("codes.npy", "sentences.txt", "offsets.npy", "meta.json"):
        assert (index.folder / name).read_bytes() == (whole.folder / name).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "whole"]


def test_an_index_is_refused_where_it_does_not_belong(space: LatentSpace, tmp_path: Path) -> None:
    index = Index.build(space, SENTENCES, tmp_path / "index")
    index.check(space)
    with pytest.raises(ZentenceError, match="an index of another model"):
        index.check(make(spread=0.7))
    with pytest.raises(ZentenceError, match="index exists"):
        Index.build(space, SENTENCES, tmp_path / "index")
    assert len(Index.build(space, SENTENCES[:2], tmp_path / "index", overwrite=True)) == 2
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letters.txt").write_text("dear", encoding="utf-8")
    with pytest.raises(ZentenceError, match="mine is not an index: it is not overwritten"):
        Index.build(space, SENTENCES, tmp_path / "mine", overwrite=True)
    with pytest.raises(ZentenceError, match="mine is not an index: build one"):
        Index.open(tmp_path / "mine")
    for sentences, message in (([], "no sentence"), (["a", " "], "Sentence 2 is empty")):
        with pytest.raises(ZentenceError, match=message):
            Index.build(space, sentences, tmp_path / "none")
    with pytest.raises(ZentenceError, match="language model"):
        Index.build(make(language_model=True), SENTENCES, tmp_path / "none")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "mine"]


@pytest.mark.parametrize("damage", ["meta.json", "codes.npy", "sentences.txt", "offsets.npy"])
def test_a_damaged_index_is_refused(space: LatentSpace, tmp_path: Path, damage: str) -> None:
    folder = Index.build(space, SENTENCES, tmp_path / "index").folder
    (folder / damage).write_bytes((folder / damage).read_bytes()[:-9])
    with pytest.raises(ZentenceError, match="damaged index"):
        Index.open(folder)


def test_wrong_queries_are_refused(space: LatentSpace, tmp_path: Path) -> None:
    index = Index.build(space, SENTENCES, tmp_path / "index")
    for use, message in (
        (lambda: index.search(np.zeros((1, 3))), r"shape \[N, 2\]"),
        (lambda: index.search(np.full((1, 2), np.inf)), "finite"),
        (lambda: index.search(np.zeros((1, 2)), 0), "at least 1"),
        (lambda: index.search(np.zeros((1, 2)), metric="manhattan"), "Unknown metric 'manhattan'"),  # type: ignore[arg-type]
        (lambda: index.search(np.zeros((1, 2)), exact=False), "no graph"),
    ):
        with pytest.raises(ZentenceError, match=message):
            use()


def mixture_index(folder: Path, metric: Metric, monkeypatch: pytest.MonkeyPatch) -> Index:
    """Build an index with a graph whose codes are a Gaussian mixture of 8 dimensions, not a model's."""
    random = np.random.default_rng(0)
    codes = (random.normal(size=(20, 8))[random.integers(0, 20, size=4000)] * 2.0).astype(np.float32)
    codes += random.normal(size=codes.shape).astype(np.float32)

    def encode(_space: object, _source: object, out: Path, **_: object) -> streams.Done:
        np.save(out, codes)
        return streams.Done(len(codes), 0, None, [])

    space = make(("posterior.size=8",))
    monkeypatch.setattr(neighbours, "encode_file", encode)
    return Index.build(space, (f"s{i}" for i in range(4000)), folder, metric=metric, graph=True)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_the_graph_finds_nearly_what_the_exact_search_finds(
    metric: Metric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("usearch")
    index = mixture_index(tmp_path / "index", metric, monkeypatch)
    assert index.meta["graph"]["library"] == "usearch" and not index.is_exact()
    queries = np.asarray(index.codes[:200]) + 0.3
    exact, values = index.search(queries, 10, exact=True)
    found, scores = index.search(queries, 10)
    hits = [len(np.intersect1d(a, b)) for a, b in zip(exact, found, strict=True)]
    assert np.mean(hits) >= 9.0
    same = exact == found
    assert np.array_equal(scores[same], values[same])
    other: Metric = "cosine" if metric == "euclidean" else "euclidean"
    assert index.is_exact(other) and f"for {metric} only" in (index.why_exact or "")
    assert np.array_equal(index.search(queries, 5, metric=other)[0], brute_force(index.codes, queries, 5, other)[0])


def test_without_its_library_the_search_is_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("usearch")
    index = mixture_index(tmp_path / "index", "euclidean", monkeypatch)
    original = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name.startswith("usearch"):
            raise ImportError(name)
        return original(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    found = Index.open(index.folder)
    assert found.is_exact() and "usearch is not installed" in (found.why_exact or "")
    queries = np.asarray(found.codes[:5])
    assert np.array_equal(found.search(queries, 5)[0], brute_force(found.codes, queries, 5, "euclidean")[0])
    built = mixture_index(tmp_path / "other", "euclidean", monkeypatch)
    assert built.meta["graph"] is None and "usearch is not installed" in built.warnings[0]


def test_a_newer_format_is_refused(space: LatentSpace, tmp_path: Path) -> None:
    meta = Index.build(space, SENTENCES, tmp_path / "index").folder / "meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "format": 99}))
    with pytest.raises(ZentenceError, match="build it anew"):
        Index.open(meta.parent)
