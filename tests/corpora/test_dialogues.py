"""Dialogues as text and as pairs of tokens."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from zentence.corpora.dialogue_corpus import DialogueCorpus, prepare_dialogues
from zentence.corpora.dialogues import Dialogue, DialogueStats, read_dialogues, split_turns
from zentence.corpora.pairs import PairBatches, Responses, collate_contexts
from zentence.errors import ZentenceError
from zentence.settings import CorpusSettings

DIALOGUES = "a b __eou__ c  d __eou__ e __eou__\n\nx y __eou__ z __eou__\nalone __eou__\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_dailydialogs_own_form(tmp_path: Path) -> None:
    stats = DialogueStats()
    found = list(read_dialogues(write(tmp_path / "d.txt", DIALOGUES), stats=stats))
    assert found == [
        Dialogue(("a b", "c d", "e"), 1, 1),
        Dialogue(("x y", "z"), 1, 3),
        Dialogue(("alone",), 1, 4),
    ]
    assert (stats.dialogues, stats.responses, stats.alone, stats.read.blank_lines) == (3, 3, 1, 1)
    (tmp_path / "d.txt.gz").write_bytes(gzip.compress(DIALOGUES.encode()))
    assert list(read_dialogues(tmp_path / "d.txt.gz")) == found


def test_a_table_of_pairs(tmp_path: Path) -> None:
    table = write(tmp_path / "pairs.tsv", "a b __eou__ c\td e\nx __eou__\ty\n")
    assert list(read_dialogues(table)) == [Dialogue(("a b", "c", "d e"), 2, 1), Dialogue(("x", "y"), 1, 2)]


def test_turns() -> None:
    assert split_turns(" a  b __eou__c __eou__ __eou__ ") == ("a b", "c")
    assert split_turns("one turn") == ("one turn",)
    assert split_turns(" __eou__ ") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: there is no dialogue in it"),
        ("hello __eou__\nbye\n", "has no response: expected dialogues with two turns or more"),
        ("a\tb\nc\n", "line 2: expected context<TAB>response"),
        ("a\tb\tc\n", "line 1: expected context<TAB>response"),
        ("a\tb\n __eou__ \tc\n", "line 2: the context is empty"),
        ("a\tb\nc\t \n", "line 2: the response is empty"),
        ("a\tb __eou__ c\n", "line 1: the response has several turns"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ZentenceError, match=message):
        list(read_dialogues(write(tmp_path / "bad.txt", text)))
    with pytest.raises(ZentenceError, match="No such file"):
        list(read_dialogues(tmp_path / "gone.txt"))


@pytest.fixture
def corpus(tmp_path: Path) -> DialogueCorpus:
    lines = [" __eou__ ".join(f"w{n} " * (1 + (n + k) % 5) + f"t{k}" for k in range(2 + n % 4)) for n in range(60)]
    train = write(tmp_path / "train.txt", "\n".join(lines))
    style = write(tmp_path / "style.txt", "\n".join(f"thee w{n % 60} thou {n}" for n in range(200)))
    return prepare_dialogues(CorpusSettings(min_count=1), train, None, style, held_apart=0.2)


def test_every_pair_stands_once_in_an_epoch(corpus: DialogueCorpus) -> None:
    batches = PairBatches(corpus.train, sentences=7, turns=2, context_tokens=50)
    words = corpus.vocabulary.decode
    for epoch in range(2):
        seen: list[int] = []
        weight = 0.0
        for position in range(len(batches)):
            batch = batches.batch(epoch, position)
            seen += batch.index.tolist()
            weight += batch.weight
            context = batch.pairs.context
            assert context is not None
            for number, row, length in zip(batch.index.tolist(), context.ids, context.lengths, strict=True):
                count = min(2, int(corpus.train.labels[number]))  # type: ignore[index]
                turns = [words(corpus.train.sentence(n).tolist()) for n in range(number - count, number)]
                ids = row[:length].tolist()
                assert ids[0] == 1 and ids[-1] == 2 and (row[length:] == 0).all()
                ends = [place for place, token in enumerate(ids) if token == 2]
                starts = [1, *(end + 1 for end in ends)]
                assert [words(ids[a:b]) for a, b in zip(starts, ends, strict=False)] == turns
        assert sorted(seen) == np.flatnonzero(corpus.train.labels).tolist()  # type: ignore[arg-type]
        assert weight == pytest.approx(len(batches))
    again = PairBatches(corpus.train, sentences=7, turns=2, context_tokens=50).batch(1, 3)
    assert torch.equal(again.pairs.source.ids, batches.batch(1, 3).pairs.source.ids)


def test_contexts_keep_their_end() -> None:
    tokens = collate_contexts([[np.array([5, 6, 7]), np.array([8])], [np.array([9])]], 4)
    assert tokens.ids.tolist() == [[1, 7, 2, 8, 2], [1, 9, 2, 0, 0]]  # the latest turn is read, the earliest is cut
    assert tokens.lengths.tolist() == [5, 3]


def test_responses_are_a_store_without_first_turns(corpus: DialogueCorpus) -> None:
    responses = Responses(corpus.train)
    assert len(responses) == int((corpus.train.labels > 0).sum())  # type: ignore[operator]
    lengths = [corpus.train.length(int(number)) for number in responses.order]
    assert lengths == sorted(lengths)
    assert responses.length_counts.sum() == len(responses)
    assert Responses(corpus.train).order.tolist() == responses.order.tolist()


def test_text_is_held_apart(corpus: DialogueCorpus) -> None:
    assert corpus.style is not None and corpus.held_style is not None and corpus.held_turns is not None
    texts = [
        {corpus.vocabulary.decode(store.sentence(n).tolist()) for n in range(len(store))}
        for store in (corpus.style, corpus.held_style)
    ]
    assert len(corpus.style) + len(corpus.held_style) == 200 and 10 < len(corpus.held_style) < 80
    assert len(corpus.held_turns) > 5
    assert not {text for text in texts[0] if "<unk>" not in text} & texts[1]
    assert len(corpus.train) + len(corpus.valid) + len(corpus.held_turns) == sum(2 + n % 4 for n in range(60))
    batch = PairBatches(corpus.train, sentences=7, turns=2, context_tokens=9, style=corpus.style).batch(0, 0)
    assert batch.style is not None and batch.style.size == batch.size
    assert corpus.vocabulary.decode(batch.style.target.ids[0].tolist()).startswith("thee")
    other = PairBatches(corpus.train, sentences=7, turns=2, context_tokens=9, style=corpus.style).batch(1, 0)
    assert other.style is not None and other.style.index.tolist() != batch.style.index.tolist()


def test_case_never_tells_the_style(tmp_path: Path) -> None:
    talk = write(tmp_path / "talk.txt", "Hello You __eou__ Hello Me __eou__\n" * 3)
    lower, mixed = write(tmp_path / "lower.txt", "thou art\n" * 3), write(tmp_path / "mixed.txt", "Thou art\n" * 3)
    for style, expected in ((lower, True), (mixed, False), (None, False)):
        found = prepare_dialogues(CorpusSettings(), talk, talk, style, held_apart=0.001)
        assert found.vocabulary.lower_case == expected


def test_too_little_text(tmp_path: Path) -> None:
    talk = write(tmp_path / "talk.txt", "a __eou__ b __eou__\n")
    with pytest.raises(ZentenceError, match="Too few dialogues"):
        prepare_dialogues(CorpusSettings(), talk)
    warnings = prepare_dialogues(CorpusSettings(), talk, talk).warnings
    assert any("is the same text as" in message for message in warnings)
    style = write(tmp_path / "ten.txt", "\n".join(f"s {n}" for n in range(10)))
    warnings = prepare_dialogues(CorpusSettings(), talk, talk, style, held_apart=0.001).warnings
    assert any("has only 10 sentences: too few to learn a style from" in message for message in warnings)
    with pytest.raises(ZentenceError, match="tear dialogues apart"):
        prepare_dialogues(CorpusSettings(max_words=3, long_sentences="drop"), talk, talk)
