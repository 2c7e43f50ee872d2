"""encode, decode, index, neighbours and map by their entry points."""

import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from test_bad_input import Refusal

from zentence.latent import LatentSpace
from zentence.latent.neighbours import Index


@pytest.fixture(scope="module")
def space(model: Path) -> LatentSpace:
    return LatentSpace.load(model, device="cpu")


@pytest.fixture(scope="module")
def sentences(captions: Path) -> list[str]:
    return (captions / "test.txt").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def index(preloaded: Any, model: Path, captions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index") / "captions"
    shown = preloaded("index", model, "--file", captions / "train.txt", "--out", folder, "--json")
    expected = {"sentences": 360, "size": 4, "metric": "euclidean", "exact": True, "out": str(folder)}
    assert shown.json == expected
    return folder


@pytest.fixture
def refused(preloaded: Any, tmp_path: Path) -> Refusal:
    return Refusal(preloaded, tmp_path)


@pytest.mark.parametrize("command", ["encode", "decode", "index", "neighbours", "map"])
def test_help(preloaded: Any, command: str) -> None:
    shown = preloaded(command, "--help")
    assert shown.out.startswith(f"Usage: zentence {command}") and "--json" in shown.out


def test_encode_reads_standard_input_and_labels(
    preloaded: Any, model: Path, space: LatentSpace, sentences: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "codes.npy"
    labelled = "".join(f"x\t{sentence}\n" for sentence in sentences)
    shown = preloaded("encode", model, "--file", "-", "--out", out, stdin=labelled)
    assert shown.out == f"20 codes of 4 dimensions are in {out}\n" and shown.err == ""
    assert np.load(out) == pytest.approx(space.encode(sentences), abs=1e-5)
    preloaded("encode", model, "--file", "-", "--out", out, stdin="a man\n", expect=2)
    shown = preloaded("encode", model, "--file", "-", "--out", out, "--overwrite", stdin="xyzzy\na man\n")
    assert "warning: no word of 'xyzzy'" in shown.err and np.load(out).shape == (2, 4)
    assert [path.name for path in tmp_path.iterdir()] == ["codes.npy"]


@pytest.fixture(scope="module")
def uninterrupted(
    preloaded: Any, model: Path, captions: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Any], Path]:
    """A command without its --out, and the file that it writes when nothing stops it: three windows of sentences."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    text = (captions / "train.txt").read_text(encoding="utf-8")
    (folder / "text.txt").write_text(text * 92, encoding="utf-8")
    command = ["encode", model, "--file", folder / "text.txt", "--sample", "--seed", 3, "--threads", 1]
    preloaded(*command, "--out", folder / "whole.npy")
    return command, folder / "whole.npy"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_encode_goes_on_after_a_signal(
    zentence: Any, preloaded: Any, uninterrupted: tuple[list[Any], Path], tmp_path: Path, how: signal.Signals
) -> None:
    command, whole = uninterrupted
    out, journal = tmp_path / "codes.npy", tmp_path / ".codes.npy.journal"
    with zentence.start(*command, "--out", out) as process:
        while not journal.exists() and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(how)
        _, err = process.communicate(timeout=60)
    assert process.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
    assert ("the same command goes on" in err) == (how == signal.SIGINT)
    rows = json.loads(journal.read_text(encoding="utf-8"))["rows"]
    assert not out.exists() and 0 < rows < 92 * 360
    shown = preloaded(*command, "--out", out)
    assert f"{rows:,} are done" in shown.err and "33,120 codes" in shown.out
    assert out.read_bytes() == whole.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["codes.npy"]


def test_decode(zentence: Any, preloaded: Any, model: Path, space: LatentSpace, tmp_path: Path) -> None:
    codes = space.prior_codes(30, seed=1)
    np.save(tmp_path / "codes.npy", codes)
    expected = space.decode(codes, max_words=9)
    command = ["decode", model, tmp_path / "codes.npy", "--max-words", 9]
    assert zentence(*command).out.splitlines() == expected
    assert preloaded(*command, "--json").json == {"method": "greedy", "seed": 0, "sentences": expected}
    out = tmp_path / "out.txt"
    shown = preloaded(*command, "--out", out)
    assert shown.out == f"30 sentences are in {out}\n" and out.read_text(encoding="utf-8").splitlines() == expected
    options = ["--method", "sample", "--seed", 4, "--temperature", 1.5, "--forbid-unk", "--overwrite"]
    document = preloaded(*command, "--out", out, *options, "--json").json
    assert document == {"sentences": 30, "method": "sample", "seed": 4, "out": str(out)}
    drawn = {"method": "sample", "seed": 4, "temperature": 1.5, "forbid_unknown": True}
    assert out.read_text(encoding="utf-8").splitlines() == space.decode(codes, max_words=9, **drawn)
    beam = preloaded(*command, "--method", "beam", "--beam", 2).out.splitlines()
    assert beam == space.decode(codes, max_words=9, method="beam", beam=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["codes.npy", "out.txt"]


def test_neighbours(
    zentence: Any, preloaded: Any, model: Path, index: Path, sentences: list[str], space: LatentSpace, tmp_path: Path
) -> None:
    command = ["neighbours", model, "--index", index, "-k", 3]
    document = zentence(*command, *sentences[:2], "--json").json
    assert (document["metric"], document["exact"]) == ("euclidean", True)
    opened = Index.open(index)
    codes = space.encode(sentences[:2])
    ids, scores = opened.search(codes, 3)
    for number, (query, sentence) in enumerate(zip(document["queries"], sentences[:2], strict=True)):
        assert query["sentence"] == sentence and query["code"] == number
        hits = query["neighbours"]
        assert [hit["id"] for hit in hits] == ids[number].tolist()
        assert [hit["distance"] for hit in hits] == pytest.approx(scores[number].tolist(), abs=1e-5)
        assert [hit["sentence"] for hit in hits] == [opened.sentence(int(i)) for i in ids[number]]
    shown = preloaded(*command, *sentences[:2]).out.splitlines()
    assert shown[0] == sentences[0] and shown[4] == sentences[1] and len(shown) == 8
    assert shown[1].split(maxsplit=1) == [f"{scores[0, 0]:.4f}", opened.sentence(int(ids[0, 0]))]
    np.save(tmp_path / "codes.npy", codes)
    cosine = preloaded(*command, "--codes", tmp_path / "codes.npy", "--metric", "cosine", "--json").json
    expected, values = opened.search(codes, 3, metric="cosine")
    assert [[hit["id"] for hit in query["neighbours"]] for query in cosine["queries"]] == expected.tolist()
    assert cosine["queries"][1]["neighbours"][0]["cosine"] == pytest.approx(values[1, 0], abs=1e-6)
    assert cosine["queries"][0]["sentence"] is None
    assert preloaded(*command, "--codes", tmp_path / "codes.npy").out.startswith("code 0\n")


def test_an_index_with_a_graph(
    preloaded: Any, model: Path, captions: Path, sentences: list[str], tmp_path: Path
) -> None:
    pytest.importorskip("usearch")
    folder = tmp_path / "index"
    command = ["index", model, "--file", captions / "train.txt", "--out", folder, "--graph", "--metric", "cosine"]
    assert "360 sentences are in the index" in preloaded(*command).out
    search = ["neighbours", model, sentences[0], "--index", folder, "--json"]
    assert preloaded(*search).json["exact"] is False
    exact = preloaded(*search, "--exact").json
    assert exact["exact"] is True and len(exact["queries"][0]["neighbours"]) == 10
    other = preloaded(*search, "--metric", "euclidean")
    assert other.json["exact"] is True and "for cosine only" in other.err


def test_map(preloaded: Any, model: Path, captions: Path, sentences: list[str], tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"l{i % 2}\t{s} <b>\n" for i, s in enumerate(sentences)), encoding="utf-8")
    shown = preloaded("map", model, "--file", text, "--out", tmp_path / "map")
    assert shown.out == f"20 sentences by label are in {tmp_path}/map.png and {tmp_path}/map.html\n"
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert "t-SNE" in page and "l1" in page and f"{sentences[3].split()[0]}" in page
    for colour, name in (("length", "length in words"), ("likelihood", "log-likelihood in nats (lower bound, K = 3)")):
        options = ["--colour", colour, "--samples", 3, "--method", "pca", "--points", 50, "--overwrite", "--json"]
        document = preloaded("map", model, "--file", captions / "train.txt", "--out", tmp_path / "map", *options).json
        files = {"picture": str(tmp_path / "map.png"), "page": str(tmp_path / "map.html")}
        assert document == {"sentences": 360, "points": 50, "colour": name, "seed": 0, **files}
    assert "50 of 360 sentences (seed 0)" in (tmp_path / "map.html").read_text(encoding="utf-8")


def test_bad_codes_and_names(refused: Refusal, model: Path, language_model: Path, captions: Path) -> None:
    path = refused.folder / "codes.npy"
    text = captions / "test.txt"
    for array, message in (
        (np.zeros((3, 5)), "shape [3, 5]: this model's are [N, 4]"),
        (np.full((2, 4), np.nan), "code 0 (from 0) is not of finite numbers"),
        (np.array([None, {}], dtype=object), "not a NumPy file"),
    ):
        np.save(path, array, allow_pickle=True)
        for arguments in ((), ("--json",), ("--out", "out.txt")):
            assert message in refused("decode", model, path, *arguments)
    path.write_bytes(b"hello")
    assert "not a NumPy file" in refused("decode", model, path)
    assert "No such file: gone.npy" in refused("decode", model, "gone.npy")
    np.save(path, np.zeros((2, 4)))
    assert "it has no codes" in refused("decode", language_model, path)
    assert "it has no codes" in refused("encode", language_model, "--file", text, "--out", "new.npy")
    assert "codes.npy exists" in refused("decode", model, path, "--out", path)
    assert "choose one of greedy, sample, beam" in refused("decode", model, path, "--method", "best")
    assert "Cannot write gone/out.txt" in refused("decode", model, path, "--out", "gone/out.txt")
    assert "is a directory" in refused("encode", model, "--file", text, "--out", ".", "--overwrite")


def test_bad_use_of_an_index(refused: Refusal, model: Path, index: Path, captions: Path) -> None:
    text = captions / "test.txt"
    other = Path(shutil.copytree(model, refused.folder / "other"))
    weights = load_file(other / "model.safetensors")
    save_file({name: tensor + 0.01 for name, tensor in weights.items()}, other / "model.safetensors")
    assert "an index of another model" in refused("neighbours", other, "a man .", "--index", index)
    assert "Give sentences or --codes" in refused("neighbours", model, "--index", index)
    assert "Unknown metric 'manhattan'" in refused("neighbours", model, "a", "--index", index, "--metric", "manhattan")
    assert "gone is not an index" in refused("neighbours", model, "a man .", "--index", "gone")
    assert "Sentence 2 is empty" in refused("neighbours", model, "a man .", " ", "--index", index)
    assert "Missing option '--index'" in refused("neighbours", model, "a man .")
    copied = Path(shutil.copytree(index, refused.folder / "copied"))
    (copied / "codes.npy").write_bytes(b"no")
    assert "damaged index" in refused("neighbours", model, "a man .", "--index", copied)
    assert "copied exists" in refused("index", model, "--file", text, "--out", copied)
    (refused.folder / "mine").mkdir()
    assert "not overwritten" in refused("index", model, "--file", text, "--out", "mine", "--overwrite")
    (refused.folder / "bad.txt").write_bytes(b"a man .\nfa\xe7ade .\n")
    assert "bad.txt, line 2: not UTF-8" in refused("index", model, "--file", "bad.txt", "--out", "new")
    assert "Unknown metric" in refused("index", model, "--file", text, "--out", "new", "--metric", "taxi")


def test_bad_use_of_a_map(refused: Refusal, model: Path, captions: Path) -> None:
    text = captions / "test.txt"
    command = ["map", model, "--file", text, "--out", "map"]
    assert "the file has no labels" in refused(*command, "--colour", "label")
    assert "--colour red: choose one of label, length, likelihood" in refused(*command, "--colour", "red")
    assert "--method umap: choose one of pca, tsne, both" in refused(*command, "--method", "umap")
    (refused.folder / "one.txt").write_text("a man .\n", encoding="utf-8")
    assert "at least 2 sentences" in refused("map", model, "--file", "one.txt", "--out", "map")
    (refused.folder / "map.html").write_text("mine", encoding="utf-8")
    assert "map.html exists" in refused(*command)
