"""Streams of sentences and codes against LatentSpace in one go, and runs that were ended against runs that were not."""

import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from zentence.checkpoint import save_model
from zentence.corpora.vocabulary import build_vocabulary
from zentence.errors import ZentenceError
from zentence.files import checksum
from zentence.latent import LatentSpace, streams
from zentence.latent.partial import PartialFile
from zentence.latent.streams import (
    Remarks,
    decode_file,
    decode_stream,
    encode_file,
    encode_stream,
    model_identity,
    open_codes,
)
from zentence.settings import CorpusSettings
from zentence.testing import tiny_model, tiny_settings

WORDS = ["a", "the", "cat", "dog", "sat", "ran", "to", "über", "größe", "."]


def make(overrides: tuple[str, ...] = (), spread: float = 0.8, **options: Any) -> LatentSpace:
    vocabulary = build_vocabulary(Counter(WORDS), CorpusSettings())
    model = tiny_model(overrides, vocabulary=len(vocabulary), spread=spread, **options).float()
    with torch.no_grad():
        model.decoder.output.bias[2] -= 1.0
    return LatentSpace(model, vocabulary, tiny_settings(overrides, **options))


@pytest.fixture(scope="module")
def space() -> LatentSpace:
    return make()


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    random = np.random.default_rng(0)
    return [" ".join(random.choice(WORDS, size=length)) for length in random.integers(1, 15, size=300)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows and batches so small that a few hundred sentences fill many."""
    for name, value in {"WINDOW": 64, "BATCH_SENTENCES": 8, "BATCH_TOKENS": 60, "DECODED_WINDOW": 32}.items():
        monkeypatch.setattr(streams, name, value)


@pytest.fixture
def text(tmp_path: Path, sentences: list[str]) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")
    return path


class Stopped(KeyboardInterrupt):
    """An interruption that a test made."""


def stop_at(count: int) -> Any:
    """Return a progress callback that interrupts at its `count`-th call."""
    calls = 0

    def told(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == count:
            raise Stopped

    return told


@pytest.mark.parametrize("sample", [False, True])
def test_a_stream_equals_encoding_in_one_go(
    space: LatentSpace, sentences: list[str], small: None, sample: bool
) -> None:
    parts = list(encode_stream(space, iter(sentences), sample=sample, seed=3))
    assert [len(part) for part in parts] == [64, 64, 64, 64, 44]
    whole = space.encode(sentences, sample=sample, seed=3)
    assert np.concatenate(parts) == pytest.approx(whole, abs=1e-6)


@pytest.mark.parametrize("sample", [False, True])
def test_a_file_equals_encoding_in_one_go(
    space: LatentSpace, sentences: list[str], text: Path, small: None, sample: bool
) -> None:
    out = text.with_name("codes.npy")
    done = encode_file(space, text, out, sample=sample, seed=3)
    codes = np.load(out, mmap_mode="r", allow_pickle=False)
    assert codes.dtype == np.float32 and codes.shape == (300, 2) and done.rows == 300
    assert np.asarray(codes) == pytest.approx(space.encode(sentences, sample=sample, seed=3), abs=1e-6)
    assert sorted(path.name for path in out.parent.iterdir()) == ["codes.npy", "text.txt"]
    np.save(text.with_name("again.npy"), codes)
    assert text.with_name("again.npy").read_bytes() == out.read_bytes()  # the very file that NumPy writes


def test_gzip_labels_and_blank_lines_are_read_as_a_corpus_is(
    space: LatentSpace, sentences: list[str], tmp_path: Path
) -> None:
    packed = tmp_path / "text.gz"
    packed.write_bytes(gzip.compress("".join(f"one\t{s}\n\n" for s in sentences[:20]).encode()))
    encode_file(space, packed, tmp_path / "codes.npy")
    assert np.load(tmp_path / "codes.npy") == pytest.approx(space.encode(sentences[:20]), abs=1e-6)


@pytest.mark.parametrize("calls", [16, 30, 45])
@pytest.mark.parametrize("sample", [False, True])
def test_an_interrupted_run_goes_on_to_the_same_bytes(
    space: LatentSpace, text: Path, small: None, sample: bool, calls: int
) -> None:
    whole, out = text.with_name("whole.npy"), text.with_name("codes.npy")
    encode_file(space, text, whole, sample=sample, seed=1)
    with pytest.raises(Stopped):
        encode_file(space, text, out, sample=sample, seed=1, progress=stop_at(calls))
    assert not out.exists()
    journal = json.loads(text.with_name(".codes.npy.journal").read_text(encoding="utf-8"))
    assert journal["rows"] % 64 == 0 and journal["rows"] > 0
    with text.with_name(".codes.npy.partial").open("ab") as partial:
        partial.write(b"half a row that a killed process wrote")
    said: list[str] = []
    done = encode_file(space, text, out, sample=sample, seed=1, announce=said.append)
    assert (done.rows, done.resumed, done.restarted) == (300, journal["rows"], None)
    assert "going on" in said[0]
    assert out.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in out.parent.iterdir()) == ["codes.npy", "text.txt", "whole.npy"]


def test_anything_different_starts_anew_and_says_so(space: LatentSpace, text: Path, small: None) -> None:
    out, whole = text.with_name("codes.npy"), text.with_name("whole.npy")

    def interrupt() -> None:
        with pytest.raises(Stopped):
            encode_file(space, text, out, sample=True, seed=1, progress=stop_at(20))

    cases: dict[str, Any] = {"another seed": {"seed": 2}, "another mode": {"seed": 1, "sample": False}}
    for message, options in cases.items():
        interrupt()
        said: list[str] = []
        done = encode_file(space, text, out, announce=said.append, **{"sample": True, **options})
        assert done.resumed == 0 and message in (done.restarted or "") and said == [done.restarted]
        encode_file(space, text, whole, **{"sample": True, **options})
        assert out.read_bytes() == whole.read_bytes()
    interrupt()
    assert "another model" in (encode_file(make(spread=0.7), text, out, sample=True, seed=1).restarted or "")
    interrupt()
    text.write_text(text.read_text(encoding="utf-8").replace("cat", "dog", 1), encoding="utf-8")
    assert "another input" in (encode_file(space, text, out, sample=True, seed=1).restarted or "")
    interrupt()
    text.with_name(".codes.npy.journal").write_text("{", encoding="utf-8")
    assert "damaged journal" in (encode_file(space, text, out, sample=True, seed=1).restarted or "")
    interrupt()
    with text.with_name(".codes.npy.partial").open("r+b") as partial:
        partial.truncate(130)
    assert "damaged" in (encode_file(space, text, out, sample=True, seed=1).restarted or "")


def test_wrong_text_leaves_nothing_behind(space: LatentSpace, text: Path, small: None) -> None:
    with text.open("ab") as file:
        file.write(b"fa\xe7ade\n")
    with pytest.raises(ZentenceError, match="line 301: not UTF-8"):
        encode_file(space, text, text.with_name("codes.npy"))
    assert [path.name for path in text.parent.iterdir()] == ["text.txt"]


def test_two_runs_do_not_write_into_one_file(tmp_path: Path) -> None:
    out = tmp_path / "codes.npy"
    with PartialFile(out, {"seed": 1}) as partial:
        partial.append(b"abc", 1)
        with pytest.raises(ZentenceError, match="Another process is writing"):
            PartialFile(out, {"seed": 1})
        partial.append(b"d", 1)
        partial.finish()
    assert out.read_bytes() == b"abcd"


def test_a_full_disk_keeps_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "codes.npy"

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with (
        pytest.raises(ZentenceError, match=r"Cannot write .*: No space left"),
        PartialFile(out, {"seed": 1}) as partial,
    ):
        partial.append(b"abc", 1)
        monkeypatch.setattr(os, "fsync", full)
        partial.append(b"def", 1)
    monkeypatch.undo()
    with PartialFile(out, {"seed": 1}) as partial:
        assert partial.rows == 1
        partial.append(b"def", 1)
        partial.finish()
    assert out.read_bytes() == b"abcdef"


def test_long_sentences_are_cut_with_one_warning(text: Path, sentences: list[str], small: None) -> None:
    limited = make(("corpus.max_words=5",))
    done = encode_file(limited, text, text.with_name("codes.npy"))
    long = [number for number, sentence in enumerate(sentences, 1) if len(sentence.split()) > 5]
    (warning,) = done.warnings
    assert f"text.txt, line {long[0]}: only the first 5 words" in warning
    assert f"{len(long) - 1:,} more sentences" in warning
    cut = [" ".join(sentence.split()[:5]) for sentence in sentences]
    assert np.load(text.with_name("codes.npy")) == pytest.approx(make().encode(cut), abs=1e-6)


def test_the_remarks_of_an_interrupted_run_are_not_lost(text: Path, small: None) -> None:
    limited, out = make(("corpus.max_words=5",)), text.with_name("codes.npy")
    expected = encode_file(limited, text, text.with_name("whole.npy")).warnings
    with pytest.raises(Stopped):
        encode_file(limited, text, out, progress=stop_at(30))
    done = encode_file(limited, text, out)
    assert done.resumed > 0 and done.warnings == expected


def test_sentences_without_a_known_word_are_remarked(space: LatentSpace) -> None:
    remarks = Remarks()
    list(encode_stream(space, ["xx yy", "a cat", "zz"], remarks=remarks))
    assert remarks.warnings() == ["no word of 'xx yy' is in this model's vocabulary (nor of 1 more sentences)"]
    with pytest.raises(ZentenceError, match="sentence 2 is empty"):
        list(encode_stream(space, ["a", "  "]))
    with pytest.raises(ZentenceError, match="not one string"):
        list(encode_stream(space, "a cat"))


def test_a_model_is_known_by_its_weights(space: LatentSpace, tmp_path: Path) -> None:
    save_model(tmp_path, space.model)
    assert model_identity(space) == checksum(tmp_path / "model.safetensors")
    assert model_identity(make(spread=0.7)) != model_identity(space)


@pytest.fixture
def codes(tmp_path: Path) -> Path:
    np.save(tmp_path / "in.npy", np.random.default_rng(1).normal(size=(150, 2)))
    return tmp_path / "in.npy"


@pytest.mark.parametrize("options", [{}, {"method": "sample", "seed": 5}, {"method": "beam", "beam": 3}])
def test_decoding_in_a_stream_equals_decoding_in_one_go(
    space: LatentSpace, codes: Path, small: None, options: dict[str, Any]
) -> None:
    options = {"max_words": 12, **options}
    expected = space.decode(np.load(codes), **options)
    assert len(set(expected)) > 5
    parts = list(decode_stream(space, open_codes(codes, space), **options))
    assert [len(part) for part in parts] == [32, 32, 32, 32, 22]
    assert [sentence for part in parts for sentence in part] == expected
    out, whole = codes.with_name("out.txt"), codes.with_name("whole.txt")
    decode_file(space, codes, whole, options=options)
    assert whole.read_text(encoding="utf-8").splitlines() == expected
    with pytest.raises(Stopped):
        decode_file(space, codes, out, options=options, progress=stop_at(3))
    done = decode_file(space, codes, out, options=options)
    assert 0 < done.resumed < 150 and done.rows == 150
    assert out.read_bytes() == whole.read_bytes()


def test_decoding_with_other_options_starts_anew(space: LatentSpace, codes: Path, small: None) -> None:
    out = codes.with_name("out.txt")
    with pytest.raises(Stopped):
        decode_file(space, codes, out, options={"max_words": 5}, progress=stop_at(3))
    done = decode_file(space, codes, out, options={"max_words": 6})
    assert "another options" in (done.restarted or "")
    assert out.read_text(encoding="utf-8").splitlines() == space.decode(np.load(codes), max_words=6)


def test_averaged_codes_are_decoded_in_groups(tmp_path: Path, small: None) -> None:
    space = make()
    space.model.averaged_codes = 3
    np.save(tmp_path / "codes.npy", np.random.default_rng(0).normal(size=(40, 3, 2)).astype(np.float32))
    found = open_codes(tmp_path / "codes.npy", space)
    parts = decode_stream(space, found, max_words=8)
    assert [sentence for part in parts for sentence in part] == space.decode(np.array(found), max_words=8)


BAD_CODES = {
    "wrong width": (np.zeros((3, 5), dtype=np.float32), r"shape \[3, 5\]: this model's are \[N, 2\]"),
    "one dimension": (np.zeros(4, dtype=np.float32), r"shape \[4\]"),
    "grouped": (np.zeros((3, 2, 2), dtype=np.float32), r"shape \[3, 2, 2\]"),
    "not finite": (np.array([[0, 0], [np.nan, 1]], dtype=np.float32), r"code 1 \(from 0\) is not of finite numbers"),
    "beyond float32": (np.array([[1e300, 0]]), "code 0"),
    "words": (np.array([["a", "b"]]), "not a NumPy file"),
    "complex": (np.zeros((1, 2), dtype=complex), "not a NumPy file"),
    "empty": (np.zeros((0, 2), dtype=np.float32), "is empty"),
}


@pytest.mark.parametrize("kind", BAD_CODES)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_bad_codes_are_refused(space: LatentSpace, tmp_path: Path, kind: str) -> None:
    array, message = BAD_CODES[kind]
    np.save(tmp_path / "codes.npy", array)
    with pytest.raises(ZentenceError, match=message):
        open_codes(tmp_path / "codes.npy", space)


def test_files_that_are_no_codes_are_refused(space: LatentSpace, tmp_path: Path) -> None:
    path = tmp_path / "codes.npy"
    np.save(path, np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    with pytest.raises(ZentenceError, match="not a NumPy file"):
        open_codes(path, space)
    np.savez(tmp_path / "codes.npz", codes=np.zeros((1, 2)))
    with pytest.raises(ZentenceError, match="not a NumPy file"):
        open_codes(tmp_path / "codes.npz", space)
    np.save(path, np.zeros((100, 2)))
    path.write_bytes(path.read_bytes()[:-8])
    for content in (path.read_bytes(), b"", b"text\n", path.read_bytes()[:20]):
        path.write_bytes(content)
        with pytest.raises(ZentenceError, match="not a NumPy file"):
            open_codes(path, space)
    with pytest.raises(ZentenceError, match="No such file"):
        open_codes(tmp_path / "gone.npy", space)
    with pytest.raises(ZentenceError, match="is a directory"):
        open_codes(tmp_path, space)


def test_a_language_model_has_no_codes(tmp_path: Path, text: Path, codes: Path) -> None:
    model = make(language_model=True)
    for use in (
        lambda: encode_file(model, text, tmp_path / "codes.npy"),
        lambda: decode_file(model, codes, tmp_path / "out.txt"),
        lambda: list(encode_stream(model, ["a cat"])),
    ):
        with pytest.raises(ZentenceError, match="language model"):
            use()
