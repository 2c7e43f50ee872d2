from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zentence.corpora.batching import Batches, collate, permute
from zentence.corpora.store import StoreWriter, TokenStore, content_key, open_store
from zentence.corpora.vocabulary import build_vocabulary
from zentence.errors import ZentenceError
from zentence.settings import CorpusSettings
from zentence.special import BOS, EOS, PAD
from zentence.types import Batch

VOCABULARY = build_vocabulary(Counter({f"w{i}": 1 for i in range(50)}), CorpusSettings())
lengths_lists = st.lists(st.integers(1, 12), min_size=3, max_size=60)
sizes = st.one_of(
    st.fixed_dictionaries({"sentences": st.integers(1, 9)}), st.fixed_dictionaries({"tokens": st.integers(1, 60)})
)


def make_store(lengths: Sequence[int], labelled: bool = False) -> TokenStore:
    key = content_key(test="batching", lengths=list(lengths), labelled=labelled)
    if store := open_store(key):
        return store
    with StoreWriter(key, VOCABULARY, ["0", "1", "2"] if labelled else None) as writer:
        for number, length in enumerate(lengths):
            text = " ".join(f"w{(number + k) % 50}" for k in range(length))
            writer.add(text, str(number % 3) if labelled else None)
        return writer.commit()


def global_batches(
    store: TokenStore, world: int, epoch: int, size: dict[str, int], **options: object
) -> list[list[int]]:
    """Join the processes' rows again."""
    parts = [list(Batches(store, **size, rank=rank, world=world, **options).epoch(epoch)) for rank in range(world)]
    assert len({len(part) for part in parts}) == 1
    joined = []
    for batches in zip(*parts, strict=True):
        assert {batch.total for batch in batches} == {sum(batch.size for batch in batches)}
        rows = [0] * batches[0].total
        for rank, batch in enumerate(batches):
            assert batch.size >= 1
            rows[rank::world] = batch.index.tolist()
        joined.append(rows)
    return joined


@given(st.integers(1, 3000), st.integers(0, 2**63))
def test_permute_is_a_bijection(size: int, key: int) -> None:
    image = permute(np.arange(size), np.full(size, size), np.full(size, key, dtype=np.uint64))
    assert sorted(image.tolist()) == list(range(size))


def test_permute_works_on_very_large_ranges() -> None:
    size = 10**12 + 1
    x = np.array([0, 1, size - 1])
    image = permute(x, np.full(3, size), np.full(3, 7, dtype=np.uint64))
    assert len(set(image.tolist())) == 3
    assert all(0 <= value < size for value in image.tolist())


@pytest.mark.parametrize("size", [2, 3, 4, 5, 17])
def test_permute_is_close_to_uniform(size: int) -> None:
    trials = 4000
    keys = np.repeat(np.arange(trials, dtype=np.uint64) * np.uint64(7919), size)
    image = permute(np.tile(np.arange(size), trials), np.full(size * trials, size), keys).reshape(trials, size)
    counts = np.stack([np.bincount(image[:, k], minlength=size) for k in range(size)])
    expected = trials / size
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)
    if size <= 4:
        orders = np.unique(image, axis=0, return_counts=True)[1]
        assert len(orders) == [2, 6, 24][size - 2]
        assert np.abs(orders - orders.mean()).max() < 5.5 * np.sqrt(orders.mean())


@settings(max_examples=40, deadline=None)
@given(lengths_lists, sizes, st.booleans(), st.integers(0, 5))
def test_every_sentence_once_per_epoch_and_within_the_budget(
    lengths: list[int], size: dict[str, int], shuffle: bool, epoch: int
) -> None:
    store = make_store(lengths)
    batches = global_batches(store, 1, epoch, size, shuffle=shuffle)
    assert sorted(i for rows in batches for i in rows) == list(range(len(lengths)))
    for rows in batches:
        longest = max(lengths[i] for i in rows)
        if "sentences" in size:
            assert len(rows) <= size["sentences"]
        else:
            assert len(rows) == 1 or len(rows) * (longest + 1) <= size["tokens"]
    if not shuffle:
        assert [i for rows in batches for i in rows] == store.order.tolist()
    if "sentences" in size:
        assert len(batches) == -(-len(lengths) // size["sentences"])


@settings(max_examples=30, deadline=None)
@given(lengths_lists, sizes, st.booleans(), st.integers(0, 3))
def test_processes_share_the_same_batches(lengths: list[int], size: dict[str, int], shuffle: bool, epoch: int) -> None:
    store = make_store(lengths)
    large = {name: max(value, 39) for name, value in size.items()}  # three rows of the longest fit
    alone = global_batches(store, 1, epoch, large, shuffle=shuffle)
    for world in (2, 3):
        if all(len(rows) >= world for rows in alone):  # else the last chunk joins the one before
            assert global_batches(store, world, epoch, large, shuffle=shuffle) == alone
    for world in (2, 3):  # however small the budget, each process has a row
        rows = global_batches(store, world, epoch, size, shuffle=shuffle)
        assert sorted(i for batch in rows for i in batch) == list(range(len(lengths)))


def test_a_last_chunk_too_small_for_the_processes_joins_the_one_before() -> None:
    store = make_store([5] * 9)
    assert [len(rows) for rows in global_batches(store, 1, 0, {"sentences": 4}, shuffle=False)] == [4, 4, 1]
    assert [len(rows) for rows in global_batches(store, 2, 0, {"sentences": 4}, shuffle=False)] == [4, 5]
    assert [len(rows) for rows in global_batches(store, 2, 0, {"tokens": 24}, shuffle=False)] == [4, 5]


def same(first: Batch, second: Batch) -> bool:
    return all(
        torch.equal(a, b)
        for a, b in ((first.source.ids, second.source.ids), (first.index, second.index), (first.inputs, second.inputs))
    )


def test_any_batch_can_be_made_directly_and_seeds_and_epochs_differ() -> None:
    store = make_store([3] * 40 + [7] * 40)
    batches = Batches(store, sentences=8, seed=1)
    everything = list(batches.epoch(2))
    assert len(everything) == len(batches) == 10
    assert all(same(a, b) for a, b in zip(batches.epoch(2, start=4), everything[4:], strict=True))
    assert same(Batches(store, sentences=8, seed=1).batch(2, 9), everything[9])

    def order(seed: int, epoch: int) -> list[int]:
        return [i for batch in Batches(store, sentences=8, seed=seed).epoch(epoch) for i in batch.index.tolist()]

    assert len({tuple(order(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4


def test_batches_hold_bos_words_eos_and_padding() -> None:
    store = make_store([2, 1], labelled=True)
    batch = Batches(store, sentences=2, shuffle=False).batch(0, 0)
    a, b = store.sentence(0).tolist()
    [c] = store.sentence(1).tolist()
    assert batch.index.tolist() == [1, 0]
    assert batch.source.ids.tolist() == [[BOS, c, EOS, PAD], [BOS, a, b, EOS]]
    assert batch.source.lengths.tolist() == [3, 4]
    assert batch.target.ids.tolist() == [[c, EOS, PAD], [a, b, EOS]]
    assert batch.target.lengths.tolist() == [2, 3]
    assert batch.inputs.tolist() == [[BOS, c, PAD], [BOS, a, b]]
    assert batch.labels is not None and batch.labels.tolist() == [1, 0]
    assert batch.total == 2
    for tensor in (batch.source.ids, batch.target.ids, batch.inputs, batch.index, batch.labels, batch.target.lengths):
        assert tensor.dtype == torch.int64 and tensor.is_contiguous()


@settings(max_examples=30, deadline=None)
@given(lengths_lists, st.integers(0, 3))
def test_collate_agrees_with_batches(lengths: list[int], epoch: int) -> None:
    store = make_store(lengths, labelled=True)
    for batch in Batches(store, tokens=40).epoch(epoch):
        assert batch.labels is not None
        numbers = batch.index.tolist()
        made = collate([store.sentence(i) for i in numbers], numbers, batch.labels.tolist(), batch.total)
        for mine, theirs in zip(made[:5], batch[:5], strict=True):
            pairs = zip(mine, theirs, strict=True) if isinstance(mine, tuple) else [(mine, theirs)]
            assert all(torch.equal(a, b) for a, b in pairs)


def test_collate_takes_empty_sentences() -> None:
    batch = collate([np.zeros(0, dtype=np.int64), np.array([9])], [5, 6])
    assert batch.source.ids.tolist() == [[BOS, EOS, PAD], [BOS, 9, EOS]]
    assert batch.target.ids.tolist() == [[EOS, PAD], [9, EOS]]
    assert (batch.labels, batch.total, batch.global_size) == (None, 0, 2)


def test_the_ledger_agrees_with_what_is_scored() -> None:
    store = make_store([4, 4, 2, 9, 1])
    scored = sum(int(batch.target.lengths.sum()) for batch in Batches(store, tokens=12).epoch(0))
    assert scored == store.ledger.predicted


def test_mistakes() -> None:
    store = make_store([1, 2])
    for sizes_given in ({}, {"sentences": 1, "tokens": 1}):
        with pytest.raises(ZentenceError, match="one of the two"):
            Batches(store, **sizes_given)
    with pytest.raises(ZentenceError, match="at least 1"):
        Batches(store, sentences=0)
    with pytest.raises(ZentenceError, match="2 sentences are too few for 3 processes"):
        Batches(store, sentences=1, world=3)
    with pytest.raises(ValueError, match="rank 1 of 1"):
        Batches(store, sentences=1, rank=1)
    with pytest.raises(IndexError):
        Batches(store, sentences=1).batch(0, 2)
