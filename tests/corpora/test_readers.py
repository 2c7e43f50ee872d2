import gzip
import io
import subprocess
import sys
from pathlib import Path

import pytest

from zentence.corpora.readers import MAX_LINE, Line, ReadStats, has_labels, read_sentences
from zentence.errors import ZentenceError


def write(folder: Path, content: bytes, name: str = "text.txt") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def texts(path: Path | str, labels: str = "auto") -> list[str]:
    return [line.text for line in read_sentences(path, labels)]


def test_normalises_whitespace_and_counts_blank_lines(tmp_path: Path) -> None:
    path = write(tmp_path, b"  one   two\t three \r\n\r\n \t \nfour\rfive\n")
    stats = ReadStats()
    lines = list(read_sentences(path, "no", stats=stats))
    assert lines == [Line("one two three", None, 1), Line("four", None, 4), Line("five", None, 5)]
    assert stats.blank_lines == 2


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\x85"])
def test_only_newlines_end_a_line(tmp_path: Path, character: str) -> None:
    assert texts(write(tmp_path, f"one{character}two\nthree".encode())) == ["one two", "three"]


def test_drops_a_byte_order_mark(tmp_path: Path) -> None:
    assert texts(write(tmp_path, b"\xef\xbb\xbfone\ntwo\n")) == ["one", "two"]
    assert texts(write(tmp_path, b"\xef\xbb\xbf\ntwo\n")) == ["two"]
    assert texts(write(tmp_path, b"\xef\xbb\xbf\xef\xbb\xbfone\n")) == ["\ufeffone"]


@pytest.mark.parametrize("name", ["text.txt.gz", "no_suffix"])
def test_reads_gzip_by_suffix_or_magic_bytes(tmp_path: Path, name: str) -> None:
    assert texts(write(tmp_path, gzip.compress("grün\nzwei\n".encode()), name)) == ["grün", "zwei"]


def test_reads_standard_input_and_leaves_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BufferedReader(io.BytesIO(b"one\ntwo"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(raw))
    assert texts("-") == ["one", "two"]
    assert not raw.closed


def test_labels(tmp_path: Path) -> None:
    path = write(tmp_path, b"pos\tgood food\n\nneg\t bad  food\n")
    assert has_labels(path, "auto") and not has_labels(path, "no")
    assert list(read_sentences(path)) == [Line("good food", "pos", 1), Line("bad food", "neg", 3)]
    assert texts(path, "no") == ["pos good food", "neg bad food"]


def test_auto_needs_one_tab_and_both_sides_on_every_first_line(tmp_path: Path) -> None:
    for content in (b"a\tb\nc\n", b"a\tb\tc\n", b"\tindented\n", b"trailing\t\n"):
        assert not has_labels(write(tmp_path, content), "auto")
    assert has_labels(write(tmp_path, b"a\tb\n" * 100 + b"a\tb\tc\n"), "auto")


def test_a_labelled_line_may_have_more_tabs_and_an_empty_sentence_is_blank(tmp_path: Path) -> None:
    stats = ReadStats()
    lines = list(read_sentences(write(tmp_path, b"x\ta\tb\ny\t \n"), "yes", stats=stats))
    assert lines == [Line("a b", "x", 1)]
    assert stats.blank_lines == 1


def test_reports_progress_in_bytes(tmp_path: Path) -> None:
    path = write(tmp_path, b"some words here\n" * 10_000)
    calls: list[tuple[int, int]] = []
    list(read_sentences(path, progress=lambda done, total: calls.append((done, total))))
    assert calls == sorted(calls)
    assert calls[-1] == (160_000, 160_000)
    assert len(calls) > 2


def message(path: Path | str, labels: str = "auto") -> str:
    with pytest.raises(ZentenceError) as caught:
        list(read_sentences(path, labels))
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_missing_file_directory_and_unreadable_file(tmp_path: Path) -> None:
    assert message(tmp_path / "none.txt") == f"No such file: {tmp_path / 'none.txt'}"
    assert message(tmp_path) == f"{tmp_path} is a directory: give a text file"
    assert message(tmp_path / ("x" * 300)).startswith("Cannot read ")


@pytest.mark.parametrize("content", [b"", b"\n \n\t\n", b"\xef\xbb\xbf"])
def test_empty_file(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path, content)
    assert message(path) == f"{path} is empty: there is no sentence in it"


def test_binary_and_other_encodings(tmp_path: Path) -> None:
    path = write(tmp_path, b"fine\nPK\x00\x01\n")
    assert message(path) == f"{path} looks like a binary file (line 2)"
    assert "looks like a binary file (line 1)" in message(write(tmp_path, "häuser\n".encode("utf-16")))
    path = write(tmp_path, b"fine\nalso f\xc3\xbcr\nbad \xff\n")
    assert message(path) == f"{path}, line 3: not UTF-8 (byte 0xff). Convert it, for example with iconv"
    path = write(tmp_path, b"caf\xe9 au lait\n")
    assert "line 1: not UTF-8 (byte 0xe9)" in message(path)
    assert "line 1: not UTF-8 (byte 0xed)" in message(write(tmp_path, b"\xed\xa0\x80 surrogate\n"))


def test_long_lines(tmp_path: Path) -> None:
    assert len(texts(write(tmp_path, b"x" * MAX_LINE + b"\n"))[0]) == MAX_LINE
    path = write(tmp_path, b"x\n" + b"x" * (MAX_LINE + 1) + b"\n")
    assert message(path) == f"{path}, line 2: longer than 1 MB: expected one sentence a line"


def test_damaged_gzip(tmp_path: Path) -> None:
    whole = gzip.compress(b"some words\n" * 1000)
    assert "is a damaged gzip file" in message(write(tmp_path, whole[: len(whole) // 2], "a.gz"))
    assert "is a damaged gzip file" in message(write(tmp_path, whole[:-8] + b"\0" * 8, "b.gz"))
    assert "is a damaged gzip file" in message(write(tmp_path, whole[:12] + b"\xff" * 20, "c.gz"))
    assert "is a damaged gzip file" in message(write(tmp_path, b"plain text\n", "d.gz"))


def test_missing_labels(tmp_path: Path) -> None:
    path = write(tmp_path, b"a\tb\n" * 100 + b"no label\n")
    assert message(path) == (
        f'{path}, line 101: no label: expected label<TAB>sentence (labels = "no" reads tabs as spaces)'
    )
    assert message(path, "yes") == f"{path}, line 101: no label: expected label<TAB>sentence"
    path = write(tmp_path, b"a\tb\n\tc\n")
    assert message(path, "yes") == f"{path}, line 2: empty label: expected label<TAB>sentence"


def test_reading_text_does_not_import_torch() -> None:
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; import zentence.corpora.prepare, zentence.corpora.sentences; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
