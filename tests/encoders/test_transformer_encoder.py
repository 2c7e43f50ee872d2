"""Transformer encoders: the contract of any encoder, pooling, and pre-trained weights."""

from pathlib import Path
from typing import Any

import pytest
import torch

from zentence.build import build_model, complete
from zentence.corpora import collate
from zentence.errors import ZentenceError
from zentence.model import LatentLM
from zentence.settings import override, settings_from
from zentence.testing import random_batch
from zentence.types import PAD, Batch, Tokens

transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra 'transformers')")

SMALL = {"name": "transformer", "layers": 2, "hidden_size": 32, "heads": 4, "positions": 24, "dropout": 0.0}
SHAPES = {
    "bert, cls_tanh": [],
    "bert, cls": ["encoder.pooling=cls"],
    "bert, mean": ["encoder.pooling=mean"],
    "roberta": ["encoder.architecture=roberta"],
    "distilbert": ["encoder.architecture=distilbert", "encoder.pooling=cls"],
    "gpt2, mean": ["encoder.architecture=gpt2", "encoder.pooling=mean"],
}
shapes = pytest.mark.parametrize("overrides", SHAPES.values(), ids=SHAPES.keys())


def settings_of(overrides: list[str], **encoder: Any) -> Any:
    content = {
        "encoder": {**SMALL, **encoder},
        "posterior": {"name": "gaussian", "size": 2, "bias": False},
        "decoder": {"name": "recurrent", "embedding_size": 5, "hidden_size": 6},
    }
    return complete(settings_from(override(content, overrides)))


def model_of(overrides: list[str]) -> LatentLM:
    model = build_model(settings_of(overrides), 11).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(noise * (0.2 if parameter.dim() > 1 else 0.05))
    return model


def rows_of(batch: Batch) -> list[Any]:
    return [batch.target.ids[i, : batch.target.lengths[i] - 1].numpy() for i in range(batch.size)]


def widened(tokens: Tokens, extra: int) -> Tokens:
    return Tokens(torch.nn.functional.pad(tokens.ids, (0, extra), value=PAD), tokens.lengths)


@shapes
def test_padding_batch_and_order_change_nothing(overrides: list[str]) -> None:
    model, batch, order = model_of(overrides), random_batch([3, 5, 1, 4]), [2, 0, 3, 1]
    whole = model.encoder(batch.source)
    assert whole.shape == (4, 32) and not torch.allclose(whole[0], whole[1], atol=1e-3)
    assert torch.allclose(model.encoder(widened(batch.source, 4)), whole, atol=1e-10)
    permuted = collate([rows_of(batch)[i] for i in order], order)
    assert torch.allclose(model.encoder(permuted.source), whole[order], atol=1e-10)
    for row in range(4):
        alone = collate([rows_of(batch)[row]], [row])
        assert torch.allclose(model.encoder(alone.source), whole[row : row + 1], atol=1e-10)


@shapes
def test_padding_in_the_middle_of_a_rectangle_is_masked(overrides: list[str]) -> None:
    """What stands in the padding of a short row, beside a longer one, does not matter."""
    model, batch = model_of(overrides), random_batch([5, 2])
    other = batch.source.ids.clone()
    other[1, 4:] = 7
    assert torch.allclose(model.encoder(Tokens(other, batch.source.lengths)), model.encoder(batch.source), atol=1e-10)


@shapes
def test_embeddings_are_read_as_the_words_are(overrides: list[str]) -> None:
    model, batch = model_of(overrides), random_batch([3, 5])
    embedded = model.encoder.embedding(batch.source.ids)
    assert torch.equal(model.encoder.forward_embedded(embedded, batch.source.lengths), model.encoder(batch.source))


def test_every_word_counts_and_every_parameter_learns() -> None:
    model, batch = model_of([]), random_batch([5])
    embedded = model.encoder.embedding(batch.source.ids).detach().requires_grad_()
    model.infer(batch.source).center.sum().backward()
    without = [name for name, p in model.encoder.named_parameters() if p.grad is None]
    assert not without
    model.encoder.forward_embedded(embedded, batch.source.lengths).pow(2).sum().backward()
    assert bool((embedded.grad.abs().amax(-1) > 1e-9).all())


def test_pooling_is_that_of_the_librarys_bert() -> None:
    model, batch = model_of([]), random_batch([5, 3])
    theirs = transformers.BertModel(model.encoder.config).double().eval()
    state = dict(model.encoder.network.state_dict())
    state |= {f"pooler.dense.{name}": p for name, p in model.encoder.pooler.state_dict().items()}
    theirs.load_state_dict(state)
    expected = theirs(input_ids=batch.source.ids, attention_mask=batch.source.mask().long())
    assert torch.allclose(model.encoder(batch.source), expected.pooler_output, atol=1e-10)


def test_pseudo_inputs_can_be_encoded() -> None:
    prior = ["prior.name=vamp", "prior.components=3", "prior.length_mean=4.0", "prior.length_spread=1.0"]
    model = build_model(settings_of(prior), 11).eval()
    density = model.prior_density()
    z = torch.zeros(2, 1, 2)
    assert density.log_prob(z).shape == (2, 1) and bool(density.log_prob(z).isfinite().all())


def test_pretrained_weights_are_taken_pooling_included(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "dog": 4, "bark": 5, "##s": 6}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    torch.manual_seed(5)
    theirs = transformers.BertModel(transformers.BertConfig(vocab_size=7, max_position_embeddings=24, **shape))
    theirs.save_pretrained(tmp_path)
    tokenizer.save(str(tmp_path / "tokenizer.json"))

    class Words:
        words = ("<pad>", "<bos>", "<eos>", "<unk>", "dog", "barks")

    model = build_model(settings_of([], weights=str(tmp_path)), 6).eval()
    model.encoder.load_pretrained(Words())
    rows, source = model.encoder.embedding.weight, theirs.embeddings.word_embeddings.weight
    assert torch.equal(rows[1:5], source[[2, 3, 1, 4]]) and torch.allclose(rows[5], source[5:7].mean(0))
    ids = torch.tensor([[2, 4, 3]])
    expected = theirs.eval()(input_ids=ids, attention_mask=torch.ones_like(ids)).pooler_output
    ours = model.encoder(Tokens(torch.tensor([[1, 4, 2]]), torch.tensor([3])))
    assert torch.allclose(ours, expected, atol=1e-5)


def test_reset_draws_anew() -> None:
    model = model_of([])
    before = {name: p.detach().clone() for name, p in model.encoder.named_parameters()}
    model.reset_part("encoder")
    assert not [name for name, p in model.encoder.named_parameters() if p.dim() > 1 and torch.equal(before[name], p)]


def test_a_decoder_as_encoder_and_long_sentences_are_refused() -> None:
    with pytest.raises(ZentenceError, match="'gpt2' is no encoder"):
        model_of(["encoder.architecture=gpt2"])
    with pytest.raises(ZentenceError, match="takes 27 positions, the encoder has 24"):
        model_of([]).encoder(random_batch([25]).source)
