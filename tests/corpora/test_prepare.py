import gzip
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zentence.corpora import prepare as module
from zentence.corpora.ledger import Ledger
from zentence.corpora.prepare import Corpus, open_split, prepare
from zentence.corpora.splitting import Shares
from zentence.corpora.store import TokenStore, cache_folder
from zentence.errors import ZentenceError
from zentence.settings import CorpusSettings

SHARES = Shares(0.2, 0.1)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZENTENCE_CACHE", str(tmp_path / "cache"))


def write(folder: Path, lines: Sequence[str], name: str = "text.txt") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def numbered(count: int, first: int = 0, words: str = "the dog number") -> list[str]:
    return [f"{words} {i}" for i in range(first, first + count)]


def sentences(corpus: Corpus, split: str) -> list[str]:
    store = corpus.splits[split]
    return [corpus.vocabulary.decode(store.sentence(i)) for i in range(len(store))]


def run(
    train: Path | Sequence[Path | str], valid: Sequence[Path] = (), test: Sequence[Path] = (), **options: Any
) -> Corpus:
    files = [train] if isinstance(train, Path) else train
    return prepare(CorpusSettings(**options), files, valid, test)


def message(*files: Any, **options: Any) -> str:
    with pytest.raises(ZentenceError) as caught:
        run(*files, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@given(st.text(min_size=1))
def test_a_sentence_has_one_side_whatever_its_case_and_the_share_of_the_test_split(text: str) -> None:
    assert SHARES.side(text) == SHARES.side(text.lower())
    assert (Shares(SHARES.valid).side(text) == "valid") == (SHARES.side(text) == "valid")


def test_shares_are_met() -> None:
    sides = [SHARES.side(text) for text in numbered(5000)]
    assert sides.count("valid") / 5000 == pytest.approx(0.2, abs=0.02)
    assert sides.count("test") / 5000 == pytest.approx(0.1, abs=0.02)
    assert Shares().side("any") == "train"


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 60), min_size=40, max_size=80), st.integers(0, 10**6))
def test_splits_hold_every_sentence_once_in_order(numbers: list[int], salt: int) -> None:
    lines = [*(f"s {salt} {n}" for n in numbers), *(f"s {salt} {n}" for n in range(1000, 1200))]
    folder = cache_folder().parent
    corpus = run(write(folder, lines), valid_share=0.3, test_share=0.2)
    shares = Shares(0.3, 0.2)
    assert sentences(corpus, "train") == [line for line in lines if shares.side(line) == "train"]
    total = sum((store.ledger for store in corpus.splits.values()), Ledger())
    assert total.sentences == len(lines)
    assert total.words == 3 * len(lines)
    assert total.bytes == sum(len(line) + 1 for line in lines)
    for split in ("valid", "test"):
        assert len(corpus.splits[split]) == sum(shares.side(line) == split for line in lines)


def test_a_larger_file_keeps_old_assignments(tmp_path: Path) -> None:
    small = run(write(tmp_path, numbered(500)))
    large = run(write(tmp_path, numbered(800), "large.txt"))
    for split in ("train", "valid", "test"):
        kept = [line for line in numbered(500) if Shares(0.05, 0.05).side(line) == split]
        assert len(small.splits[split]) == len(kept)
        assert large.splits[split].ledger.sentences >= len(kept)
    assert sentences(large, "train")[: len(small.splits["train"])] == sentences(small, "train")


def test_given_files_are_not_split(tmp_path: Path) -> None:
    train, valid, test = (write(tmp_path, numbered(50, k), f"{k}.txt") for k in (0, 20, 60))
    corpus = run(train, [valid])
    assert list(corpus.splits) == ["train", "valid"]
    assert sentences(corpus, "train") == numbered(50)
    assert len(corpus.splits["valid"]) == 50
    assert list(run(train, [valid], [test]).splits) == ["train", "valid", "test"]
    only_test = run(train, (), [test], valid_share=0.3)
    assert list(only_test.splits) == ["train", "valid", "test"]
    assert len(only_test.splits["test"]) == 50
    assert len(only_test.splits["train"]) + len(only_test.splits["valid"]) == 50


def test_the_vocabulary_comes_from_the_training_split_only(tmp_path: Path) -> None:
    lines = numbered(300)
    corpus = run(write(tmp_path, lines))
    held_out = {line.split()[-1] for line in lines if Shares(0.05, 0.05).side(line) != "train"}
    assert held_out and not held_out & set(corpus.vocabulary.words)
    assert corpus.splits["valid"].ledger.unknown == len(corpus.splits["valid"])
    cut = run(write(tmp_path, ["a b c only_here"] * 2, "cut.txt"), [write(tmp_path, ["a"], "v.txt")], max_words=3)
    assert "only_here" not in cut.vocabulary.words


def test_the_length_limit_applies_to_training_only(tmp_path: Path) -> None:
    train, valid = write(tmp_path, ["a b c d", "a b", "c"]), write(tmp_path, ["a b c d"], "valid.txt")
    corpus = run(train, [valid], max_words=2)
    assert sentences(corpus, "train") == ["a b", "a b", "c"]
    assert sentences(corpus, "valid") == ["a b c <unk>"]
    ledger = corpus.splits["train"].ledger
    assert (ledger.truncated, ledger.dropped, ledger.cut_words, ledger.words) == (1, 0, 2, 5)
    assert "The length limit cut 1 of 3 sentences of train (2 words)" in corpus.warnings
    ledger = run(train, [valid], max_words=2, long_sentences="drop").splits["train"].ledger
    assert (ledger.sentences, ledger.truncated, ledger.dropped, ledger.cut_words) == (2, 0, 1, 4)


def test_several_files_are_joined_in_training_and_stand_alone_in_validation(tmp_path: Path) -> None:
    first = write(tmp_path, numbered(300), "one/text.txt")
    second = write(tmp_path, numbered(200, 300), "two/text.txt")
    third = write(tmp_path, ["the end"], "tiny.txt")
    corpus = run([first, second, third])
    parts = [name for name in corpus.splits if name.startswith("valid/")]
    assert parts == ["valid/text", "valid/text-2"]
    assert len(corpus.splits["valid"]) == sum(len(corpus.splits[name]) for name in parts)
    assert sentences(corpus, "valid") == [s for name in parts for s in sentences(corpus, name)]
    assert "valid/tiny has no sentences and is left out" in corpus.warnings
    given_files = run(first, [second, third])
    assert [n for n in given_files.splits if n != "train"] == ["valid", "valid/text", "valid/tiny"]
    assert len(given_files.splits["valid"]) == 201
    assert list(run(first, [second], [second, third]).splits)[2:] == ["test", "test/text", "test/tiny"]


def test_labels_are_shared_by_the_splits(tmp_path: Path) -> None:
    train = write(tmp_path, ["pos\tgood food", "neg\tbad food", "", "pos\tnice"])
    valid = write(tmp_path, ["pos\tfood"], "valid.txt")
    corpus = run(train, [valid])
    assert corpus.label_names == ("neg", "pos")
    store = corpus.splits["train"]
    assert store.labels is not None and store.labels.tolist() == [1, 0, 1]
    assert store.ledger.blank_lines == 1
    assert store.ledger.bytes == len("good food\nbad food\nnice\n")
    alone = corpus.splits["valid"]
    assert alone.labels is not None and alone.labels.tolist() == [1] and alone.label_names == ("neg", "pos")
    assert run(train, [valid], labels="no").label_names is None


def test_special_words_in_the_text_are_unknown(tmp_path: Path) -> None:
    train = write(tmp_path, ["a <eos> b <pad> <bos> _UNK", "<eos>"])
    store = run(train, [train]).splits["train"]
    assert store.sentence(0).tolist() == [4, 3, 5, 3, 3, 3]
    assert store.ledger.unknown == 5


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    one = write(tmp_path, ["a b"])
    valid = write(tmp_path, ["a"], "valid.txt")
    assert message(one) == "Too few sentences to split: give a file with --valid"
    assert message(write(tmp_path, ["a b"] * 500, "same.txt")) == "Too few sentences to split: give a file with --valid"
    assert message(one, [valid], max_words=1, long_sentences="drop") == (
        'All training sentences are longer than max_words = 1: raise it, or set long_sentences = "truncate"'
    )
    assert message(one, valid_share=0.6, test_share=0.4).startswith("valid_share + test_share must be less than 1")
    assert message([]) == "No training file is given"
    assert message(["-", "-"]) == "Standard input (-) can be given once only"
    assert message(tmp_path / "none.txt") == f"No such file: {tmp_path / 'none.txt'}"
    assert message(tmp_path / "none.txt", labels="yes") == f"No such file: {tmp_path / 'none.txt'}"
    assert message(tmp_path / ("x" * 300)).startswith("Cannot read ")
    assert message(tmp_path) == f"{tmp_path} is a directory: give a text file"
    assert message(one, [valid], labels="yes") == f"{one}, line 1: no label: expected label<TAB>sentence"
    labelled = write(tmp_path, ["x\ta b"], "labelled.txt")
    assert message(labelled, [valid]) == (
        f"{valid} has no labels (label<TAB>sentence), but {labelled} has: "
        'label every file, or set labels = "no" to read tabs as spaces'
    )
    late = write(tmp_path, [*["x\ta b"] * 100, "a b"], "late.txt")
    assert message(late, [labelled]) == (
        f'{late}, line 101: no label: expected label<TAB>sentence (labels = "no" reads tabs as spaces)'
    )
    other = write(tmp_path, ["x\ta", "y\ta"], "other.txt")
    assert message(labelled, [other]) == f"{other}, line 2: label 'y' does not occur in training"
    assert "is empty" in message(write(tmp_path, [" "], "empty.txt"), [valid])
    assert list((cache_folder() / "tokens").glob(".*")) == []


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZENTENCE_CACHE", str(write(tmp_path, ["not a folder"], "file")))
    path = write(tmp_path, ["a"])
    assert message(path, [path]).startswith(f"Cannot write the token cache in {tmp_path / 'file'}: ")


def test_warnings(tmp_path: Path) -> None:
    train, valid = write(tmp_path, ["a b"] * 3), write(tmp_path, ["a x"], "valid.txt")
    corpus = run(train, [valid], [train])
    assert corpus.warnings == (
        f"{train} is the same text as {train}",
        "valid has only 1 sentences: figures on it are noisy",
        "50.0% of the words of valid are unknown",
        "test has only 3 sentences: figures on it are noisy",
    )
    summary = json.loads(json.dumps(corpus.summary()))
    assert summary["splits"]["valid"]["predicted"] == 3
    assert (summary["vocabulary"], summary["lower_case"], summary["labels"]) == (6, True, None)


def test_standard_input_pipes_and_gzip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "".join(f"{line}\n" for line in numbered(300)).encode()
    expected = run(write(tmp_path, numbered(300)))
    packed = tmp_path / "text.txt.gz"
    packed.write_bytes(gzip.compress(content))
    for data in (content, gzip.compress(content)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))
        assert sentences(run(["-"]), "train") == sentences(expected, "train")
    assert sentences(run(packed), "valid") == sentences(expected, "valid")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with subprocess.Popen([sys.executable, "-c", f"open({str(fifo)!r}, 'wb').write({content!r})"]):
        assert sentences(run(fifo), "test") == sentences(expected, "test")


def test_a_second_time_nothing_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, numbered(300))
    first = run(path)

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(module, "read_sentences", fail)
    second = run(path)
    assert second.summary() == first.summary()
    with pytest.raises(AssertionError):
        run(path, max_words=2)
    with pytest.raises(AssertionError):
        run(path, valid_share=0.1)


def test_damaged_cache_entries_are_rebuilt(tmp_path: Path) -> None:
    path = write(tmp_path, numbered(300))
    first = run(path)
    for file in [*cache_folder().glob("surveys/*"), *cache_folder().glob("tokens/*/tokens.bin")]:
        file.write_bytes(file.read_bytes()[:-1])
    assert run(path).summary() == first.summary()
    shutil.rmtree(cache_folder())
    assert run(path).summary() == first.summary()


def test_progress_rises_to_the_total(tmp_path: Path) -> None:
    path = write(tmp_path, numbered(10_000))
    for _ in range(2):
        calls: list[tuple[int, int]] = []
        prepare(CorpusSettings(), [path], progress=lambda done, total, calls=calls: calls.append((done, total)))
        assert calls == sorted(calls)
        assert calls[-1][0] == calls[-1][1] == 2 * path.stat().st_size


def test_open_split_reads_any_file_with_a_stored_vocabulary(tmp_path: Path) -> None:
    train, valid = write(tmp_path, ["a b c"]), write(tmp_path, ["c c z", "", "a"], "valid.txt")
    corpus = run(train, [valid], max_words=1)
    store = open_split(valid, corpus.vocabulary, CorpusSettings(max_words=1))
    assert store.folder == corpus.splits["valid"].folder
    assert (store.ledger.words, store.ledger.blank_lines) == (4, 1)
    labelled = write(tmp_path, ["y\ta", "x\ta a"], "labelled.txt")
    labels = open_split(labelled, corpus.vocabulary, CorpusSettings())
    assert labels.label_names == ("x", "y") and labels.labels is not None and labels.labels.tolist() == [1, 0]
    other = open_split(labelled, corpus.vocabulary, CorpusSettings(), label_names=["y", "x"])
    assert other.labels is not None and other.labels.tolist() == [0, 1]
    with pytest.raises(ZentenceError, match="has no labels"):
        open_split(valid, corpus.vocabulary, CorpusSettings(), label_names=["x"])
    again = prepare(CorpusSettings(), [labelled], [labelled], vocabulary=corpus.vocabulary)
    assert again.vocabulary is corpus.vocabulary and again.label_names == ("x", "y")


def child(code: str) -> list[str]:
    return [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{code}"]


def test_two_processes_at_once_end_well(tmp_path: Path) -> None:
    path = write(tmp_path, numbered(20_000))
    code = f"""
from zentence.corpora.prepare import prepare
from zentence.settings import CorpusSettings
corpus = prepare(CorpusSettings(), [{str(path)!r}])
print(sum(len(store) for store in corpus.splits.values()))
"""
    processes = [subprocess.Popen(child(code), stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate()[0].strip() for process in processes] == ["20000"] * 3
    assert len(list((cache_folder() / "tokens").iterdir())) == 3
    assert all(isinstance(TokenStore(folder), TokenStore) for folder in (cache_folder() / "tokens").iterdir())


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    code = f"""
import re
from pathlib import Path
from zentence.corpora.batching import Batches
from zentence.corpora.prepare import prepare
from zentence.settings import CorpusSettings

peak = 0
def look(*_):
    global peak
    peak = max(peak, int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text()).group(1)))

def measure(count):
    path = Path({str(tmp_path)!r}) / f"{{count}}.txt"
    with path.open("w") as file:
        file.writelines(f"word{{i % 5000}} and some {{'more ' * (i % 7)}}words{{i % 11}}\\n" for i in range(count))
    train = prepare(CorpusSettings(), [path], progress=look).splits["train"]
    batches = Batches(train, tokens=4000)
    for number in range(0, len(batches), 5):
        batches.batch(0, number)
        look()
    return peak

print(measure(20_000), measure(200_000))
"""
    output = subprocess.run(child(code), check=True, capture_output=True, text=True).stdout
    small, large = map(int, output.split())
    assert large - small < 16_000  # kB; 180,000 more sentences as Python strings alone would be more
