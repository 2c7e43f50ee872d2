"""Moves in the space: the algebra of codes, and LatentSpace's moves on a tiny random model."""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from zentence.corpora.prepare import prepare
from zentence.corpora.vocabulary import build_vocabulary
from zentence.errors import ZentenceError
from zentence.latent import LatentSpace, moves
from zentence.settings import CorpusSettings, override, settings_from
from zentence.testing import tiny_model, tiny_settings
from zentence.types import UNK

SENTENCES = ["a cat sat .", "the dog ran to the cat .", "a dog .", "the cat sat to a dog ."]
A, B, C = SENTENCES[:3]


def make(*overrides: str) -> LatentSpace:
    vocabulary = build_vocabulary(Counter(" ".join(SENTENCES).split()), CorpusSettings())
    model = tiny_model(overrides, vocabulary=len(vocabulary), spread=0.8).float()
    with torch.no_grad():
        model.decoder.output.bias[2] -= 1.0
    return LatentSpace(model, vocabulary, tiny_settings(overrides))


@pytest.fixture(scope="module")
def space() -> LatentSpace:
    return make()


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("path", moves.PATHS)
@pytest.mark.parametrize("shape", [(5,), (3, 5)])
def test_paths_begin_and_end_exactly(path: str, shape: tuple[int, ...]) -> None:
    first, last = normal(*shape, seed=1), normal(*shape, seed=2)
    way = moves.path_between(first, last, 6, path, normal(5, seed=3))
    assert way.shape == (6, *shape) and way.dtype == np.float32
    assert np.array_equal(way[0], first) and np.array_equal(way[-1], last)


def test_the_middle_of_a_line_is_the_mean_and_its_steps_are_even() -> None:
    first, last = normal(4, seed=1), normal(4, seed=2)
    way = moves.linear(first, last, 5)
    assert way[2] == pytest.approx((first + last) / 2, abs=1e-6)
    assert np.diff(way, axis=0) == pytest.approx(np.tile((last - first) / 4, (4, 1)), abs=1e-6)


def test_an_arc_in_the_plane_has_its_closed_form() -> None:
    center, (r, s), (a, b) = np.array([0.5, -1.0]), (2.0, 3.0), (0.3, 2.9)

    def at(radius: float, angle: float) -> np.ndarray:
        return center + radius * np.array([math.cos(angle), math.sin(angle)])

    way = moves.spherical(at(r, a), at(s, b), 9, center)
    for t, point in zip(np.linspace(0, 1, 9), way, strict=True):
        assert point == pytest.approx(at((1 - t) * r + t * s, (1 - t) * a + t * b), abs=1e-5)


def test_an_arc_keeps_the_norm_where_a_line_does_not() -> None:
    first, last = normal(8, seed=1), normal(8, seed=2)
    last *= np.linalg.norm(first) / np.linalg.norm(last)
    arc, line = moves.spherical(first, last, 7), moves.linear(first, last, 7)
    norm = np.linalg.norm(first)
    assert np.linalg.norm(arc, axis=1) == pytest.approx(np.full(7, norm), rel=1e-5)
    assert np.linalg.norm(line, axis=1)[3] < 0.95 * norm
    unit = arc / norm
    turns = np.arccos(np.clip((unit[1:] * unit[:-1]).sum(1), -1, 1))
    assert turns == pytest.approx(np.full(6, turns.mean()), rel=1e-3)


def test_arcs_without_an_angle() -> None:
    first, zero = normal(4), np.zeros(4)
    for last in (first, 3.0 * first, zero):
        assert moves.spherical(first, last, 4) == pytest.approx(moves.linear(first, last, 4), abs=1e-6)
    rows = moves.spherical(np.stack([first, zero]), np.stack([2.0 * first, first]), 3)
    assert rows[1] == pytest.approx(np.stack([1.5 * first, 0.5 * first]), abs=1e-6)
    with pytest.raises(ZentenceError, match="opposite directions"):
        moves.spherical(first, -2.0 * first, 4)


def test_analogies_and_shifts() -> None:
    a, b, c = normal(3, 4)
    assert np.array_equal(moves.analogy(a, a, c, 2.5), c)
    assert np.array_equal(moves.analogy(a, b, c, 0.0), c)
    assert moves.analogy(a, b, a) == pytest.approx(b, abs=1e-6)
    assert moves.analogy(a, b, c, 2.0) == pytest.approx(c + 2 * (b - a), abs=1e-5)
    assert moves.shifted(normal(5, 4), b - a, 0.5) == pytest.approx(normal(5, 4) + 0.5 * (b - a), abs=1e-6)
    for direction, strength, message in [
        (normal(3), 1.0, r"shape \[4\], not \[3\]"),
        (np.full(4, np.nan), 1.0, "finite"),
        (a, math.inf, "finite"),
    ]:
        with pytest.raises(ZentenceError, match=message):
            moves.shifted(c, direction, strength)


def test_moves_that_lead_nowhere_reconstruct(space: LatentSpace) -> None:
    plain = space.reconstruct(SENTENCES)
    assert space.analogy(A, A, C, strength=3.0) == plain[2]
    assert space.analogy(A, B, C, strength=0.0) == plain[2]
    assert space.analogy(A, B, A) == plain[1]
    direction = space.direction([A, B], [C])
    assert space.edit(SENTENCES, direction, strength=0.0) == plain
    assert space.edit(SENTENCES, direction, strength=30.0) != plain
    assert space.edit(SENTENCES, space.direction([A, B], [B, A])) == plain


def test_a_direction_is_the_difference_of_means(space: LatentSpace) -> None:
    codes, told = space.encode(SENTENCES), []
    direction = space.direction([A, B], [C], told.append)
    assert direction == pytest.approx(codes[:2].mean(0) - codes[2], abs=1e-6)
    assert told == [2, 3]


def test_means_and_rates_of_a_stream_hold_a_part_of_it_only(space: LatentSpace) -> None:
    taken = 0

    def stream(count: int) -> Iterator[str]:
        nonlocal taken
        for number in range(count):
            taken += 1
            yield SENTENCES[number % 3]

    ahead: list[int] = []
    found = moves.mean_code(space, stream(3000), lambda done: ahead.append(taken - done))
    assert found.sentences == 3000 and max(ahead) == 0
    assert found.code == pytest.approx(space.encode(SENTENCES[:3]).mean(0), abs=1e-5)
    rates = moves.rates_by_dimension(space, stream(3000))
    assert rates.sentences == 3000
    assert rates.values == pytest.approx(moves.rates_by_dimension(space, SENTENCES[:3]).values, rel=1e-5)
    for average in (moves.mean_code, moves.rates_by_dimension):
        with pytest.raises(ZentenceError, match="no sentence to average"):
            average(space, [])


def test_rates_are_integrals_of_each_dimension(space: LatentSpace) -> None:
    found = moves.rates_by_dimension(space, [A, B])
    grid = np.linspace(-30, 30, 200_001)
    log_p = -0.5 * (grid**2 + math.log(2 * math.pi))
    expected = np.zeros(2)
    for _, q, _ in space.posteriors([A, B]):
        for mean, scale in zip(q.center.double().numpy(), q.scale.double().numpy(), strict=True):
            for d in range(2):
                log_q = -0.5 * (((grid - mean[d]) / scale[d]) ** 2 + math.log(2 * math.pi)) - math.log(scale[d])
                expected[d] += np.trapezoid(np.exp(log_q) * (log_q - log_p), grid) / 2
    assert found.exact
    assert found.values == pytest.approx(expected, rel=1e-5)
    assert found.order() == sorted(range(2), key=lambda d: -expected[d])


def test_rates_without_a_closed_form_say_so() -> None:
    found = moves.rates_by_dimension(make("prior.name=mixture", "prior.components=3"), [A, B])
    assert not found.exact
    assert (found.values > 0).all()


def test_a_traversal_changes_one_dimension(space: LatentSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    code = space.encode(A)
    seen: list[np.ndarray] = []
    decode = space.decode
    monkeypatch.setattr(space, "decode", lambda codes, **options: (seen.append(codes), decode(codes, **options))[1])
    walks = moves.traverse(space, code, [1, 0], steps=5, span=2.0)
    assert [walk.dimension for walk in walks] == [1, 0]
    assert [walk.own for walk in walks] == pytest.approx([code[1], code[0]], abs=1e-6)  # of a standard normal prior
    assert [step.at for step in walks[0].steps] == [-2.0, -1.0, 0.0, 1.0, 2.0]
    codes = seen[0].reshape(2, 5, 2)
    assert codes[0, :, 1] == pytest.approx(np.linspace(-2, 2, 5)) and codes[0, :, 0] == pytest.approx(code[0])
    assert codes[1, :, 0] == pytest.approx(np.linspace(-2, 2, 5)) and codes[1, :, 1] == pytest.approx(code[1])
    assert [step.sentence for walk in walks for step in walk.steps] == decode(seen[0])
    with pytest.raises(ZentenceError, match="from 0 to 1"):
        moves.traverse(space, code, [2])


def test_a_perturbation_is_a_sample_that_goes_further(space: LatentSpace) -> None:
    mean = space.grouped_codes(SENTENCES)
    sample = space.grouped_codes(SENTENCES, sample=True, seed=3)
    for s in (0.0, 1.0, 10.0):
        assert space.grouped_codes(SENTENCES, perturb=s, seed=3) == pytest.approx(mean + s * (sample - mean), abs=1e-4)
    assert space.reconstruct(SENTENCES, perturb=0.0) == space.reconstruct(SENTENCES)
    with pytest.raises(ZentenceError, match="one of the two"):
        space.reconstruct(SENTENCES, perturb=1.0, sample=True)
    with pytest.raises(ZentenceError, match="finite number"):
        space.reconstruct(SENTENCES, perturb=math.nan)


def test_parts_join_to_the_whole(space: LatentSpace) -> None:
    drawn = {"method": "sample", "seed": 5}
    for make_part in (
        lambda first, last: space.sample(last - first, first=first, **drawn),
        lambda first, last: space.reconstruct(SENTENCES[first:last], sample=True, first=first, **drawn),
        lambda first, last: space.reconstruct(SENTENCES[first:last], perturb=4.0, first=first, **drawn),
        lambda first, last: space.edit(SENTENCES[first:last], np.ones(2), first=first, **drawn),
        lambda first, last: list(space.score(SENTENCES[first:last], samples=3, first=first).round(4)),
    ):
        assert make_part(0, 3) + make_part(3, 4) == make_part(0, 4)
    codes = space.prior_codes(9, seed=2)
    assert np.array_equal(space.prior_codes(4, seed=2, first=5), codes[5:])


def test_seeds_repeat_and_differ(space: LatentSpace) -> None:
    for use in (
        lambda seed: space.sample(8, seed=seed, method="sample"),
        lambda seed: space.reconstruct(SENTENCES * 3, perturb=10.0, seed=seed),
        lambda seed: space.interpolate(A, B, sample=True, seed=seed, method="sample"),
        lambda seed: moves.walk(space, moves.prior_ends(space, seed=seed), seed=seed, method="sample"),
    ):
        assert use(1) == use(1)
        assert use(1) != use(2)


def test_decoding_one_by_one_is_decoding_a_batch(space: LatentSpace) -> None:
    codes = normal(12, 2)
    for options in ({}, {"method": "beam", "beam": 3}, {"forbid_unknown": True, "max_words": 4}):
        assert [space.decode(code[None], **options)[0] for code in codes] == space.decode(codes, **options)
    alone = [space.decode(code[None], first=n, method="sample", seed=2)[0] for n, code in enumerate(codes)]
    assert alone == space.decode(codes, method="sample", seed=2)


def test_a_beam_of_one_is_greedy(space: LatentSpace) -> None:
    codes = normal(30, 2)
    assert space.decode(codes, method="beam", beam=1) == space.decode(codes)


def test_unknown_words_can_be_forbidden() -> None:
    space = make()
    with torch.no_grad():
        space.model.decoder.output.bias[UNK] += 5.0
    for method in ("greedy", "sample", "beam"):
        assert any("<unk>" in text for text in space.sample(5, method=method))
        free = space.sample(5, method=method, forbid_unknown=True, max_words=7)
        assert not any("<unk>" in text for text in free)
        assert max(len(text.split()) for text in free) <= 7


def test_ways_between_samples_and_priors(space: LatentSpace) -> None:
    ends = moves.ends_between(space, A, B, sample=True, seed=4)
    assert ends.shape == (2, 1, 2)
    way = moves.walk(space, ends, steps=4, path="spherical")
    assert [step.at for step in way] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert [way[0].sentence, way[-1].sentence] == space.reconstruct([A, B], sample=True, seed=4)
    wide = moves.prior_ends(space, seed=3, scale=2.0)
    assert wide == pytest.approx(2.0 * moves.prior_ends(space, seed=3), abs=1e-6)
    assert [step.sentence for step in moves.walk(space, wide, steps=2)] == space.sample(2, seed=3, scale=2.0)
    with pytest.raises(ZentenceError, match="Did you mean 'spherical'"):
        space.interpolate(A, B, path="sperical")


def test_averaged_codes_move_together() -> None:
    space = make("averaged_codes=3")
    ends = moves.prior_ends(space, seed=1)
    assert ends.shape == (2, 3, 2)
    for path in moves.PATHS:
        way = moves.walk(space, ends, steps=3, path=path)
        assert [way[0].sentence, way[-1].sentence] == space.sample(2, seed=1)
    assert space.grouped_codes([A], perturb=10.0).shape == (1, 3, 2)


def test_repeats_are_dropped_only_next_to_each_other() -> None:
    steps = [moves.Step(n / 4, text) for n, text in enumerate("aabba")]
    assert moves.without_repeats(steps) == [steps[0], steps[2], steps[4]]


def test_a_string_has_a_vector_and_a_bar_can_be_shown(space: LatentSpace, capsys: pytest.CaptureFixture[str]) -> None:
    assert np.array_equal(space.encode(A), space.encode([A])[0])
    assert space.encode(A, sample=True, seed=2).shape == (2,)
    assert capsys.readouterr().err == ""
    space.encode(SENTENCES, show_progress_bar=True)
    assert "encoding" in capsys.readouterr().err
    with pytest.raises(ZentenceError, match="batch size"):
        space.encode(SENTENCES, batch_size=0)


def test_sentences_beyond_the_limit_of_training_are_cut_and_named() -> None:
    space = make("corpus.max_words=3")
    with pytest.warns(UserWarning, match=r"sentence 2 \('the dog ran to the cat .'\) has 7 words: cut to 3") as seen:
        codes = space.encode([C, B, "the dog ran"])
        space.encode([B])
    assert len(seen) == 1
    assert np.array_equal(codes[1], codes[2])
    assert space.score([B], samples=2) != pytest.approx(space.score(["the dog ran"], samples=2))  # never of a part


def corpus(**changes: object) -> CorpusSettings:
    return settings_from(override({}, [f"corpus.{name}={value}" for name, value in changes.items()])).corpus


def test_validation_text_is_found_again(tmp_path: Path) -> None:
    train, valid = tmp_path / "train.txt", tmp_path / "valid.txt"
    train.write_text("".join(f"sentence {n}\n" for n in range(400)), encoding="utf-8")
    valid.write_text("x\ta man\ny\ta dog\n", encoding="utf-8")
    given = moves.validation_sentences(corpus(train=[str(train)], valid=[str(valid)]))
    assert given is not None and list(given) == ["a man", "a dog"]
    settings = corpus(train=[str(train)], valid_share=0.2)
    held_out = moves.validation_sentences(settings)
    prepared = prepare(settings, settings.train)
    store = prepared.splits["valid"]
    assert held_out is not None and 50 <= len(store) <= 110
    known = [[prepared.vocabulary.words[i] for i in store.sentence(n)] for n in range(len(store))]
    for text, words in zip(held_out, known, strict=True):
        assert all(word in (seen, "<unk>") for word, seen in zip(words, text.split(), strict=True))
    assert moves.validation_sentences(corpus(train=[str(train)], valid=["gone.txt"])) is None
    assert moves.validation_sentences(corpus(train=["-"])) is None
    assert moves.validation_sentences(CorpusSettings()) is None
