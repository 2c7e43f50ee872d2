"""Dialog models trained, resumed and used through the library."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from zentence.errors import ZentenceError
from zentence.guided.dialog_evaluate import evaluate_dialog, read_exchanges
from zentence.guided.dialog_loss import DialogOptions
from zentence.guided.dialog_metrics import sentence_bleu
from zentence.guided.dialog_model import DialogModel, lower_parameters
from zentence.guided.dialog_space import DialogSpace
from zentence.guided.dialog_train import DialogRun, train_dialog
from zentence.guided.style_classifiers import train_judges
from zentence.latent.space import LatentSpace
from zentence.settings import settings_from
from zentence.testing import tiny_model
from zentence.types import Tokens

NAMES = ("anna", "bob", "carl", "dora", "emil")
THINGS = ("tea", "milk", "water", "beer")
SETTINGS = settings_from(
    {
        "encoder": {"name": "recurrent", "cell": "gru", "embedding_size": 8, "hidden_size": 12, "pooling": "max"},
        "posterior": {"name": "gaussian", "size": 4},
        "decoder": {"name": "recurrent", "cell": "gru", "embedding_size": 8, "hidden_size": 16, "tied": False},
    }
)
FIT = {"steps": 12, "validate_every": 4, "log_every": 1, "checkpoint_seconds": 0.0, "learning_rate": 0.01, "seed": 3}
OPTIONS = DialogOptions(batch_sentences=16, turns=3)


def talk(count: int = 80) -> str:
    lines = []
    for n in range(count):
        name, thing = NAMES[n % 5], THINGS[n % 4]
        turns = [f"hello , i am {name}", f"hello {name} !", f"do you have {thing} ?", f"yes , here is your {thing} ."]
        lines.append("".join(f"{turn} __eou__ " for turn in turns))
    return "\n".join(lines)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("talk")
    (folder / "train.txt").write_text(talk(), encoding="utf-8")
    (folder / "valid.txt").write_text(talk(20), encoding="utf-8")
    style = "\n".join(f"pray , good {NAMES[n % 5]} , partake of the {THINGS[n % 4]} {n}" for n in range(600))
    (folder / "style.txt").write_text(style, encoding="utf-8")
    return folder


def train(files: Path, folder: Path, *, style: bool = False, **changes: Any) -> Path:
    options = changes.pop("options", OPTIONS)
    fit = {**FIT, **changes.pop("fit", {})}
    run = DialogRun(
        files / "train.txt",
        files / "valid.txt",
        files / "style.txt" if style else None,
        changes.pop("start", None),
        options,
    )
    return train_dialog(run, SETTINGS, folder, fit_options=fit, **changes).folder


@pytest.fixture(scope="module")
def trained(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(files, tmp_path_factory.mktemp("models") / "fusion")


@pytest.fixture(scope="module")
def styled(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = OPTIONS.model_copy(update={"held_apart": 0.3})
    fit = {"steps": 250, "validate_every": 250, "checkpoint_seconds": 1e9, "learning_rate": 0.03}
    return train(files, tmp_path_factory.mktemp("models") / "styled", style=True, options=options, fit=fit)


class Stopped(Exception):  # noqa: N818 - no error
    """What a test throws into a run."""


@pytest.mark.parametrize("moment", [3, 8])
def test_a_run_that_was_stopped_goes_on_bit_by_bit(files: Path, trained: Path, tmp_path: Path, moment: int) -> None:
    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["tick"] == moment + 1:  # after it, the step before is the last one saved
            raise Stopped

    with pytest.raises(Stopped):
        train(files, tmp_path / "model", callbacks=[stop])
    assert not (tmp_path / "model" / "model.safetensors").exists()
    with pytest.raises(ZentenceError, match="not finished"):
        DialogSpace.load(tmp_path / "model")
    with pytest.raises(ZentenceError, match="changed fingerprint: options"):
        train(files, tmp_path / "model", resume=True, options=OPTIONS.model_copy(update={"push_cap": 2.0}))
    train(files, tmp_path / "model", resume=True)
    for name in ("model.safetensors", "space/model.safetensors", "dialog.json", "scatter.safetensors"):
        assert (tmp_path / "model" / name).read_bytes() == (trained / name).read_bytes()
    assert train(files, tmp_path / "model", resume=True) == tmp_path / "model"  # finished: nothing more to do


def test_longer_is_not_the_same(files: Path, trained: Path, tmp_path: Path) -> None:
    changed = train(files, tmp_path / "other", fit={"seed": 4})
    assert (changed / "model.safetensors").read_bytes() != (trained / "model.safetensors").read_bytes()


def test_the_directory(files: Path, trained: Path, tmp_path: Path) -> None:
    with pytest.raises(ZentenceError, match="go on with --resume, start anew with --overwrite"):
        train(files, trained)
    space = LatentSpace.load(trained / "space")  # a model directory like any other
    dialog = DialogSpace.load(trained)
    sentence = ["hello bob !"]
    assert np.array_equal(space.encode(sentence), dialog.space.encode(sentence))
    with pytest.raises(ZentenceError, match="holds no dialog"):
        (tmp_path / "fit.json").write_text('{"format": 1, "name": "other", "fingerprint": {}}', encoding="utf-8")
        DialogSpace.load(tmp_path)


def test_contexts_are_read_as_in_training(files: Path, trained: Path) -> None:
    """Codes do not depend on what they are encoded with, and only the last turns count."""
    dialog = DialogSpace.load(trained)
    exchanges = list(read_exchanges(files / "valid.txt", 10, 7))
    assert [len(e.context) for e in exchanges] != [1] * 7 and all(e.response for e in exchanges)
    contexts = [e.context for e in exchanges]
    together = dialog.encode(contexts)
    assert np.allclose(together, np.concatenate([dialog.encode([context]) for context in contexts]), atol=1e-6)
    three = ["hello", "hello bob !", "do you have tea ?"]
    assert np.array_equal(dialog.encode([["a long story", *three]]), dialog.encode([three]))
    with pytest.raises(ZentenceError, match="context is empty"):
        dialog.encode([()])
    with pytest.raises(ZentenceError, match="no turn without a word"):
        dialog.encode([("hello", " ")])


@pytest.mark.parametrize("around", ["scatter", "sphere"])
def test_codes_around_a_context(trained: Path, around: str) -> None:
    dialog = DialogSpace.load(trained)
    assert dialog.scatter is not None
    center = dialog.encode([["hello"], ["do you have tea ?"]])
    options: dict[str, Any] = {"around": around, "seed": 2}
    drawn = dialog.codes_around(center, 5, radius=0.8, **options)
    steps = (drawn - center[:, None]) / 0.8
    if around == "sphere":
        assert np.sqrt(np.square(steps).mean(-1)) == pytest.approx(np.ones((2, 5)), abs=1e-4)
    else:
        known = np.abs(steps[:, :, None] - dialog.scatter).max(-1).min(-1)
        assert known == pytest.approx(np.zeros((2, 5)), abs=1e-5)
    assert not np.allclose(steps[0], steps[1]) and not np.allclose(steps[0, 0], steps[0, 1])
    assert np.array_equal(drawn[1:], dialog.codes_around(center[1:], 5, radius=0.8, first=1, **options))
    assert not np.array_equal(drawn, dialog.codes_around(center, 5, radius=0.8, around=around, seed=3))
    assert np.array_equal(dialog.codes_around(center, 1, radius=0.0)[:, 0], center)
    with pytest.raises(ZentenceError, match="radius"):
        dialog.codes_around(center, 2, radius=float("nan"))
    with pytest.raises(ZentenceError, match="one of scatter, sphere"):
        dialog.codes_around(center, 2, radius=1.0, around="corner")


def test_the_scatter_is_that_of_training_pairs(files: Path, trained: Path) -> None:
    """Each of its rows is the code of a training response minus that of its context."""
    dialog = DialogSpace.load(trained)
    assert dialog.scatter is not None and len(dialog.scatter) == 240  # all of them: there are fewer than are kept
    exchanges = list(read_exchanges(files / "train.txt", 3))
    expected = dialog.space.encode([e.response for e in exchanges]) - dialog.encode([e.context for e in exchanges])
    order = [np.lexsort(np.round(rows, 3).T) for rows in (dialog.scatter, expected)]
    assert dialog.scatter.mean(0) == pytest.approx(expected.mean(0), abs=1e-5)
    assert dialog.scatter[order[0]][0] == pytest.approx(expected[order[1]][0], abs=1e-2)


def test_responses_do_not_depend_on_their_company(trained: Path) -> None:
    dialog = DialogSpace.load(trained)
    contexts = [["hello"], ["do you have tea ?"], ["hello", "hello bob !"]]
    options = {"radius": 2.0, "seed": 5, "method": "sample"}
    together = dialog.respond(contexts, 4, **options)
    assert [len(row) for row in together] == [4, 4, 4]
    assert dialog.respond(contexts[2:], 4, first=2, **options) == together[2:]
    with pytest.raises(ZentenceError, match="at least 1"):
        dialog.respond(contexts, 0)


def test_style(files: Path, styled: Path) -> None:
    """The judges know the style, codes move to it in a straight line, and at its end it is there."""
    dialog = DialogSpace.load(styled)
    assert dialog.style is not None
    scores = dialog.style_scores(["pray , good anna , partake of the milk", "yes , here is your milk ."])
    for values in scores.values():
        assert values[0] > 0.9 and values[1] < 0.1
    codes = dialog.encode([["do you have tea ?"], ["hello"]])
    for towards in ("nearest", "mean"):
        half, whole = (dialog.towards_style(codes, strength, towards) for strength in (0.5, 1.0))
        assert half == pytest.approx(0.5 * (codes + whole), abs=1e-6)
        assert np.array_equal(dialog.towards_style(codes, 0.0, towards), codes)
    nearest = dialog.towards_style(codes, 1.0, "nearest")
    brute = [dialog.style[np.square(dialog.style - code).sum(1).argmin()] for code in codes]
    assert nearest == pytest.approx(np.array(brute))
    found = evaluate_dialog(
        [("styled", dialog)],
        files / "valid.txt",
        responses=3,
        limit=8,
        strengths=(0.0, 1.0),
        examples=2,
        method="greedy",
    )
    low, high = (row.style for row in found.rows)
    assert low is not None and high is not None and found.real_style is not None
    assert high["neural"] > low["neural"] + 0.3 and high["ngram"] > low["ngram"] + 0.3
    assert max(found.real_style.values()) < 0.1
    document = found.to_dict()
    assert [row["strength"] for row in document["rows"]] == [0.0, 1.0] and len(document["examples"]) == 2
    with pytest.raises(ZentenceError, match="0 to 1"):
        dialog.towards_style(codes, 1.5)
    with pytest.raises(ZentenceError, match="one of mean, nearest"):
        dialog.towards_style(codes, 0.5, "far")


def test_no_style_was_learnt(files: Path, trained: Path) -> None:
    dialog = DialogSpace.load(trained)
    with pytest.raises(ZentenceError, match="learnt no style"):
        dialog.respond([["hello"]], strength=0.5)
    with pytest.raises(ZentenceError, match="learnt no style"):
        evaluate_dialog([("m", dialog)], files / "valid.txt", strengths=(0.0, 0.5))
    with pytest.raises(ZentenceError, match="no classifiers"):
        dialog.style_scores(["hello"])
    with pytest.raises(ZentenceError, match="A style needs the objective 'fusion'"):
        train(files, trained.parent / "never", style=True, options=DialogOptions(objective="s2s"))


def test_evaluation_is_the_scores_of_its_responses(files: Path, trained: Path) -> None:
    dialog = DialogSpace.load(trained)
    found = evaluate_dialog([("a", dialog), ("b", dialog)], files / "valid.txt", responses=2, limit=5, examples=5)
    rows = [
        [sentence_bleu(exchange.response.split(), text.split()) for text in written]
        for exchange, written in zip(found.exchanges, found.rows[0].examples, strict=True)
    ]
    assert found.rows[0].scores.bleu.tolist() == rows and len(rows) == 5
    assert found.differences() == [{"f1": 0.0, "error": 0.0}]
    everything = evaluate_dialog([("a", dialog)], files / "valid.txt", responses=1)
    assert len(everything.rows[0].scores.bleu) == 60


def test_training_learns_to_answer(files: Path, styled: Path) -> None:
    """After 250 updates a response fits what was said before it better than what was said elsewhere."""
    dialog = DialogSpace.load(styled)
    exchanges = list(read_exchanges(files / "valid.txt", 3))
    contexts = [exchange.context for exchange in exchanges]
    written = [row[0].split() for row in dialog.respond(contexts, 1, radius=0.0, method="greedy")]
    said = [exchange.response.split() for exchange in exchanges]
    own = np.mean([sentence_bleu(a, b) for a, b in zip(said, written, strict=True)])
    other = np.mean([sentence_bleu(a, b) for a, b in zip(said[1:] + said[:1], written, strict=True)])
    assert own > 2.0 * other


def test_from_a_trained_model(files: Path, trained: Path, tmp_path: Path) -> None:
    """Both ways in start from the trained encoder, and the vocabulary is the model's."""
    folder = train(files, tmp_path / "model", start=trained / "space", fit={"steps": 1, "learning_rate": 1e-9})
    start, dialog = LatentSpace.load(trained / "space"), DialogSpace.load(folder)
    assert dialog.space.vocabulary.hash == start.vocabulary.hash
    code = start.encode(["hello bob !"])
    assert dialog.space.encode(["hello bob !"]) == pytest.approx(code, abs=1e-5)
    assert dialog.encode([["hello bob !"]]) == pytest.approx(code, abs=1e-5)
    with pytest.raises(ZentenceError, match="holds a model of `zentence train`"):
        train(files, trained / "space", start=trained / "space", overwrite=True)


def test_judges_need_text() -> None:
    class Few:
        def __len__(self) -> int:
            return 5

    assert train_judges(Few(), Few(), 10) is None  # type: ignore[arg-type]


def test_lower_layers_of_a_transformer_are_frozen_and_shared() -> None:
    pytest.importorskip("transformers")
    overrides = [
        'encoder={"name" = "transformer", "layers" = 2, "hidden_size" = 8, "heads" = 2, "positions" = 40}',
    ]
    model = tiny_model(overrides)
    dialog = DialogModel(model, frozen=True)
    lower = lower_parameters(model.encoder)
    assert lower and not any(p.requires_grad for p in lower)
    shared = {id(p) for p in dialog.context_encoder.parameters()} & {id(p) for p in model.encoder.parameters()}
    assert shared == {id(p) for p in lower}
    assert any(p.requires_grad for p in dialog.context_encoder.parameters())
    tokens = Tokens(torch.tensor([[1, 5, 6, 2]]), torch.tensor([4]))
    assert torch.allclose(dialog.infer_context(tokens).center, model.infer(tokens).center)
