"""Known counts of real corpora, where they are at hand (ZENTENCE_DATA names their folder)."""

import os
from pathlib import Path

import pytest

from zentence.corpora.prepare import prepare
from zentence.settings import CorpusSettings


def real(*names: str) -> list[Path]:
    """Return files of the data folder; skip the test where they are not."""
    folder = os.environ.get("ZENTENCE_DATA", "")
    paths = [Path(folder) / name for name in names]
    if not folder or not all(path.is_file() for path in paths):
        pytest.skip(f"ZENTENCE_DATA does not name a folder with {', '.join(names)}")
    return paths


def test_penn_treebank_has_its_published_counts() -> None:
    train, valid = real("ptb/ptb.train.txt", "ptb/ptb.valid.txt")
    corpus = prepare(CorpusSettings(), [train], [valid])
    ledgers = {name: store.ledger for name, store in corpus.splits.items()}
    assert (ledgers["train"].sentences, ledgers["train"].words) == (42_068, 887_521)
    assert (ledgers["valid"].sentences, ledgers["valid"].words) == (3_370, 70_390)
    assert ledgers["valid"].predicted == 70_390 + 3_370
    assert len(corpus.vocabulary) == 10_000 - 2 + 4  # the published 10,000 count <unk> and <eos>; ours has four such
    assert not corpus.vocabulary.lower_case  # it writes numbers as N


def test_yelp_reviews_are_labelled() -> None:
    (valid,) = real("yelp/yelp.valid.tsv")
    corpus = prepare(CorpusSettings(), [valid], [valid])
    assert corpus.label_names == ("0", "1")
    labels = corpus.splits["valid"].labels
    assert labels is not None and len(labels) == 10_000 and set(labels.tolist()) == {0, 1}
