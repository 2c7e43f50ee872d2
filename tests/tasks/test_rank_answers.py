from collections import Counter
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from zentence.corpora.vocabulary import build_vocabulary
from zentence.distributions import DiagonalGaussian
from zentence.errors import ZentenceError
from zentence.latent import LatentSpace
from zentence.noise import Noise, derive_key
from zentence.settings import CorpusSettings
from zentence.tasks.questions import Candidate, read_candidates, with_answer, with_unknown_answer
from zentence.tasks.rank_answers import chance_figures, latent_scores, rank_answers, ranking_figures, tfidf_scores
from zentence.testing import tiny_model, tiny_settings
from zentence.types import Tokens

VOCABULARY = build_vocabulary(Counter(["who", "what", "?", "east", "north", "far", "home"]), CorpusSettings())
MOVES = {"east": (1.0, 0.0), "north": (0.0, 5.0), "far": (3.0, 3.0), "home": (0.0, 0.0), "who": (2.0, 1.0)}
AUTOENCODER = ['stages.0.objective={name="autoencoder"}']
MEANS = ['stages.0.objective={name="autoencoder", code="mean"}']


class HandMade(nn.Module):
    """Each word moves the mean; an unknown one does not. Scales are 0.001 and 0.01, times the number of words."""

    has_code, code_size = True, 2

    def __init__(self) -> None:
        super().__init__()
        moves = [MOVES.get(word, (0.0, 0.0)) for word in VOCABULARY.words]
        self.moves = nn.Parameter(torch.tensor(moves, dtype=torch.float64))

    def infer(self, source: Tokens) -> DiagonalGaussian:
        mean = (self.moves[source.ids] * source.mask()[..., None]).sum(1)
        scale = torch.tensor([[0.001, 0.01]], dtype=torch.float64) * (source.lengths[:, None] - 2)
        return DiagonalGaussian(mean, scale.log())


def space(overrides: list[str] | None = None) -> LatentSpace:
    return LatentSpace(HandMade(), VOCABULARY, tiny_settings(overrides or []))  # type: ignore[arg-type]


def candidates(*rows: tuple[str, str, bool]) -> list[Candidate]:
    return [Candidate(question, question, answer, right) for question, answer, right in rows]


def test_distances_are_measured_in_the_posterior_scales_of_the_question_alone() -> None:
    """`east` moves one scale-0.001 dimension by 1, `north` a scale-0.01 one by 5: north is nearer in scales."""
    rows = candidates(("Who", "east", False), ("Who", "north", True), ("Who", "far", False))
    found = rank_answers(space(), rows)
    assert found.scores["paper"] is not None and found.scores["log_q"] is not None
    assert (found.scores["paper"].p_at_1, found.scores["log_q"].p_at_1) == (1.0, 1.0)
    for kind in (AUTOENCODER, MEANS):  # σ = 1: east is nearest, then far, at √18 < 5
        plain = rank_answers(space(kind), rows)
        assert plain.scores["paper"] is not None
        assert (plain.scores["paper"].p_at_1, plain.scores["paper"].mrr) == (0.0, pytest.approx(1 / 3))


def test_figures_by_hand() -> None:
    """By σ-scaled distance: home 0, north 5/0.01, east 1/0.001, far ≈ 3/0.001. Right ones stand 1st, 2nd and 4th."""
    words = ("east", "north", "far", "home")
    right = {"who": "home", "what": "north", "who what": "far"}
    rows = candidates(*((q, a, a == right[q]) for q in right for a in words))
    found = rank_answers(space(), [*rows, *candidates(("home", "far", False))])
    assert (found.questions, found.skipped, found.unknown_words) == (3, 1, 0.0)
    document = found.to_dict()
    assert document["scores"]["paper"] == {
        "p_at_1": pytest.approx(1 / 3),
        "mrr": pytest.approx((1 + 1 / 2 + 1 / 4) / 3),
    }
    assert set(document["scores"]) == {"paper", "cosine", "log_q", "tfidf"}
    # values 1, 0, 0: variance 1/3; 1, 1/2, 1/4: variance 7/48
    errors = document["standard_errors"]["paper"]
    assert errors == {"p_at_1": pytest.approx(1 / 3), "mrr": pytest.approx((7 / 48 / 3) ** 0.5)}
    assert document["chance"] == {"p_at_1": pytest.approx(0.25), "mrr": pytest.approx(25 / 48)}


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_scores_are_the_papers_formulas_with_each_candidates_own_noise(batch_size: int) -> None:
    questions = ["who", "what who", "who ?", "what"]
    answers = ["east", "far north", "home", "who who who"]
    found = latent_scores(space(), questions, answers, seed=3, repeats=2, batch_size=batch_size)
    for row, (question, answer) in enumerate(zip(questions, answers, strict=True)):
        words = f"{question} {answer}".split()
        count = len(words) + ("?" not in words)
        scale = np.array([0.001, 0.01]) * count
        start = np.sum([MOVES.get(word, (0, 0)) for word in question.split()], axis=0)
        end = start + np.sum([MOVES.get(word, (0, 0)) for word in answer.split()], axis=0)
        noise = [Noise(derive_key(3, "rank", name), torch.tensor([row])) for name in ("known", "unknown")]
        known, unknown = (n.normal(2, 2, torch.float64)[:, 0].numpy() for n in noise)
        z, z_unknown = end + scale * known, start + scale * unknown
        distance = np.sqrt((((z_unknown - z) / scale) ** 2).sum(-1))
        cosine = (z * z_unknown).sum(-1) / np.linalg.norm(z, axis=-1) / np.linalg.norm(z_unknown, axis=-1)
        log_q = -0.5 * (((z - start) / scale) ** 2 + np.log(2 * np.pi * scale**2)).sum(-1)
        for name, expected in (("paper", -distance), ("cosine", cosine), ("log_q", log_q)):
            values = found[name]
            assert values is not None
            assert values[:, row] == pytest.approx(expected, rel=1e-9)


def test_an_autoencoder_trained_on_means_has_codes_without_noise_and_unit_scales() -> None:
    found = latent_scores(space(MEANS), ["who", "who"], ["east", "far"], repeats=2)
    assert found["paper"] == pytest.approx(-np.array([[1.0, 18**0.5]] * 2))
    assert found["log_q"] == pytest.approx(-np.array([[0.5, 9.0]] * 2) - np.log(2 * np.pi))


def test_questions_and_answers_are_joined_by_one_question_mark() -> None:
    assert with_answer("who", "east far") == "who ? east far"
    assert with_answer("who ?", "east") == "who ? east"
    assert with_unknown_answer("who", 2) == "who ? <unk> <unk>"


def test_ties_favour_no_place_in_the_file() -> None:
    groups = np.repeat(np.arange(5000), 5)
    for place in (0, 4):
        right = np.arange(25_000) % 5 == place
        found, chance = ranking_figures(groups, right, np.zeros((1, 25_000)), 1), chance_figures(groups, right)
        assert chance.p_at_1 == pytest.approx(0.2)
        assert found.p_at_1 == pytest.approx(0.2, abs=4 * found.p_at_1_error)
        assert found.mrr == pytest.approx(chance.mrr, abs=4 * found.mrr_error)
        assert found == ranking_figures(groups, right, np.zeros((1, 25_000)), 1)
        assert found != ranking_figures(groups, right, np.zeros((1, 25_000)), 2)


def test_figures_do_not_need_sorted_questions_and_average_over_runs() -> None:
    groups = np.array([1, 0, 1, 0, 0])
    right = np.array([True, False, False, True, True])  # question 0: one of two right answers leads or comes second
    scores = np.array([[0.1, 0.9, 0.8, 0.5, 0.2], [0.9, 0.1, 0.8, 0.5, 0.2]])
    found = ranking_figures(groups, right, scores, 0)
    assert (found.p_at_1, found.mrr) == (0.5, 0.75)  # ranks 2, 2 and 1, 1


@pytest.mark.parametrize(("count", "right"), [(1, 1), (4, 1), (4, 2), (5, 3), (3, 3)])
def test_chance_is_the_mean_over_all_orders(count: int, right: int) -> None:
    orders = list(permutations(range(count)))
    first = [min(order.index(i) for i in range(right)) + 1 for order in orders]
    found = chance_figures(np.zeros(count, dtype=np.int64), np.arange(count) < right)
    assert found.p_at_1 == pytest.approx(np.mean([rank == 1 for rank in first]))
    assert found.mrr == pytest.approx(np.mean([1 / rank for rank in first]))


def test_words_in_common_raise_the_words_score() -> None:
    scores = tfidf_scores(["where is the cat", "where is the cat"], ["the cat is here", "no idea"])
    assert scores[0, 0] > scores[0, 1] == 0.0


def test_a_posterior_without_densities_elsewhere_has_no_log_q() -> None:
    overrides = ["posterior.name=planar"]
    model = tiny_model(overrides, vocabulary=len(VOCABULARY), spread=0.5)
    planar = LatentSpace(model, VOCABULARY, tiny_settings(overrides))
    found = rank_answers(planar, candidates(("who", "east", True), ("who", "far", False)))
    assert found.scores["log_q"] is None and found.to_dict()["scores"]["log_q"] is None
    assert found.scores["paper"] is not None


def test_what_cannot_be_ranked_is_refused() -> None:
    with pytest.raises(ZentenceError, match="No question has a right answer"):
        rank_answers(space(), candidates(("who", "east", False)))
    model = tiny_model(vocabulary=len(VOCABULARY), language_model=True)
    with pytest.raises(ZentenceError, match="language model"):
        rank_answers(
            LatentSpace(model, VOCABULARY, tiny_settings(language_model=True)), candidates(("who", "east", True))
        )


def test_both_tables_are_read(tmp_path: Path) -> None:
    path = tmp_path / "qa.tsv"
    path.write_text('question\tanswer\tlabel\nwho is it\tme  "too\t1\nwho is it\tyou\t0\n', encoding="utf-8")
    first = Candidate("who is it", "who is it", 'me "too', True)
    assert read_candidates(path) == [first, Candidate("who is it", "who is it", "you", False)]
    wiki = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel\nQ1\twho\tD1\tT\tD1-0\tme\t1\n"
    path.write_text(wiki, encoding="utf-8")
    assert read_candidates(path) == [Candidate("Q1", "who", "me", True)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("who\tme\t1\n", "has no column 'question'"),
        ("question\tanswer\nwho\tme\n", "has no column 'label'"),
        ("question\tanswer\tlabel\n", "no questions"),
        ("", "has no column 'question'"),
        ("question\tanswer\tlabel\nwho\tme\n", "line 2: 2 columns where the header has 3"),
        ("question\tanswer\tlabel\nwho\t \t1\n", "line 2: the answer is empty"),
        ("question\tanswer\tlabel\nwho\tme\tyes\n", "line 2: label 'yes'"),
    ],
)
def test_damaged_tables_are_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "qa.tsv").write_text(content, encoding="utf-8")
    with pytest.raises(ZentenceError, match=message):
        read_candidates(tmp_path / "qa.tsv")
