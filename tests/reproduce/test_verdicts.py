import pytest

from zentence.errors import ZentenceError
from zentence.evaluation.papers import PaperTable
from zentence.reproduce.checks import check_directions, check_relation, parse_relation, same_order
from zentence.reproduce.verdicts import Figure, figure_over_seeds, judge

BOUND = Figure(100.5, "upper_bound", "PTB test")


@pytest.mark.parametrize(
    ("ours", "theirs", "tolerance", "state"),
    [
        (100.5, 100.08, 1.0, "reproduced"),
        (101.08, 100.08, 1.0, "reproduced"),  # the tolerance itself is within
        (101.09, 100.08, 1.0, "worse"),
        (99.0, 100.08, 1.0, "better"),
        (99.0, 100.08, None, "no tolerance"),
    ],
)
def test_like_figures_get_a_verdict(ours: float, theirs: float, tolerance: float | None, state: str) -> None:
    figure = Figure(ours, "upper_bound", "PTB test")
    found = judge("iw_nll", figure, theirs, "upper_bound", "PTB test", tolerance)
    assert found.state == state and found.words == state
    assert found.difference == pytest.approx(ours - theirs)


def test_the_metric_says_which_side_is_better() -> None:
    for metric, lower, higher in (
        ("distortion", "better", "worse"),
        ("active_units", "worse", "better"),
        ("accuracy_100", "worse", "better"),
        ("rate", "off", "off"),
    ):
        for value, state in ((1.0, lower), (9.0, higher)):
            found = judge(metric, Figure(value, "estimate", "PTB test"), 5.0, "estimate", "PTB test", 1.0)
            assert found.state == state


@pytest.mark.parametrize("value", [50.0, 100.08, 150.0])
@pytest.mark.parametrize("metric", ["iw_nll", "ppl", "rate", "active_units"])
def test_unlike_texts_and_kinds_never_get_a_numbers_verdict(metric: str, value: float) -> None:
    side = "lower" if value < 100.08 else "equal" if value == 100.08 else "higher"
    here = Figure(value, "upper_bound", "PTB validation")
    found = judge(metric, here, 100.08, "upper_bound", "PTB test", 1000.0)
    assert found.state == "direction only"
    assert found.words == f"{side} (direction only: theirs is on PTB test)"
    kinds = judge(metric, Figure(value, "not_a_bound", "PTB test"), 100.08, "upper_bound", "PTB test", 1000.0)
    assert kinds.state == "direction only" and "kind upper bound, ours not a bound" in kinds.words


def test_seeds_give_mean_and_spread() -> None:
    figure = figure_over_seeds([1.0, 2.0, 6.0], "exact", "PTB test")
    assert (figure.value, figure.seeds) == (3.0, 3)
    assert figure.std == pytest.approx(7.0**0.5)
    assert figure_over_seeds([1.0], "exact", "PTB test").std is None


VALUES = {"ae": {"d": 70.0}, "vae": {"d": 101.0, "rate": 0.1}, "fix": {"d": 96.0, "rate": 5.1}, "yelp-ae": {"d": 9.0}}
CORPORA = {"ae": ("ptb",), "vae": ("ptb",), "fix": ("ptb",), "yelp-ae": ("yelp",)}


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("fix.d < vae.d", "holds"),
        ("vae.d < fix.d", "fails"),
        ("fix.d < vae.d by 5", "holds"),
        ("fix.d < vae.d by 5.1", "fails"),
        ("vae.d > fix.d by 5", "holds"),
        ("fix.d < fix.d", "fails"),
        ("fix.d <= fix.d", "holds"),
        ("fix.rate >= 5.2 by 0.2", "holds"),
        ("fix.rate >= 5.2", "fails"),
        ("fix.rate near 5 by 0.2", "holds"),
        ("vae.rate near 5 by 0.2", "fails"),
        ("vae.d == 101", "holds"),
        ("ae.d < *.d", "holds"),  # yelp-ae is of another corpus
        ("fix.d < *.d", "fails"),
        ("lm.d < fix.d", "open"),
        ("ae.rate < 1", "open"),
        ("yelp-ae.d < *.d", "open"),
    ],
)
def test_relations(text: str, outcome: str) -> None:
    assert check_relation(parse_relation(text), VALUES, CORPORA)[1] == outcome


def test_a_failed_relation_shows_its_numbers() -> None:
    assert "96 < 70 of ae" in check_relation(parse_relation("fix.d < *.d"), VALUES, CORPORA)[0]


@pytest.mark.parametrize("text", ["fix.d", "fix.d ~ 3", "fix.d near 5", "a.b < c.d by x"])
def test_what_is_no_relation(text: str) -> None:
    with pytest.raises(ZentenceError):
        parse_relation(text)


def paper(**changes: object) -> PaperTable:
    row = {"split": "PTB test", "source": "Table 1", "kind": "upper_bound", "tolerance": 1.0}
    rows = [
        {**row, "name": "a", "recipe": "a", "figures": {"iw_nll": 100.0}},
        {**row, "name": "b", "recipe": "b", "figures": {"iw_nll": 102.0}},
        {**row, "name": "c", "recipe": "c", "figures": {"iw_nll": 102.5}, **changes},
    ]
    checks = [{"text": "a wins", "all": ["a.iw_nll < b.iw_nll", "a.iw_nll < c.iw_nll"]}]
    return PaperTable.model_validate({"rows": rows, "checks": checks})


def test_a_claim_holds_if_all_its_relations_do() -> None:
    texts = dict.fromkeys("abc", "ptb")

    def outcome(**values: float) -> str:
        return check_directions(paper(), {row: {"iw_nll": value} for row, value in values.items()}, texts)[0].outcome

    assert outcome(a=1.0, b=2.0, c=3.0) == "holds"
    assert outcome(a=1.0, b=2.0, c=0.0) == "fails"
    assert outcome(a=1.0, b=2.0) == "open"
    assert outcome(a=3.0, b=2.0) == "fails"


def test_order_counts_pairs_that_the_paper_tells_apart() -> None:
    texts = dict.fromkeys("abc", "ptb")
    values = {"a": {"iw_nll": 90.0}, "b": {"iw_nll": 95.0}, "c": {"iw_nll": 80.0}}
    assert same_order(paper(), values, texts) == {"iw_nll": (1, 2)}  # b and c are within the tolerance
    assert same_order(paper(kind="not_a_bound"), values, texts) == {"iw_nll": (1, 1)}
    assert same_order(paper(split="SNLI test"), values, texts) == {"iw_nll": (1, 1)}
    assert same_order(paper(), values, {**texts, "c": "snli"}) == {"iw_nll": (1, 1)}
