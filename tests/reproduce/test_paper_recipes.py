"""Every row of every paper loads, builds and takes two steps; every published figure stands in the paper's text."""

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from zentence.build import build_model, build_objective, complete
from zentence.corpora import Batches
from zentence.corpora.prepare import Corpus, prepare
from zentence.errors import ZentenceError
from zentence.evaluation.papers import read_paper
from zentence.noise import Noise
from zentence.parts import Part, plain
from zentence.reproduce.checks import parse_relation, rows_named
from zentence.reproduce.rows import deviations, papers, rows_of
from zentence.schedules import build_schedule
from zentence.settings import (
    CorpusSettings,
    Settings,
    load_settings,
    overlay,
    paper_recipe_names,
    read_recipe,
    recipe_names,
    resolve_recipe,
    settings_from,
)
from zentence.training.optimizers import build_optimizer
from zentence.training.trainable import LatentTrainable
from zentence.training.updates import complete_updates, find_update
from zentence.types import Batch

SMALL: dict[str, dict[str, int]] = {
    "encoder": {"embedding_size": 6, "hidden_size": 8},
    "decoder": {"embedding_size": 6, "hidden_size": 8},
    "posterior": {"size": 4, "context_size": 8},
    "prior": {"components": 3, "length_mean": 5},
}
ROWS = paper_recipe_names()


def small(content: dict[str, Any]) -> Settings:
    """Shrink the sizes that a recipe has, and nothing else."""
    content = dict(content)
    for family, sizes in SMALL.items():
        options = content[family]
        content[family] = options | {name: size for name, size in sizes.items() if name in options}
    for stage in content["stages"]:
        if stage["update"]["name"] == "aggressive":
            stage["update"] |= {"max_inner": 2, "judge_every": 1}
    return complete_updates(complete(settings_from(content)))


@pytest.fixture(scope="module")
def corpus(captions: Path) -> Corpus:
    return prepare(CorpusSettings(), [captions / "train.txt"], [captions / "valid.txt"])


@pytest.mark.parametrize("name", ROWS)
def test_every_row_builds_and_takes_two_steps_in_both_variants(name: str, corpus: Corpus) -> None:
    batches = Batches(corpus.splits["train"], sentences=6, tokens=None, seed=0, rank=0, world=1)

    def fresh(number: int) -> tuple[Batch, Noise]:
        batch = batches.batch(-1, number % 5)
        return batch, Noise(number, batch.index)

    for variant in ("faithful", "quick"):
        settings = small(plain(complete_updates(complete(load_settings(f"{name}@{variant}")))))
        model = build_model(settings, len(corpus.vocabulary))
        for stage in settings.stages:
            for part in stage.reset:
                model.reset_part(part)
            before = [p.detach().clone() for p in model.parameters()]
            objective = build_objective(stage, 3.0, 4)
            dropout = build_schedule("word_dropout", stage.corruption.word_dropout, 3.0, 4)
            trainable = LatentTrainable(model, objective, dropout, stage.corruption.unknown_inputs, None)
            optimizer_settings = settings.optimizer_of(stage)
            optimizer = build_optimizer(model, optimizer_settings)
            update, options = find_update("update", stage.update)
            rule = update(options, trainable, optimizer, optimizer_settings, fresh)
            for step in (1, 2):  # at step 0 a rising weight is still 0
                batch = batches.batch(0, step)
                _, loss = rule(batch, step, Noise(step, batch.index))
                assert torch.isfinite(loss)
            after = list(model.parameters())
            assert any(not torch.equal(a, b) for a, b in zip(after, before, strict=True))


# quick variants estimate the softmax, and paper 4's start from other values (the READMEs say why)
def without_own(part: Part, *own: str) -> Part:
    content = {name: value for name, value in part.options.items() if name not in own}
    return Part.model_validate({"name": part.name, **content})


# millions of tokens a stage, for PTB and for other texts
LENGTHS = {
    "surprisingly-effective-fix": {True: [[8], [6, 8]], False: [[4], [3, 4]]},
    "sentence-mim": {True: [[5]], False: [[3]]},
    "effective-estimation": {True: [[5]]},
    "better-exploiting": {True: [[5]], False: [[5]]},
}


@pytest.mark.parametrize("name", ROWS)
def test_variants_keep_model_and_objective(name: str) -> None:
    faithful, quick = (complete(load_settings(f"{name}@{variant}")) for variant in ("faithful", "quick"))
    paper = name.partition("/")[0]
    starts = ("initial",) if paper == "surprisingly-effective-fix" else ()
    for part in ("encoder", "posterior", "prior", "decoder", "averaged_codes", "corpus"):
        one, other = getattr(faithful, part), getattr(quick, part)
        if part in ("encoder", "decoder"):
            one, other = without_own(one, *starts, "training_words"), without_own(other, *starts, "training_words")
        assert one == other
    words = [settings.decoder.options["training_words"] for settings in (faithful, quick)]
    assert words == ["none", 2000]
    assert [stage.objective.name for stage in faithful.stages] == [stage.objective.name for stage in quick.stages]
    assert [stage.reset for stage in faithful.stages] == [stage.reset for stage in quick.stages]
    assert quick.optimizer.name == "adamw" and quick.training.batch_tokens == 768
    lengths = [(stage.max_tokens or 0) // 1_000_000 for stage in quick.stages]
    assert lengths in LENGTHS[paper][resolve_recipe(name)["data"] == "ptb"]
    assert quick.training.precision == "auto" and faithful.training.precision == "float32"
    for one, other in zip(faithful.stages, quick.stages, strict=True):
        rules = [dict(stage.objective.options.get("rate_rule", {})) for stage in (one, other)]
        weights = [rule.pop("weight", None) for rule in rules]
        assert rules[0] == rules[1]
        assert type(weights[0]) is type(weights[1])


def test_rows_do_not_disturb_the_plain_names() -> None:
    assert not [name for name in recipe_names() if "/" in name]
    assert len(ROWS) >= 100
    assert {name.partition("/")[0] for name in ROWS} == set(papers())
    with pytest.raises(ZentenceError, match="Did you mean 'surprisingly-effective-fix/fix-4'"):
        load_settings("surprisingly-effective-fix/fix4")
    with pytest.raises(ZentenceError, match=r"no variant 'fast'. Known: faithful, quick"):
        load_settings("surprisingly-effective-fix/fix-4@fast")


def test_a_row_is_what_it_extends_and_what_it_says() -> None:
    settings = load_settings("surprisingly-effective-fix/fix-4")
    first, second = settings.stages
    assert first.objective.name == "autoencoder" and second.reset == ("decoder",)
    rule = second.objective.options["rate_rule"]
    assert (rule["on"], rule["total_target"]) == ("per_dimension", 4.0)
    assert settings.optimizer.name == "sgd" and settings.optimizer.learning_rate == 0.5
    assert resolve_recipe("surprisingly-effective-fix/fix-4")["data"] == "ptb"
    assert "data" not in read_recipe("surprisingly-effective-fix/fix-4")


def test_overlay_replaces_another_part_and_lays_lists_over_each_other() -> None:
    below = {"a": {"name": "x", "size": 1}, "stages": [{"n": 1, "m": 2}], "k": [1, 2]}
    assert overlay(below, {"a": {"name": "y"}})["a"] == {"name": "y"}
    assert overlay(below, {"a": {"name": "x", "depth": 2}})["a"] == {"name": "x", "size": 1, "depth": 2}
    assert overlay(below, {"stages": [{"n": 3}]})["stages"] == [{"n": 3, "m": 2}]
    assert overlay(below, {"stages": [{"n": 3}, {}]})["stages"] == [{"n": 3}, {}]
    assert overlay(below, {"k": [3]})["k"] == [3]
    assert below["stages"] == [{"n": 1, "m": 2}]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.toml": 'extends = "b.toml"', "b.toml": 'extends = "a.toml"'}, "extends itself: a.toml → b.toml → a.toml"),
        ({"a.toml": 'extends = "b.toml"'}, r"a.toml → b.toml: there is no such file"),
        ({"a.toml": 'extends = "../b.toml"'}, "there is no such file"),
        ({"a.toml": "extends = 3"}, "'extends' is the name of a file"),
    ],
)
def test_a_wrong_base_is_one_line(files: dict[str, str], message: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ZentenceError, match=message):
        load_settings(str(tmp_path / "a.toml"))


def test_a_users_file_may_extend_another(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text("[training]\nseed = 3\n[optimizer]\nlearning_rate = 0.5\n")
    (tmp_path / "mine.toml").write_text('extends = "base.toml"\n[training]\nseed = 4\n')
    settings = load_settings(str(tmp_path / "mine.toml"))
    assert (settings.training.seed, settings.optimizer.learning_rate) == (4, 0.5)


@pytest.mark.parametrize("paper", papers())
def test_tables_name_recipes_and_every_relation_can_be_checked(paper: str) -> None:
    table, rows = read_paper(paper), {row.name: row for row in rows_of(paper)}
    assert {entry.recipe for entry in table.rows if entry.recipe} <= set(rows)
    for entry in table.rows:
        row = rows.get(entry.recipe or "")
        assert row is None or entry.corpus is None or entry.corpus in row.corpora
    measured = {name: {*row.metrics(), *(f for e in row.published for f in e.figures)} for name, row in rows.items()}
    for check in table.checks:
        for text in check.all:
            relation = parse_relation(text)
            assert set(rows_named(relation)) <= set(rows)
            for side in (relation.left, relation.right):
                row_name, _, metric = side.rpartition(".")
                assert row_name not in rows or metric in measured[row_name], text
    assert "What differs from the paper" in deviations(paper)


@pytest.mark.parametrize("paper", papers())
def test_every_value_that_is_no_default_says_where_it_stands(paper: str) -> None:
    """A value in a recipe has a comment on its line, unless it is zentence's own default."""
    folder = Path(resolve_recipe.__code__.co_filename).parent / "recipes" / paper
    allowed = re.compile(r"^(extends|data|metrics|tasks|name|cell|code_to_inputs) = |^clip = 5\.0$")
    for path in sorted(folder.glob("*.toml")):
        if path.name == "table.toml":
            continue
        assert path.read_text(encoding="utf-8").startswith("# Paper"), path.name
        quick = False
        for line in path.read_text(encoding="utf-8").splitlines():
            quick = "[variants." in line or (quick and not line.startswith("["))
            value = " = " in line and not line.startswith(("#", "["))
            assert not value or quick or "#" in line or allowed.match(line) or "likelihood" in line or _plain(line), (
                f"{path.name}: {line}"
            )


def _plain(line: str) -> bool:
    """Say whether a line chooses a default, or what another comment of its table already explains."""
    return line in (
        'initial_state = "zero"',
        "epochs = 100",
        "plateau = { not_before_epoch = 0 }",
        'objective = { name = "elbo" }',
    )


@cache
def numbers_of(path: Path) -> list[set[float]]:
    """Return the numbers of each line of a text."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [{float(number) for number in re.findall(r"\d+\.\d+|\d+", line)} for line in lines]


@pytest.mark.parametrize("paper", papers())
def test_figures_stand_in_the_papers_text(paper: str) -> None:
    """All figures of a row of `table.toml` stand in one line of the paper's text: a line of its table."""
    folder = Path(os.environ["ZENTENCE_DATA"]).parent / "papers" if os.environ.get("ZENTENCE_DATA") else None
    path = None if folder is None else folder / f"{paper.replace('-', '_')}.txt"
    if path is None or not path.is_file():
        pytest.skip("the papers' texts are not at hand (beside $ZENTENCE_DATA)")
    lines = numbers_of(path)
    missing = [
        f"{entry.name} ({entry.source})"
        for entry in read_paper(paper).rows
        if not any(set(entry.figures.values()) <= line for line in lines)
    ]
    assert not missing
