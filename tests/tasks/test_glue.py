"""GLUE's own files: every task's layout, what is wrong with a folder, and heads on frozen vectors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zentence.errors import ZentenceError
from zentence.tasks.glue import TASKS, find_tasks, read_examples
from zentence.tasks.glue_scores import GlueScore, baseline, read_task, report, score_frozen
from zentence.tasks.scores import Score
from zentence.tasks.subjects import pair_features

MNLI = "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse"
LAYOUTS: dict[str, tuple[str, tuple[list[str], list[str] | None, list[float]]]] = {
    "CoLA": ('gj04\t1\t\tShe left.\ngj04\t0\t*\tLeft "she.\n', (["She left.", 'Left "she.'], None, [1, 0])),
    "SST-2": ("sentence\tlabel\nhide it \t0\na joy \t1\n", (["hide it", "a joy"], None, [0, 1])),
    "MRPC": (
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tHe said so.\tSo he said.\n",
        (["He said so."], ["So he said."], [1]),
    ),
    "STS-B": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        "0\tmain\tMSRvid\t2012\t1\tnone\tnone\tA plane.\tAn air plane.\t4.75\n",
        (["A plane."], ["An air plane."], [4.75]),
    ),
    "QQP": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\tWho?\tWhy?\t0\n"
        + "4\t5\t6\tHow?\tHow so?\t1\n" * 99
        + "7\t8\tcut short\n",
        (["Who?"] + ["How?"] * 99, ["Why?"] + ["How so?"] * 99, [0] + [1] * 99),
    ),
    "MNLI": (
        "\t".join([*MNLI.split(), "sentence1", "sentence2", "label1", "gold_label"])
        + "\n0\t1\t1n\tfiction\t(\t)\t(\t)\tIt rains.\tIt is wet.\tentailment\tentailment\n"
        + "1\t1\t1c\tfiction\t(\t)\t(\t)\tIt rains.\tIt is dry.\t-\t-\n"
        + "2\t1\t1c\tfiction\t(\t)\t(\t)\tIt rains.\tIt is dry.\tneutral\tcontradiction\n",
        (["It rains."] * 2, ["It is wet.", "It is dry."], [2, 0]),
    ),
    "QNLI": (
        "index\tquestion\tsentence\tlabel\n0\tWhen?\tIn May.\tentailment\n1\tWho?\tIn May.\tnot_entailment\n",
        (["When?", "Who?"], ["In May."] * 2, [1, 0]),
    ),
    "RTE": ("index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tnot_entailment\n", (["A."], ["B."], [0])),
    "WNLI": ("index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\t1\n", (["A."], ["B."], [1])),
}


def test_all_nine_tasks_are_read(tmp_path: Path) -> None:
    assert set(LAYOUTS) == set(TASKS) and len(TASKS) == 9
    for name, (text, expected) in LAYOUTS.items():
        path = tmp_path / "file.tsv"
        path.write_text(text, encoding="utf-8")
        found = read_examples(TASKS[name], path)
        assert (found.first, found.second, found.targets.tolist()) == expected, name
        assert found.damaged == (1 if name == "QQP" else 0)


def test_sts_b_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "dev.tsv"
    path.write_text("main-captions\tMSRvid\t2012test\t0000\t5.000\tA man dances.\tOne dances.\n", encoding="utf-8")
    found = read_examples(TASKS["STS-B"], path)
    assert (found.first, found.second, found.targets.tolist()) == (["A man dances."], ["One dances."], [5.0])


def test_more_examples_than_wanted_are_drawn_from(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("sentence\tlabel\n" + "".join(f"s{i}\t{i % 2}\n" for i in range(100)), encoding="utf-8")
    one, same, other = (read_examples(TASKS["SST-2"], path, 10, seed) for seed in (1, 1, 2))
    assert len(one) == 10 and one.total == 100 and one.first == same.first != other.first
    assert all(int(text[1:]) % 2 == label for text, label in zip(one.first, one.targets, strict=True))


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        ("SST-2", "", "is empty"),
        ("SST-2", "text\tlabel\na\t1\n", "has no column 'sentence': its first line must name the columns of SST-2"),
        ("SST-2", "sentence\tlabel\n", "has no examples"),
        ("SST-2", "sentence\tlabel\na\t2\n", "line 2: label '2': expected one of 0, 1"),
        ("SST-2", "sentence\tlabel\na\n", "line 2: 1 columns where 2 are needed"),
        ("RTE", "index\tsentence1\tsentence2\tlabel\n0\tA.\t \tentailment\n", "line 2: an empty sentence"),
        ("STS-B", "a\tb\tc\td\tmuch\tA.\tB.\n", "line 1: score 'much': expected a number"),
        ("QQP", LAYOUTS["QQP"][0] + "cut\n" * 5, "too few columns, as in 6 rows: is it QQP's own file?"),
    ],
)
def test_mistakes_in_a_file_are_named(task: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(ZentenceError, match=message.replace("?", r"\?")):
        read_examples(TASKS[task], tmp_path / "train.tsv")


def test_missing_files_are_named(tmp_path: Path) -> None:
    for name in ("SST-2/train.tsv", "RTE/train.tsv", "RTE/dev.tsv", "MNLI/dev_matched.tsv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [task.name for task in find_tasks("rte", tmp_path)] == ["RTE"]
    with pytest.raises(ZentenceError, match=r"lacks SST-2/dev.tsv, MNLI/train.tsv, MNLI/dev_mismatched.tsv: "):
        find_tasks("sst2, RTE,mnli", tmp_path)
    with pytest.raises(ZentenceError, match=r"lacks SST-2/dev.tsv, MNLI/train.tsv"):
        find_tasks(None, tmp_path)
    with pytest.raises(ZentenceError, match=r"Unknown GLUE task 'RTF'. Did you mean 'RTE'"):
        find_tasks("RTF", tmp_path)
    with pytest.raises(ZentenceError, match="has no GLUE task"):
        find_tasks(None, tmp_path / "RTE")
    with pytest.raises(ZentenceError, match="There is no GLUE folder"):
        find_tasks(None, tmp_path / "gone")


class Written:
    """A subject whose vectors are written in the sentences."""

    title = "code"

    class space:  # noqa: N801
        class vocabulary:  # noqa: N801
            @staticmethod
            def encode_batch(texts: list[str]) -> list[np.ndarray]:
                return [np.array([3, 4, 4, 4]) for _ in texts]

    @staticmethod
    def normalise(text: str) -> str:
        return text

    @staticmethod
    def read(texts: list[str], progress: Any = None) -> np.ndarray:
        if progress is not None:
            progress(len(texts))
        return np.array([[float(word) for word in text.split()] for text in texts], dtype=np.float32)


def write_pairs(path: Path, count: int, seed: int, value: Any) -> None:
    """Write pairs of points in the plane with the value of their difference."""
    random = np.random.default_rng(seed)
    rows = ["index\tsentence1\tsentence2\tlabel\tscore"]
    for number in range(count):
        u, v = random.normal(size=(2, 2)).round(4)
        rows.append(f"{number}\t{u[0]} {u[1]}\t{v[0]} {v[1]}\t{value(u, v)}\t{value(u, v)}")
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def test_pairs_are_told_apart_by_their_difference(tmp_path: Path) -> None:
    """|u − v| is among a pair's features, so a threshold of Σ|u − v| is linear in them."""
    u, v = np.array([[1.0, 2.0]], dtype=np.float32), np.array([[3.0, 5.0]], dtype=np.float32)
    assert pair_features(u, v).tolist() == [[1, 2, 3, 5, 2, 3, 3, 10]]
    for part, count in (("train", 400), ("dev", 200)):
        near = lambda u, v: "entailment" if np.abs(u - v).sum() < 2.2 else "not_entailment"  # noqa: E731
        write_pairs(tmp_path / "RTE" / f"{part}.tsv", count, count, near)
        write_pairs(tmp_path / "STS-B" / f"{part}.tsv", count, count, lambda u, v: f"{np.abs(u - v).sum():.3f}")
    told: list[str] = []
    rte = read_task(TASKS["RTE"], tmp_path)
    (row,) = score_frozen(rte, Written(), progress=lambda what, *_: told.append(what))  # type: ignore[arg-type]
    assert row.main.value > 0.95 and row.unknown_words == 0.25 and (row.trained, row.tested) == (400, 200)
    assert 0.3 < baseline(rte)["dev"]["accuracy"] < 0.7 and told[0] == "RTE, code: reading"
    (row,) = score_frozen(read_task(TASKS["STS-B"], tmp_path), Written())  # type: ignore[arg-type]
    assert row.scores["spearman"].value > 0.999 and row.scores["pearson"].value > 0.999
    assert list(row.to_dict()["scores"]) == ["spearman", "pearson"]


def test_one_class_only_is_refused(tmp_path: Path) -> None:
    write_pairs(tmp_path / "RTE" / "train.tsv", 5, 0, lambda u, v: "entailment")
    with pytest.raises(ZentenceError, match="one class only"):
        read_task(TASKS["RTE"], tmp_path)


def test_the_average_counts_each_task_once() -> None:
    def row(task: str, split: str, value: float) -> GlueScore:
        scores = {name: Score(value, 0.01) for name in TASKS[task].scores}
        return GlueScore(TASKS[task], split, "code", "feature-based", 9, 9, 9, scores, 0.0, 1.0)

    rows = [row("MNLI", "dev_matched", 0.4), row("MNLI", "dev_mismatched", 0.6), row("RTE", "dev", 0.8)]
    assert report([], rows, 0).averages() == {("code", "feature-based"): pytest.approx(0.65)}
