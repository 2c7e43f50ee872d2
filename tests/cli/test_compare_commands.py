"""`compare`, `convert` and `verify` by their entry point, and mistakes in what they are given."""

import csv
import io
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers


@pytest.fixture
def copied(model: Path, tmp_path: Path) -> Path:
    """A trained model that a test may damage."""
    return Path(shutil.copytree(model, tmp_path / "model"))


def change(folder: Path, name: str, /, **fields: Any) -> None:
    rows = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    for row in rows:
        if row["name"] == name:
            row.update(fields)
    (folder / "results.json").write_text(json.dumps(rows), encoding="utf-8")


def test_compare_keeps_a_language_model_and_a_bound_apart(zentence: Any, model: Path, language_model: Path) -> None:
    document = zentence("compare", model, language_model, "--split", "valid", "--json").json
    (block,) = document["blocks"]
    columns = {(column["metric"], column["kind"]) for column in block["columns"]}
    assert {("nll", "exact"), ("iw_nll", "upper_bound"), ("ppl", "exact"), ("ppl", "upper_bound")} <= columns
    assert [row["name"] for row in block["rows"]] == ["default", "language-model"]
    assert not any(cell and cell["best"] for row in block["rows"] for cell in row["cells"])  # each column has one
    assert document["pairs"] == []


def test_formats(preloaded: Any, model: Path, language_model: Path) -> None:
    runs = (model, language_model, "--metrics", "nll,iw_nll,ppl")
    table = preloaded("compare", *runs).out
    assert "valid (20 sentences)" in table and "upper bound" in table and "exact" in table
    assert r"iw\_nll" in preloaded("compare", *runs, "--format", "latex").out
    assert r"| iw\_nll<br>upper bound |" in preloaded("compare", *runs, "--format", "markdown").out
    rows = list(csv.DictReader(io.StringIO(preloaded("compare", *runs, "--format", "csv").out)))
    assert {row["metric"] for row in rows} == {"nll", "iw_nll", "ppl"}
    as_json = preloaded("compare", *runs, "--format", "json")
    assert as_json.json == preloaded("compare", *runs, "--json").json


def test_a_copy_is_as_good(preloaded: Any, model: Path, copied: Path) -> None:
    """Both are marked; a paired bootstrap, where there are per-sentence figures, finds no difference."""
    document = preloaded("compare", model, copied, "--metrics", "iw_nll,elbo_nll", "--json").json
    (block,) = document["blocks"]
    assert [row["name"] for row in block["rows"]] == ["default", "model"]
    for pair in document["pairs"]:
        assert pair["difference"] == 0.0 and pair["first_better"] == 0.5


def test_compare_with_a_paper(preloaded: Any, model: Path, tmp_path: Path) -> None:
    row = (
        '[[rows]]\nname = "sVAE"\nsplit = "PTB test"\nsource = "Table 1"\nfigures = { elbo_nll = 106.84, rate = 1.6 }\n'
    )
    (tmp_path / "figures.toml").write_text(row + 'kind = "upper_bound"\n', encoding="utf-8")
    out = preloaded("compare", model, "--paper", tmp_path / "figures.toml", "--metrics", "elbo_nll").out
    assert "sVAE (paper, PTB test)" in out and "106.84" in out


def test_convert(zentence: Any) -> None:
    """24 bits in all, as in the case worked by hand."""
    counts = ("--tokens", 8, "--sentences", 2, "--words", 6, "--bytes", 40)
    found = zentence("convert", 4, "--per", "bpe", "--counts", "bos,eos", *counts, "--json").json
    assert found["ppl"] == pytest.approx(8.0) and found["bits_per_byte"] == pytest.approx(0.6)
    assert found["nats_per_sentence"] == pytest.approx(12.0 * math.log(2.0)) and found["ppl_without_eos"] is None


def test_convert_counts_a_text(preloaded: Any, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a b\na\n", encoding="utf-8")
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    text = ("--text", tmp_path / "text.txt", "--tokenizer", tmp_path / "tokenizer.json")
    found = preloaded("convert", 4, "--per", "token", "--counts", "none", *text, "--json").json
    assert found["counts"] == {"sentences": 2, "words": 3, "tokens": 3, "bytes": 6}
    assert found["total_nats"] == pytest.approx(3 * math.log(4.0))
    told = preloaded("convert", 10, "--per", "sentence", *text).out
    assert "per word and <eos>" in told and "54.5982" in told  # exp(20 / 5)


def test_verify_holds(preloaded: Any, model: Path) -> None:
    found = preloaded("verify", model, "--json", "--metrics", "iw_nll,elbo_nll,ppl,rate").json
    assert (found["holds"], found["differs"], found["unchecked"]) == (4, 0, 0)
    assert all(check["recomputed"] == pytest.approx(check["recorded"], rel=1e-4) for check in found["checks"])


def test_verify_finds_a_changed_figure(preloaded: Any, copied: Path) -> None:
    change(copied, "rate", value=3.25)
    change(copied, "ppl", version=99)
    before = (copied / "results.json").read_bytes()
    shown = preloaded("verify", copied, "--metrics", "iw_nll,rate,ppl", expect=1).out
    lines = {line.split()[1]: line.split()[0] for line in shown.splitlines() if line.startswith("  ")}
    assert lines == {"iw_nll": "holds", "rate": "differs", "ppl": "unchecked"}
    assert shown.endswith("1 of 3 figures hold, 1 do not, 1 cannot be checked\n")
    assert (copied / "results.json").read_bytes() == before


def damaged(folder: Path, content: str | None) -> Path:
    path = folder / "run"
    path.mkdir()
    if content is not None:
        (path / "results.json").write_text(content, encoding="utf-8")
    return path


@pytest.mark.parametrize("command", ["compare", "verify"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "has no results"),
        ("{", "is not a list of results"),
        ("[3]", "is not a list of results"),
        ("[]", "is empty"),
    ],
)
def test_damaged_results(preloaded: Any, tmp_path: Path, command: str, content: str | None, message: str) -> None:
    shown = preloaded(command, damaged(tmp_path, content), expect=2)
    assert message in shown.err and shown.err.count("\n") == 1 and shown.out == ""


MISTAKES = [
    ("compare gone", "No such model directory: gone"),
    ("compare {model} --format html", "Unknown --format 'html'"),
    ("compare {model} --metrics iw_nl", "Did you mean 'iw_nll'?"),
    ("compare {model} --metrics ,", "--metrics is empty"),
    ("compare {model} --split tset", "No run has figures on the split 'tset'"),
    ("compare {model} --paper nobody-2031", "Unknown paper 'nobody-2031'"),
    ("compare", "Missing argument"),
    ("convert 23 --per bpe", "A figure per token needs --tokens N, or --text FILE --tokenizer FILE"),
    ("convert 23", "--per"),
    ("convert many --per word", "valid number"),
    ("convert 23 --per wrod --words 3", "Did you mean 'word'?"),
    ("convert 0.5 --per word --words 3 --sentences 1", "at least 1"),
    ("convert 23 --per word --words 0", "--words"),
    ("convert 23 --per word --unit dB --words 3", "Unknown --unit 'dB'"),
    ("convert 23 --per word --counts pad --words 3", "'pad' is none of"),
    ("convert 23 --per word --text gone.txt", "No such file: gone.txt"),
    ("convert 23 --per word --words 3 --tokenizer gone.json", "give --text FILE"),
    ("convert 23 --per word --words 3 --text gone.txt", "not both"),
    ("verify gone", "No such model directory: gone"),
    ("verify {model} --metrics ppll", "has no ppll. Did you mean 'ppl'?"),
    ("verify {model} --split gone.txt", "No such file: gone.txt"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_mistakes(preloaded: Any, model: Path, tmp_path: Path, words: str, message: str) -> None:
    shown = preloaded(*(word.format(model=model) for word in words.split()), cwd=tmp_path, expect=2)
    assert message in shown.err and shown.err.count("\n") == 1 and shown.out == ""


def test_nothing_can_be_checked(preloaded: Any, copied: Path) -> None:
    settings = copied / "settings.toml"
    settings.write_text(settings.read_text(encoding="utf-8").replace("train.txt", "gone.txt"), encoding="utf-8")
    shown = preloaded("verify", copied, expect=2)
    assert "can be checked" in shown.err and "gone.txt is not there" in shown.err and shown.out == ""


@pytest.mark.parametrize("command", ["compare", "convert", "verify"])
def test_help(preloaded: Any, command: str) -> None:
    assert "--json" in preloaded(command, "--help").out
