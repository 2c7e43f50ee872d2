import json
import os
import pickle
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zentence.corpora import store as module
from zentence.corpora.ledger import Ledger
from zentence.corpora.store import DamagedStore, Limit, StoreWriter, TokenStore, cache_folder, content_key, open_store
from zentence.corpora.vocabulary import Vocabulary, build_vocabulary
from zentence.settings import CorpusSettings

WORDS = ("a", "b", "c", "ü")
sentences = st.lists(st.sampled_from([*WORDS, "zebra", "<eos>"]), min_size=1, max_size=9).map(" ".join)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZENTENCE_CACHE", str(tmp_path / "cache"))


def make_vocabulary(words: Sequence[str] = WORDS) -> Vocabulary:
    return build_vocabulary(Counter(words), CorpusSettings(max_vocabulary=100_000))


def write(texts: Sequence[str], key: str | None = None, **options: Any) -> TokenStore:
    key = key or content_key(texts=list(texts), options=str(options))
    with StoreWriter(key, make_vocabulary(), **options) as writer:
        for text in texts:
            writer.add(text)
        return writer.commit()


@settings(max_examples=30, deadline=None)
@given(st.lists(sentences, max_size=30), st.integers(1, 8), st.sampled_from(["none", "truncate", "drop"]))
def test_keeps_every_sentence_and_the_ledger_adds_up(texts: list[str], max_words: int, mode: str) -> None:
    limit = None if mode == "none" else Limit(max_words, mode == "drop")
    store = write(texts, limit=limit)
    kept = [cut for text in texts if (cut := limit.cut(text) if limit else text) is not None]
    words = [text.split() for text in kept]
    assert [store.sentence(i).tolist() for i in range(len(store))] == [
        row.tolist() for row in make_vocabulary().encode_batch(kept)
    ]
    ledger = store.ledger
    every = sum(len(text.split()) for text in texts)
    assert ledger.words + ledger.cut_words == every
    assert ledger.sentences + ledger.dropped == len(texts)
    assert ledger.tokens == ledger.words == sum(map(len, words)) == len(store.tokens)
    assert ledger.bytes == sum(len(text.encode()) + 1 for text in kept)
    assert ledger.unknown == sum(word not in WORDS for row in words for word in row)
    lengths = [store.length(i) for i in range(len(store))]
    assert store.order.tolist() == sorted(range(len(store)), key=lengths.__getitem__)
    assert store.length_counts.tolist() == np.bincount(np.array(lengths, dtype=int)).tolist()


def test_sorts_and_writes_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SORT_CHUNK", 7)
    monkeypatch.setattr(module, "_BATCH_SENTENCES", 5)
    lengths = np.random.default_rng(0).integers(1, 6, size=100)
    store = write([" ".join("a" * n) for n in lengths])
    assert store.order.tolist() == np.argsort(lengths, kind="stable").tolist()
    assert np.diff(store.offsets).tolist() == lengths.tolist()


def test_flushes_by_characters_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_CHARACTERS", 10)
    assert write(["a b c a b c a", "b", "c c c c c c c c"]).sentence(1).tolist() == [5]


def test_labels() -> None:
    with StoreWriter("labelled", make_vocabulary(), ["neg", "pos"]) as writer:
        for text, label in (("a", "pos"), ("b b", "neg"), ("c", "pos")):
            writer.add(text, label)
        with pytest.raises(KeyError):
            writer.add("a", "neutral")
        store = writer.commit()
    assert store.labels is not None and store.labels.tolist() == [1, 0, 1]
    assert store.label_names == ("neg", "pos")
    assert write(["a"]).labels is None


def test_a_sentence_that_was_refused_leaves_no_trace() -> None:
    with StoreWriter("refused", make_vocabulary(), ["x"]) as writer:
        with pytest.raises(KeyError):
            writer.add("a b", "y")
        writer.add("b", "x")
        store = writer.commit()
    assert len(store) == 1 and store.labels is not None and store.labels.tolist() == [0]


def test_the_type_of_tokens_follows_the_vocabulary() -> None:
    assert write(["a"]).tokens.dtype == np.uint16
    large = make_vocabulary([f"w{i}" for i in range(70_000)])
    with StoreWriter("large", large) as writer:
        writer.add("w69999 w0")
        store = writer.commit()
    assert store.tokens.dtype == np.uint32
    assert store.sentence(0).tolist() == large.encode_batch(["w69999 w0"])[0].tolist()
    assert max(store.sentence(0)) > 65535


def test_leaving_without_commit_leaves_nothing() -> None:
    with pytest.raises(RuntimeError), StoreWriter("left", make_vocabulary()) as writer:
        writer.add("a")
        raise RuntimeError
    assert list((cache_folder() / "tokens").iterdir()) == []


def test_two_writers_of_one_store_end_well() -> None:
    with StoreWriter("same", make_vocabulary()) as first, StoreWriter("same", make_vocabulary()) as second:
        first.add("a")
        second.add("a")
        stores = [first.commit(), second.commit()]
    assert [store.sentence(0).tolist() for store in stores] == [[4], [4]]
    assert [path.name for path in (cache_folder() / "tokens").iterdir()] == ["same"]


@pytest.mark.parametrize("name", ["tokens.bin", "offsets.bin", "order.bin", "meta.json"])
def test_a_damaged_store_is_seen_and_replaced(name: str) -> None:
    folder = write(["a b", "c"], key="damaged").folder
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-2])
    assert open_store("damaged") is None
    with pytest.raises(DamagedStore):
        TokenStore(folder)
    assert write(["a b", "c"], key="damaged").sentence(0).tolist() == [4, 5]
    assert open_store("damaged") is not None
    (folder / name).unlink()
    assert open_store("damaged") is None
    assert [path.name for path in (cache_folder() / "tokens").iterdir()] == ["damaged"]


def test_counts_that_disagree_are_damage() -> None:
    folder = write(["a b", "c"], key="counts").folder
    meta = json.loads((folder / "meta.json").read_text())
    meta["length_counts"] = [[1, 1]]
    (folder / "meta.json").write_text(json.dumps(meta))
    assert open_store("counts") is None
    meta["format"] = 0
    (folder / "meta.json").write_text(json.dumps(meta))
    assert open_store("counts") is None
    assert open_store("none") is None


def test_old_left_overs_are_swept_and_young_ones_kept() -> None:
    folder = cache_folder() / "tokens"
    for name, age in ((".old.x", 30 * 24 * 3600), (".young.x", 0)):
        (folder / name).mkdir(parents=True)
        os.utime(folder / name, (time.time() - age,) * 2)
    write(["a"], key="new")
    assert sorted(path.name for path in folder.iterdir()) == [".young.x", "new"]


def test_empty_stores_blank_lines_and_bounds() -> None:
    with StoreWriter("empty", make_vocabulary()) as writer:
        writer.add_blank_lines(3)
        store = writer.commit()
    assert len(store) == 0 and store.ledger == Ledger(blank_lines=3)
    with pytest.raises(IndexError):
        write(["a"]).sentence(1)


def test_another_process_maps_the_files_again() -> None:
    data = pickle.dumps(write(["a b c"] * 1000))
    assert len(data) < 500
    assert pickle.loads(data).sentence(999).tolist() == [4, 5, 6]


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("ZENTENCE_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "zentence"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "zentence"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_folder() == Path.home() / "Library" / "Caches" / "zentence"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    assert cache_folder() == tmp_path / "zentence"


def test_limit_counts_words() -> None:
    assert Limit(3, False).cut("a b c") == "a b c"
    assert Limit(2, False).cut("a b c d") == "a b"
    assert Limit(2, True).cut("a b c") is None
    assert Limit(1, False).cut("a b") == "a"
