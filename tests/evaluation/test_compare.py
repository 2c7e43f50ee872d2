"""Comparisons of hand-made results: what is ranked, what is not, and how it is written."""

import csv
import io
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from zentence.checkpoint import save_settings
from zentence.errors import ZentenceError
from zentence.evaluation.columns import Column
from zentence.evaluation.compare import Block, Cell, Comparison, Row, compare
from zentence.evaluation.paired import paired_bootstrap
from zentence.evaluation.papers import paper_names, read_paper
from zentence.evaluation.runs import group_names, group_seeds, load_runs
from zentence.evaluation.tables import (
    CSV_COLUMNS,
    latex_text,
    markdown_text,
    to_csv,
    to_json,
    to_latex,
    to_markdown,
    to_text,
)
from zentence.testing import tiny_settings


def figure(name: str, value: float, kind: str = "upper_bound", **other: Any) -> dict[str, Any]:
    row = {
        "name": name, "value": value, "unit": "nats per sentence", "kind": kind, "standard_error": 0.5, "count": 100,
        "samples": None, "split": "valid", "seed": 0, "details": {}, "provenance": {"store": "text-1"},
    }  # fmt: skip
    return {**row, **other}


def make_run(folder: Path, figures: list[dict[str, Any]], *, settings: Sequence[str] | None = None) -> Path:
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps(figures), encoding="utf-8")
    if settings is not None:
        save_settings(folder, tiny_settings(settings))
    return folder


def write_sentences(run: Path, split: str = "valid", store: str = "text-1", **values: Any) -> None:
    (run / "sentences").mkdir(exist_ok=True)
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in values.items()}
    np.savez(run / "sentences" / f"{split}.npz", store=np.array(store), seed=np.array(0), **arrays)


def best_of(block: Block) -> dict[tuple[str, str], set[str]]:
    """Return the names of the rows marked in each column that has figures."""
    return {
        (column.metric, column.kind): {row.name for row in block.rows if column in row.cells and row.cells[column].best}
        for column in block.columns
    }


def test_kinds_are_never_ranked_against_each_other(tmp_path: Path) -> None:
    """The bound of `vae` is below the exact figure of `lm`, and still no best is named between them."""
    runs = load_runs([
        make_run(tmp_path / "lm", [figure("nll", 100.0, "exact"), figure("ppl", 90.0, "exact", details={"of": "nll"})]),
        make_run(tmp_path / "vae", [figure("iw_nll", 99.0), figure("ppl", 88.0, details={"of": "iw_nll"}),
                                    figure("elbo_nll", 103.0)]),
        make_run(tmp_path / "avg", [figure("iw_nll", 98.0), figure("ppl", 87.0, details={"of": "iw_nll"}),
                                    figure("elbo_nll", 80.0, "not_a_bound")]),
    ])  # fmt: skip
    (block,) = compare(runs).blocks
    marked = best_of(block)
    assert marked == {
        ("nll", "exact"): set(), ("iw_nll", "upper_bound"): {"avg"},
        ("ppl", "exact"): set(), ("ppl", "upper_bound"): {"avg"},
        ("elbo_nll", "upper_bound"): set(), ("elbo_nll", "not_a_bound"): set(),
    }  # fmt: skip
    for row in block.rows:
        assert len({(column.metric, column.kind) for column in row.cells}) == len(row.cells)
    assert any("not a bound" in note for note in block.notes)


def test_perplexities_of_different_bounds_have_their_own_columns(tmp_path: Path) -> None:
    runs = load_runs([
        make_run(tmp_path / "a", [figure("ppl", 90.0, details={"of": "iw_nll"})]),
        make_run(tmp_path / "b", [figure("ppl", 95.0, details={"of": "elbo_nll"})]),
    ])  # fmt: skip
    comparison = compare(runs)
    assert [column.of for column in comparison.blocks[0].columns] == ["elbo_nll", "iw_nll"]
    assert not any(cell.best for row in comparison.blocks[0].rows for cell in row.cells.values())
    assert "ppl of elbo_nll" in to_text(comparison) and "ppl of iw_nll" in to_text(comparison)


def test_melbo_stands_last_with_its_floor(tmp_path: Path) -> None:
    details = {"floor": math.log(100.0), "N": 100}
    figures = [figure("melbo_nll", 60.0, details=details), figure("iw_nll", 99.0), figure("rate", 5.0, "estimate")]
    (block,) = compare(load_runs([make_run(tmp_path / "mim", figures)])).blocks
    assert [column.metric for column in block.columns] == ["iw_nll", "rate", "melbo_nll"]
    assert any("prior made of the evaluated sentences" in note and "4.61" in note for note in block.notes)


def test_directions(tmp_path: Path) -> None:
    runs = load_runs([
        make_run(tmp_path / "a", [figure("iw_nll", 9.0), figure("mutual_information", 3.0, "estimate"),
                                  figure("rate", 5.0, "estimate")]),
        make_run(tmp_path / "b", [figure("iw_nll", 8.0), figure("mutual_information", 2.0, "estimate"),
                                  figure("rate", 4.0, "estimate")]),
        make_run(tmp_path / "c", [figure("iw_nll", 8.0)]),
    ])  # fmt: skip
    marked = best_of(compare(runs).blocks[0])
    assert marked[("iw_nll", "upper_bound")] == {"b", "c"}  # a tie
    assert marked[("mutual_information", "estimate")] == {"a"}
    assert marked[("rate", "estimate")] == set()  # neither direction is better


def test_different_texts_have_tables_of_their_own(tmp_path: Path) -> None:
    runs = load_runs([
        make_run(tmp_path / "a", [figure("iw_nll", 9.0)]),
        make_run(tmp_path / "b", [figure("iw_nll", 8.0, provenance={"store": "text-2"})]),
        make_run(tmp_path / "c", [figure("iw_nll", 7.0, split="dev.txt")]),
    ])  # fmt: skip
    blocks = compare(runs).blocks
    assert [[row.name for row in block.rows] for block in blocks] == [["a", "c"], ["b"]]
    assert blocks[0].split == "valid = dev.txt" and blocks[0].content == "text-1"
    assert best_of(blocks[0]) == {("iw_nll", "upper_bound"): {"c"}}
    assert best_of(blocks[1]) == {("iw_nll", "upper_bound"): set()}
    (only,) = compare(runs, split="dev.txt").blocks
    assert [row.name for row in only.rows] == ["c"]


def test_texts_that_are_not_known_to_be_the_same_are_not_ranked(tmp_path: Path) -> None:
    runs = load_runs(
        [
            make_run(tmp_path / name, [figure("iw_nll", value, provenance={})])
            for name, value in (("a", 9.0), ("b", 8.0))
        ]
    )
    (block,) = compare(runs).blocks
    assert best_of(block) == {("iw_nll", "upper_bound"): set()}
    assert any("not ranked" in note for note in block.notes)


def test_figures_of_fewer_sentences_are_not_ranked(tmp_path: Path) -> None:
    runs = load_runs([
        make_run(tmp_path / "a", [figure("iw_nll", 9.0)]),
        make_run(tmp_path / "b", [figure("iw_nll", 8.0, count=10)]),
    ])  # fmt: skip
    (block,) = compare(runs).blocks
    assert best_of(block) == {("iw_nll", "upper_bound"): set()}
    assert any("same number of sentences" in note and "a: 100, b: 10" in note for note in block.notes)


@pytest.mark.parametrize(
    ("first", "second", "ranked", "note"),
    [
        ({"samples": 50}, {"samples": 500}, True, "number of samples K differs (a: 50, b: 500)"),
        (
            {"samples": 50, "details": {"policy": "fixed"}},
            {"samples": 60, "details": {"policy": "auto"}},
            True,
            "b: auto",
        ),
        ({"details": {"signature": "nrefs:1"}}, {"details": {"signature": "nrefs:2"}}, False, "signature differs"),
    ],
)
def test_figures_made_differently(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], ranked: bool, note: str
) -> None:
    runs = load_runs([
        make_run(tmp_path / "a", [figure("iw_nll", 9.0, **first)]),
        make_run(tmp_path / "b", [figure("iw_nll", 8.0, **second)]),
    ])  # fmt: skip
    (block,) = compare(runs).blocks
    assert best_of(block) == {("iw_nll", "upper_bound"): {"b"} if ranked else set()}
    assert any(note in remark for remark in block.notes)


def test_a_chosen_number_of_samples_is_one_policy(tmp_path: Path) -> None:
    """Where K was chosen for each sentence, its mean differs from run to run, and that is no difference of method."""
    about = {"store": "text-1", "evaluation": {"samples": None, "tolerance": 0.15, "limit": None}}
    runs = [
        make_run(tmp_path / str(K), [figure("ppl", K, samples=K, details={"of": "iw_nll"}, provenance=about)])
        for K in (87, 135)
    ]
    (block,) = compare(load_runs(runs)).blocks
    assert block.notes == () and best_of(block) == {("ppl", "upper_bound"): {"87"}}


def test_versions_of_a_metric_are_kept_apart(tmp_path: Path) -> None:
    runs = load_runs([
        make_run(tmp_path / "a", [figure("iw_nll", 9.0)]),
        make_run(tmp_path / "b", [figure("iw_nll", 8.0, version=2)]),
    ])  # fmt: skip
    comparison = compare(runs)
    assert len(comparison.blocks[0].columns) == 2 and "iw_nll v2" in to_text(comparison)


def seeds_of(tmp_path: Path, values: Sequence[float], name: str = "vae", **other: Any) -> list[Path]:
    return [
        make_run(
            tmp_path / f"{name}-seed{seed}", [figure("iw_nll", value, **other)], settings=[f"training.seed={seed}"]
        )
        for seed, value in enumerate(values)
    ]


def test_seeds_become_one_row(tmp_path: Path) -> None:
    values = [100.0, 101.0, 103.0]
    other = make_run(tmp_path / "wide", [figure("iw_nll", 101.0)], settings=["posterior.size=3"])
    runs = load_runs([*seeds_of(tmp_path, values), other])
    (block,) = compare(runs).blocks
    row, wide = block.rows
    (cell,) = row.cells.values()
    assert row.name == "vae" and row.seeds == (0, 1, 2) and wide.name == "wide"
    assert cell.value == pytest.approx(statistics.mean(values)) and cell.std == pytest.approx(statistics.stdev(values))
    assert cell.seeds == 3 and cell.standard_error is None and not cell.best
    assert wide.cells[block.columns[0]].best
    text = to_text(compare(runs))
    assert "vae (3 seeds)" in text and "101.33 ± 1.53" in text and "over seeds" in text


def test_what_makes_runs_differ_only_in_the_seed(tmp_path: Path) -> None:
    def run(name: str, *settings: str) -> Path:
        return make_run(tmp_path / name, [figure("iw_nll", 1.0)], settings=settings)

    folders = [
        run("x/a", "training.seed=1"),
        run("y/a", "training.seed=2", "out=elsewhere", "training.threads=2"),
        run("again", "training.seed=2"),  # a repetition of a seed is no further seed
        run("other", "training.seed=3", "training.batch_sentences=8"),
        make_run(tmp_path / "bare", [figure("iw_nll", 1.0)]),
        make_run(tmp_path / "bare2", [figure("iw_nll", 1.0)]),
    ]
    groups = group_seeds(load_runs(folders))
    assert [[run.name for run in group] for group in groups] == [
        ["x/a", "y/a"], ["again"], ["other"], ["bare"], ["bare2"],
    ]  # fmt: skip
    assert group_names(groups) == ["a", "again", "other", "bare", "bare2"]


def test_paired_bootstrap_agrees_with_the_normal_approximation() -> None:
    random = np.random.default_rng(1)
    lengths = random.gamma(4.0, 25.0, 1500)  # far more spread than the difference has
    first, second = lengths + random.normal(0.0, 3.0, 1500), lengths + random.normal(0.13, 3.0, 1500)
    difference = first - second
    mean, error = difference.mean(), difference.std(ddof=1) / math.sqrt(1500)
    found = paired_bootstrap(first, second, "lower", resamples=20_000, seed=3)
    assert found.difference == pytest.approx(mean)
    assert found.low == pytest.approx(mean - 1.96 * error, abs=0.05 * error)
    assert found.high == pytest.approx(mean + 1.96 * error, abs=0.05 * error)
    assert found.first_better == pytest.approx(stats.norm.cdf(-mean / error), abs=0.012)
    assert paired_bootstrap(first, second, "lower", resamples=20_000, seed=3) == found
    other = paired_bootstrap(first, second, "higher", resamples=20_000, seed=3)
    assert other.first_better == pytest.approx(1.0 - found.first_better)
    assert paired_bootstrap(first, first, "lower").first_better == 0.5


def test_paired_bootstrap_does_not_depend_on_how_much_is_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(2)
    first, second = random.normal(0.0, 1.0, (2, 50))
    whole = paired_bootstrap(first, second, "lower", resamples=1000)
    monkeypatch.setattr("zentence.evaluation.paired._DRAWN_AT_ONCE", 400)
    assert paired_bootstrap(first, second, "lower", resamples=1000) == whole


def test_runs_with_the_same_sentences_are_paired(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(100.0, 20.0, 100)
    runs = []
    for name, shift in (("a", 0.0), ("b", -1.0), ("c", 0.5)):
        mine = values + shift
        run = make_run(tmp_path / name, [figure("iw_nll", mine.mean()), figure("rate", 4.0, "estimate")])
        write_sentences(run, iw_nll=mine, rate=np.full(100, 4.0))
        runs.append(run)
    comparison = compare(load_runs(runs), resamples=500)
    assert [(p.first, p.second, p.metric) for p in comparison.pairs] == [("a", "b", "iw_nll"), ("a", "c", "iw_nll")]
    assert [p.difference for p in comparison.pairs] == pytest.approx([1.0, -0.5])
    assert [p.first_better for p in comparison.pairs] == [0.0, 1.0]
    assert "a − c = -0.500" in to_text(comparison)


def test_seeds_are_averaged_before_pairing(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(100.0, 20.0, 100)
    folders = seeds_of(tmp_path, [values.mean(), values.mean() + 2.0])
    for folder, shift in zip(folders, (0.0, 2.0), strict=True):
        write_sentences(folder, iw_nll=values + shift)
    lm = make_run(tmp_path / "lm", [figure("iw_nll", values.mean())])
    write_sentences(lm, iw_nll=values)
    (pair,) = compare(load_runs([*folders, lm]), resamples=200).pairs
    assert pair.difference == pytest.approx(1.0)


@pytest.mark.parametrize("damage", ["other text", "other figures", "other kind", "none"])
def test_sentences_that_do_not_belong_together_are_not_paired(tmp_path: Path, damage: str) -> None:
    values = np.random.default_rng(0).normal(100.0, 20.0, 100)
    first = make_run(tmp_path / "a", [figure("elbo_nll", values.mean())])
    write_sentences(first, elbo_nll=values)
    kind = "not_a_bound" if damage == "other kind" else "upper_bound"
    second = make_run(tmp_path / "b", [figure("elbo_nll", values.mean(), kind)])
    write_sentences(
        second, store="text-2" if damage == "other text" else "text-1",
        elbo_nll=values + (1.0 if damage == "other figures" else 0.0),
    )  # fmt: skip
    comparison = compare(load_runs([first, second]), resamples=200)
    assert bool(comparison.pairs) == (damage == "none")
    assert bool(comparison.notes) == (damage in ("other text", "other figures"))


PAPER = """
title = "A paper"
[[rows]]
name = "fix, λ = 4"
split = "PTB test"
source = "Table 1"
kind = "upper_bound"
figures = { iw_nll = 50.0, ppl = 96.17, rate = 4.99, nll = 7.0 }
tolerance = { iw_nll = 1.0 }
conflict = "Table 8 says 51"
"""


def test_a_papers_figures_stand_beside_and_are_not_ranked(tmp_path: Path) -> None:
    (tmp_path / "table.toml").write_text(PAPER, encoding="utf-8")
    paper = read_paper(str(tmp_path / "table.toml"))
    runs = load_runs([
        make_run(tmp_path / "a", [figure("iw_nll", 99.0)]), make_run(tmp_path / "b", [figure("iw_nll", 98.0)]),
    ])  # fmt: skip
    comparison = compare(runs, paper=paper)
    row = comparison.blocks[0].rows[-1]
    assert row.paper and row.name == "fix, λ = 4 (paper, PTB test)" and row.remark == "Table 1; Table 8 says 51"
    assert {column.kind for column in row.cells if column.metric == "rate"} == {"estimate"}
    assert row.cells[Column("iw_nll", "upper_bound")].tolerance == 1.0
    assert best_of(comparison.blocks[0])[("iw_nll", "upper_bound")] == {"b"}
    only = compare(runs, paper=paper, metrics=["iw_nll"]).blocks[0]
    assert [column.metric for column in only.columns] == ["iw_nll"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("iw_nll = 50.0", "iw_nl = 50.0"), "Did you mean 'iw_nll'?"),
        (('kind = "upper_bound"', 'kind = "lower"'), "kind"),
        (('source = "Table 1"', ""), "source"),
        (("[[rows]]", "[[row]]"), "row"),
        (('title = "A paper"', "title = "), "not valid TOML"),
    ],
)
def test_a_damaged_table_of_figures(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    (tmp_path / "table.toml").write_text(PAPER.replace(*change), encoding="utf-8")
    with pytest.raises(ZentenceError) as caught:
        read_paper(str(tmp_path / "table.toml"))
    assert message in str(caught.value) and "table.toml" in str(caught.value)


def test_an_unknown_paper_lists_the_known() -> None:
    with pytest.raises(ZentenceError, match="Unknown paper 'nobody-2031'") as caught:
        read_paper("nobody-2031")
    assert all(name in str(caught.value) for name in paper_names())


HOSTILE = '50%_off|a, b & \\c\n{d} *e* <f> "g" $h$ #~^'


def hostile() -> Comparison:
    column = Column("iw_nll", "upper_bound")
    rows = (Row(HOSTILE, {column: Cell(-1.25, best=True)}), Row("plain", {column: Cell(2.5, std=0.5, seeds=2)}))
    return Comparison((Block(HOSTILE, "text-1", 3, (column,), rows, (HOSTILE,)),), (), (HOSTILE,))


def test_csv_reads_back() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(hostile()))))
    assert tuple(rows[0]) == CSV_COLUMNS
    assert [row["run"] for row in rows] == [HOSTILE, "plain"]
    assert [float(row["value"]) for row in rows] == [-1.25, 2.5] and rows[1]["std"] == "0.5"


def test_markdown_has_one_cell_a_column() -> None:
    table = [line for line in to_markdown(hostile()).splitlines() if line.startswith("|")]
    assert len(table) == 4
    for line in table:
        assert line.replace("\\\\", "").replace("\\|", "").count("|") == 3, line
    assert "**-1.25**" in table[2] and "2.50 ± 0.50" in table[3]
    assert markdown_text("a_b|c*d\ne<br>") == "a\\_b\\|c\\*d e\\<br\\>"


def test_latex_has_no_unescaped_character() -> None:
    text = to_latex(hostile())
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 4
    for row in rows:
        plain = row.replace(r"\\", "").replace(r"\&", "").replace(r"\%", "").replace(r"\_", "").replace(r"\#", "")
        assert plain.count("&") == 1 and not set("%_#~^") & set(plain), row
    assert latex_text("a_b\\{}&%$#~^") == (r"a\_b\textbackslash{}\{\}\&\%\$\#\textasciitilde{}\textasciicircum{}")
    assert latex_text("λ ≥ β") == r"$\lambda$ $\ge$ $\beta$"
    assert r"\textbf{$-$1.25}" in text and r"2.50 $\pm$ 0.50" in text
    assert all(line.startswith("%") for line in text.splitlines() if "off|a" in line)  # comments stay on their line


def test_text_folds_at_its_width(tmp_path: Path) -> None:
    names = ("iw_nll", "elbo_nll", "distortion", "rate", "mutual_information", "active_units")
    run = make_run(tmp_path / "a", [figure(name, 10.0, "estimate") for name in names])
    text = to_text(compare(load_runs([run])), 60)
    assert max(map(len, text.splitlines())) <= 60
    assert all(name in text for name in names)
    assert max(map(len, to_text(compare(load_runs([run])), 200).splitlines())) > 60


def test_json_has_a_cell_for_each_column(tmp_path: Path) -> None:
    runs = load_runs([
        make_run(tmp_path / "a", [figure("nll", 99.0, "exact")]), make_run(tmp_path / "b", [figure("iw_nll", 98.0)]),
    ])  # fmt: skip
    document = json.loads(json.dumps(to_json(compare(runs)), allow_nan=False))
    (block,) = document["blocks"]
    assert [column["metric"] for column in block["columns"]] == ["nll", "iw_nll"]
    assert [[cell and cell["value"] for cell in row["cells"]] for row in block["rows"]] == [[99.0, None], [None, 98.0]]
    assert set(document) == {"blocks", "pairs", "notes"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not a list of results"),
        ("{}", "is not a list of results"),
        ("[]", "is empty"),
        ('[{"name": "nll"}]', "is not a list of results"),
        (json.dumps([figure("nll", 1.0, "exactly")]), "the figure 'nll' is damaged"),
        (json.dumps([figure("nll", float("nan"), "exact")]), "the figure 'nll' is damaged"),
        (json.dumps([{**figure("nll", 1.0), "value": "1.0"}]), "the figure 'nll' is damaged"),
        (json.dumps([{**figure("nll", 1.0), "details": None}]), "the figure 'nll' is damaged"),
    ],
)
def test_damaged_results(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "results.json").write_text(content, encoding="utf-8")
    with pytest.raises(ZentenceError) as caught:
        load_runs([tmp_path])
    assert message in str(caught.value)


def test_damaged_sentences(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, [figure("iw_nll", 1.0)]) for name in "ab"]
    write_sentences(runs[0], iw_nll=np.ones(100))
    (runs[1] / "sentences").mkdir()
    (runs[1] / "sentences" / "valid.npz").write_bytes((runs[0] / "sentences" / "valid.npz").read_bytes()[:-90])
    with pytest.raises(ZentenceError, match="not a file of per-sentence figures"):
        compare(load_runs(runs))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "tset"}, "No run has figures on the split 'tset'. Known: valid."),
        ({"metrics": ["iw_nl"]}, "Unknown metric 'iw_nl'. Did you mean 'iw_nll'?"),
        ({"metrics": ["rate"]}, "None of these runs has rate"),
    ],
)
def test_nothing_to_compare(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    runs = load_runs([make_run(tmp_path / "a", [figure("iw_nll", 1.0)])])
    with pytest.raises(ZentenceError) as caught:
        compare(runs, **options)
    assert message in str(caught.value)


def test_a_folder_given_twice_counts_once(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", [figure("iw_nll", 1.0)])
    assert [found.name for found in load_runs([run, tmp_path / "a" / ".." / "a"])] == ["a"]
