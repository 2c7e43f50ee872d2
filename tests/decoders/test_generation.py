"""Writing sentences: against brute force on a model small enough to list all of them."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch

from zentence.corpora import collate
from zentence.decoders.generation import Generation, generate
from zentence.model import LatentLM
from zentence.testing import tiny_model
from zentence.types import EOS, UNK

WORDS = (UNK, 4, 5, 6)  # all that a sentence may hold in a vocabulary of 7


@pytest.fixture(scope="module")
def model() -> LatentLM:
    model = tiny_model(vocabulary=7, spread=0.9)
    with torch.no_grad():
        model.decoder.output.bias[EOS] -= 1.0  # sentences of several lengths
    return model


def codes(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(1, count, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def all_sentences(model: LatentLM, z: torch.Tensor, longest: int) -> dict[tuple[int, ...], float]:
    """Return log p(x|z) of all sentences up to a length, given that <pad> and <bos> are never written."""
    sentences = [s for n in range(longest + 1) for s in product(WORDS, repeat=n)]
    scores = {}
    for sentence in sentences:
        state, total = model.decoder.start(z[:, None], 1), 0.0
        for read, written in zip([1, *sentence], [*sentence, EOS], strict=True):
            raw, state = model.decoder.advance(torch.tensor([read]), state)
            raw[:, :2] = -torch.inf
            total += float(torch.log_softmax(raw, -1)[0, written].detach())
        scores[sentence] = total
    return scores


def test_greedy_takes_the_best_word_each_time(model: LatentLM) -> None:
    z = codes(6)
    for row, words in enumerate(generate(model.decoder, z, 6, Generation(max_words=8))):
        state, read, expected = model.decoder.start(z[:, row : row + 1], 1), 1, []
        for _ in range(8):
            raw, state = model.decoder.advance(torch.tensor([read]), state)
            raw[:, :2] = -torch.inf
            read = int(raw.argmax())
            if read == EOS:
                break
            expected.append(read)
        assert words == expected


@pytest.mark.parametrize("method", ["greedy", "sample", "beam"])
def test_a_batch_writes_what_single_codes_write(model: LatentLM, method: str) -> None:
    z, options = codes(9), Generation(method=method, max_words=7, beam=3, length_penalty=1.0)
    together = generate(model.decoder, z, 9, options)
    alone = [
        generate(model.decoder, z[:, i : i + 1], 1, options, torch.tensor([i]))[0] for i in range(9)
    ]  # fmt: skip
    assert together == alone
    assert len({len(words) for words in together}) > 1, "rows must end at different places for this to test anything"


def test_beam_of_one_is_greedy(model: LatentLM) -> None:
    z = codes(8)
    greedy = generate(model.decoder, z, 8, Generation(max_words=6))
    assert generate(model.decoder, z, 8, Generation(method="beam", beam=1, max_words=6)) == greedy


def test_a_wide_beam_finds_the_most_probable_sentence(model: LatentLM) -> None:
    for seed in range(4):
        z = codes(1, seed)
        scores = all_sentences(model, z[0, :1], 4)
        found = generate(model.decoder, z, 1, Generation(method="beam", beam=100, max_words=5))[0]
        best = max(scores, key=lambda sentence: scores[sentence])
        assert tuple(found) == best or len(found) == 5  # a longer one may be better still
        if len(found) < 5:
            assert tuple(found) == best


def test_sampling_follows_the_model(model: LatentLM) -> None:
    z, count = codes(1), 4000
    scores = all_sentences(model, z[0, :1], 2)
    options = Generation(method="sample", max_words=12, seed=5)
    drawn = Counter(tuple(s) for s in generate(model.decoder, z.expand(1, count, 2), count, options))
    for sentence, log_prob in scores.items():
        p = float(np.exp(log_prob))
        assert abs(drawn[sentence] / count - p) < 5 * np.sqrt(p * (1 - p) / count) + 1e-3


def test_sampling_repeats_with_its_seed_and_differs_with_another(model: LatentLM) -> None:
    z = codes(1).expand(1, 40, 2)
    one, same, other = (generate(model.decoder, z, 40, Generation(method="sample", seed=s)) for s in (1, 1, 2))
    assert one == same and one != other


def test_top_k_of_one_and_a_cold_temperature_are_greedy(model: LatentLM) -> None:
    z = codes(8)
    greedy = generate(model.decoder, z, 8, Generation(max_words=6))
    for choice in ({"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-4}):
        assert generate(model.decoder, z, 8, Generation(method="sample", max_words=6, **choice)) == greedy


def test_the_unknown_word_can_be_forbidden(model: LatentLM) -> None:
    z = codes(200)
    free = generate(model.decoder, z, 200, Generation(method="sample", max_words=6))
    assert any(UNK in words for words in free)
    for method in ("greedy", "sample", "beam"):
        options = Generation(method=method, max_words=6, forbid_unknown=True, beam=3)
        assert not any(UNK in words for words in generate(model.decoder, z, 200, options))


def test_language_models_write_without_a_code() -> None:
    model = tiny_model(vocabulary=7, language_model=True, spread=0.9)
    written = generate(model.decoder, None, 50, Generation(method="sample", max_words=9))
    assert len(written) == 50 and len({tuple(words) for words in written}) > 5
    batch = collate([np.array(words) for words in written], np.arange(50))
    assert bool(torch.isfinite(model.log_likelihood(None, batch)).all())
