"""The bag of words: what its features depend on, and what they do not."""

import pytest
import torch
from torch import Tensor

from zentence.encoders import ENCODERS
from zentence.encoders.bag import BagEncoder
from zentence.errors import ZentenceError
from zentence.types import BOS, EOS, PAD, UNK, Tokens

WORDS = 12


def encoder() -> BagEncoder:
    torch.manual_seed(0)
    return BagEncoder(BagEncoder.Options(embedding_size=6), WORDS).double()


def tokens(*rows: list[int], width: int = 0) -> Tokens:
    width = max(width, max(map(len, rows)) + 2)
    ids = [[BOS, *row, EOS, *[PAD] * (width - len(row) - 2)] for row in rows]
    return Tokens(torch.tensor(ids), torch.tensor([len(row) + 2 for row in rows]))


def content(features: Tensor) -> Tensor:
    return features[:, :6]


def test_features_are_the_weighted_sum_of_known_words_by_hand() -> None:
    made = encoder()
    rarity = torch.arange(WORDS, dtype=torch.float64).add(2.0).log()
    total = sum(rarity[word] * made.embedding.weight[word] for word in (5, 7, 7))
    expected = total / total.square().mean().sqrt()
    assert torch.allclose(content(made(tokens([5, 7, 7])))[0], expected, atol=1e-9)


def test_neither_order_nor_padding_nor_neighbours_matter() -> None:
    made = encoder()
    alone = made(tokens([5, 7, 9]))
    assert torch.allclose(made(tokens([9, 5, 7])), alone, atol=1e-12)
    assert torch.allclose(made(tokens([5, 7, 9], [4], width=20))[:1], alone, atol=1e-12)


def test_unknown_words_shrink_the_content_and_do_not_turn_it() -> None:
    made = encoder()
    whole, partly = made(tokens([5, 7])), made(tokens([5, 7, UNK, UNK, UNK]))
    ratio = content(partly) / content(whole)
    assert torch.allclose(ratio, ratio[0, 0].expand_as(ratio)) and 0.0 < float(ratio[0, 0].detach()) < 1.0
    more = content(made(tokens([5, 7, *[UNK] * 9]))) / content(whole)
    assert not torch.allclose(more, ratio)  # how many are unknown is seen


def test_texts_without_a_known_word_have_features_and_gradients() -> None:
    made = encoder()
    features = made(tokens([], [UNK, UNK], [5]))
    assert bool(torch.isfinite(features).all()) and not bool(content(features)[:2].any())
    features.square().sum().backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in made.parameters() if p.grad is not None)


def test_it_is_in_the_table_and_reads_embeddings() -> None:
    made = encoder()
    assert ENCODERS["bag"] is BagEncoder
    features = made.forward_embedded(torch.randn(2, 5, 6, dtype=torch.float64), torch.tensor([5, 3]))
    assert features.shape == (2, made.feature_size)
    with pytest.raises(ZentenceError, match="no word embedding to share"):
        BagEncoder(BagEncoder.Options(embedding="decoder"), WORDS)
