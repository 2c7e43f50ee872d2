"""Transformer decoders: the contract of any decoder, both injections, and pre-trained weights."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from zentence.build import build_model, complete
from zentence.corpora import collate
from zentence.decoders.generation import Generation, generate
from zentence.errors import ZentenceError
from zentence.model import LatentLM
from zentence.settings import override, settings_from
from zentence.testing import random_batch
from zentence.types import PAD, Batch, Tokens

transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra 'transformers')")

SMALL = {"name": "transformer", "layers": 2, "hidden_size": 32, "heads": 4, "positions": 24, "dropout": 0.0}
SHAPES = {
    "gpt2, both": [],
    "gpt2, memory": ["decoder.embedding=false"],
    "gpt2, embedding": ["decoder.memory=false"],
    "gpt2, untied": ["decoder.tied=false"],
    "llama, both": ["decoder.architecture=llama"],
    "llama, grouped": ["decoder.architecture=llama", "decoder.key_value_heads=2"],
    "llama, grouped, memory": ["decoder.architecture=llama", "decoder.key_value_heads=2", "decoder.embedding=false"],
    "llama, embedding": ["decoder.architecture=llama", "decoder.memory=false"],
}
shapes = pytest.mark.parametrize("overrides", SHAPES.values(), ids=SHAPES.keys())
CLOSE = {"atol": 1e-5, "rtol": 1e-5}  # llama's norms are in float32, whatever the model


def model_of(overrides: list[str], vocabulary: int = 11, *, language_model: bool = False) -> LatentLM:
    content: dict[str, Any] = {
        "encoder": {"name": "recurrent", "embedding_size": 5, "hidden_size": 6},
        "posterior": {"name": "gaussian", "size": 2},
        "decoder": SMALL,
    }
    if language_model:
        content |= {"encoder": {"name": "none"}, "stages": [{"objective": {"name": "likelihood"}}]}
    model = build_model(complete(settings_from(override(content, overrides))), vocabulary).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # far from the start, where everything is nearly uniform
        for parameter in model.decoder.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(noise * (0.2 if parameter.dim() > 1 else 0.05))
        for parameter in model.decoder.injection.parameters():
            parameter.mul_(3.0)
    return model


def codes(batch: int, samples: int = 3) -> torch.Tensor:
    return torch.randn(samples, batch, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def widened(batch: Batch, extra: int) -> Batch:
    def wider(ids: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(ids, (0, extra), value=PAD)

    target = Tokens(wider(batch.target.ids), batch.target.lengths)
    return batch._replace(target=target, inputs=wider(batch.inputs))


@shapes
def test_padding_batch_and_order_change_nothing(overrides: list[str]) -> None:
    model, batch, order = model_of(overrides), random_batch([3, 5, 1, 4]), [2, 0, 3, 1]
    z = codes(4)
    whole = model.log_likelihood(z, batch)
    assert whole.shape == (3, 4)
    assert torch.allclose(model.log_likelihood(z, widened(batch, 4)), whole, **CLOSE)
    rows = [batch.target.ids[i, : batch.target.lengths[i] - 1].numpy() for i in range(4)]
    permuted = collate([rows[i] for i in order], order)
    assert torch.allclose(model.log_likelihood(z[:, order], permuted), whole[:, order], **CLOSE)
    for row in range(4):
        alone = model.log_likelihood(z[1:2, row : row + 1], collate([rows[row]], [row]))
        assert torch.allclose(alone, whole[1:2, row : row + 1], **CLOSE)


@shapes
def test_step_by_step_equals_the_full_forward(overrides: list[str]) -> None:
    model, batch = model_of(overrides), random_batch([6, 6, 6])
    z = codes(3, samples=1)
    state, total = model.decoder.start(z, 3), torch.zeros(3, dtype=torch.float64)
    for step in range(7):
        scores, state = model.decoder.advance(batch.inputs[:, step], state)
        total += torch.log_softmax(scores, -1).gather(1, batch.target.ids[:, step, None]).squeeze(1)
    assert torch.allclose(total, model.log_likelihood(z, batch)[0], **CLOSE)


@shapes
def test_selected_rows_go_on_as_if_alone_and_leave_the_old_state_alone(overrides: list[str]) -> None:
    model, batch = model_of(overrides), random_batch([6, 6, 6])
    z = codes(3, samples=2)
    state = model.decoder.start(z, 3)
    _, state = model.decoder.advance(batch.inputs[:, 0], state)
    expected, _ = model.decoder.advance(batch.inputs[:, 1], state)
    rows = torch.tensor([2, 0, 2])
    chosen, _ = model.decoder.advance(batch.inputs[rows, 1], state.select(rows))
    assert torch.allclose(chosen, expected[rows], **CLOSE)
    again, _ = model.decoder.advance(batch.inputs[:, 1], state)
    assert torch.equal(again, expected)


@shapes
def test_likelihood_sums_to_one(overrides: list[str]) -> None:
    """Over all sentences of up to 2 words, and what the longer ones have left."""
    model = model_of(overrides, vocabulary=6)
    sentences = [np.array(s, dtype=np.int64) for n in range(3) for s in product([0, 1, 3, 4, 5], repeat=n)]
    z = torch.tensor([[0.3, -1.1]], dtype=torch.float64)
    batch = collate(sentences, np.arange(len(sentences)))
    total = model.log_likelihood(z[None].expand(1, len(sentences), 2), batch).exp().sum()
    longest = collate([s for s in sentences if len(s) == 2], np.arange(25))
    steps = model.token_log_prob(z[None].expand(1, 25, 2), longest)[0]
    unfinished = (steps[:, :2].sum(-1).exp() * (1.0 - steps[:, 2].exp())).sum()
    assert float((total + unfinished).detach()) == pytest.approx(1.0, abs=1e-6)


@shapes
def test_later_words_do_not_change_earlier_states(overrides: list[str]) -> None:
    model, batch = model_of(overrides), random_batch([6])
    other = batch.inputs.clone()
    other[0, 4] = 4 + (other[0, 4] - 3) % 7
    before, after = (model.decoder.hidden_states(codes(1), ids) for ids in (batch.inputs, other))
    assert torch.equal(before[:, :, :4], after[:, :, :4])
    assert not torch.allclose(before[:, :, 4:], after[:, :, 4:])


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_every_word_attends_to_the_memory_and_every_layer_learns_it(architecture: str) -> None:
    model = model_of([f"decoder.architecture={architecture}", "decoder.embedding=false"])
    batch, weight = random_batch([5, 5]), model.decoder.injection.memory_map.weight
    for step in range(6):
        model.zero_grad()
        model.token_log_prob(codes(2), batch)[:, :, step].sum().backward()
        by_layer = weight.grad.view(2, -1, 2).abs().amax((1, 2))
        assert bool((by_layer > 1e-6).all())


def test_memory_is_one_more_key_and_value_and_words_start_at_position_one() -> None:
    """Against the library's own network with a hand-made cache and explicit mask and positions."""
    model, batch = model_of(["decoder.embedding=false"]), random_batch([5, 3])
    decoder, z = model.decoder, codes(2, samples=1)
    cache = transformers.DynamicCache()
    for layer, vector in enumerate((z[0] @ decoder.injection.memory_map.weight.t()).view(2, 2, 4, 8).unbind(1)):
        cache.update(vector[:, :, None], vector[:, :, None], layer)
    mask = torch.cat((torch.ones(2, 1), batch.target.mask()), dim=1).long()
    positions = torch.arange(1, 7).expand(2, 6)
    scores = decoder.network(
        input_ids=batch.inputs, past_key_values=cache, attention_mask=mask, position_ids=positions
    ).logits
    expected = torch.log_softmax(scores, -1).gather(2, batch.target.ids[:, :, None]).squeeze(2)
    expected = torch.where(batch.target.mask(), expected, 0.0)
    assert torch.allclose(model.token_log_prob(z, batch)[0], expected, atol=1e-10)


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_without_a_code_it_is_the_librarys_language_model(architecture: str) -> None:
    model, batch = model_of([f"decoder.architecture={architecture}"], language_model=True), random_batch([5, 3])
    assert not list(model.decoder.injection.parameters())
    scores = model.decoder.network(input_ids=batch.inputs, attention_mask=batch.target.mask().long()).logits
    expected = torch.log_softmax(scores, -1).gather(2, batch.target.ids[:, :, None]).squeeze(2)
    expected = torch.where(batch.target.mask(), expected, 0.0).sum(1)
    assert torch.allclose(model.log_likelihood(None, batch)[0], expected, **CLOSE)


@pytest.mark.parametrize("method", ["greedy", "sample", "beam"])
def test_sentences_come_out_the_same_in_any_batch(method: Any) -> None:
    model, z = model_of([]), codes(5, samples=1)
    options = Generation(method=method, max_words=12, beam=3)
    index = torch.arange(5)
    together = generate(model.decoder, z, 5, options, index)
    alone = [generate(model.decoder, z[:, i : i + 1], 1, options, index[i : i + 1])[0] for i in range(5)]
    assert together == alone and len({tuple(row) for row in together}) > 1


def test_writing_ends_at_the_last_position_and_longer_sentences_are_refused() -> None:
    model = model_of(["decoder.positions=6"])
    with torch.no_grad():
        model.decoder.network.lm_head.weight[2] = 0.0  # <eos> is never the best by itself
    rows = generate(model.decoder, codes(3, samples=1), 3, Generation(max_words=50))
    assert max(map(len, rows)) <= 5
    with pytest.raises(ZentenceError, match="takes 7 positions, the decoder has 6"):
        model.log_likelihood(codes(1), random_batch([5]))


def test_reset_draws_anew_and_keeps_the_tie() -> None:
    model = model_of([])
    before = {name: p.detach().clone() for name, p in model.decoder.named_parameters()}
    torch.manual_seed(3)
    model.reset_part("decoder")
    same = [name for name, p in model.decoder.named_parameters() if p.dim() > 1 and torch.equal(before[name], p)]
    assert not same
    assert model.decoder.network.lm_head.weight is model.decoder.embedding.weight


def test_at_first_the_code_adds_as_much_as_a_word() -> None:
    """Were it more, words would drown in its noise while the model begins to learn."""
    settings = decoder_settings(layers=1, hidden_size=64, heads=4)
    decoder = build_model(settings, 500).decoder
    z = torch.randn(4, 500, decoder.code_size, generator=torch.Generator().manual_seed(0))
    added, words = decoder.injection.added(z).detach(), decoder.embedding.weight.detach()
    assert float(added.std()) == pytest.approx(float(words.std()), rel=0.1)
    given = build_model(complete(settings_from({"decoder": {**settings.decoder.model_dump(), "code_spread": 0.3}})), 50)
    assert float(given.decoder.injection.memory_map.weight.detach().std()) == pytest.approx(0.3, rel=0.1)


class Words:
    """A vocabulary of words, as far as `load_pretrained` looks at it."""

    words = ("<pad>", "<bos>", "<eos>", "<unk>", "dog", "barks", "loud")


@pytest.fixture
def pretrained(tmp_path: Path) -> Path:
    """A GPT-2 with weights of its own and another vocabulary: "barks" is two pieces there."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {"<|endoftext|>": 0, "dog": 1, "bark": 2, "##s": 3, "l": 4, "##oud": 5, "[UNK]": 6}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.enable_padding(length=16)  # published tokenisers often pad; a word's pieces are without
    config = transformers.GPT2Config(
        vocab_size=7, n_embd=32, n_layer=2, n_head=4, n_positions=24, bos_token_id=0, eos_token_id=0
    )
    torch.manual_seed(5)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "weights")
    tokenizer.save(str(tmp_path / "weights" / "tokenizer.json"))
    return tmp_path / "weights"


def decoder_settings(**options: object) -> Any:
    content = {"decoder": {"name": "transformer", **options}, "encoder": {"name": "recurrent"}}
    return complete(settings_from(content))


def test_pretrained_weights_are_taken_and_words_get_their_pieces_mean(pretrained: Path) -> None:
    settings = decoder_settings(weights=str(pretrained), dropout=0.0)
    assert settings.decoder.options["layers"] == 2 and settings.decoder.options["hidden_size"] == 32
    model = build_model(settings, 7)
    model.decoder.load_pretrained(Words())
    theirs = transformers.GPT2LMHeadModel.from_pretrained(pretrained)
    assert torch.equal(model.decoder.network.transformer.h[1].mlp.c_fc.weight, theirs.transformer.h[1].mlp.c_fc.weight)
    rows, source = model.decoder.embedding.weight, theirs.transformer.wte.weight
    assert torch.equal(rows[4], source[1]) and torch.equal(rows[1], source[0]) and torch.equal(rows[2], source[0])
    assert torch.allclose(rows[5], (source[2] + source[3]) / 2)
    assert model.decoder.network.lm_head.weight is model.decoder.embedding.weight


def test_settings_remember_the_shape_when_the_weights_are_gone(pretrained: Path) -> None:
    settings = decoder_settings(weights=str(pretrained))
    (pretrained / "config.json").unlink()
    again = complete(settings_from(json.loads(json.dumps(settings.model_dump(mode="json")))))
    assert build_model(again, 7).decoder.config.n_embd == 32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, "3 heads do not divide"),
        ({"heads": 4, "key_value_heads": 3}, "3 heads of keys do not divide"),
        ({"weights": "/nowhere"}, "no config.json is there"),
    ],
)
def test_impossible_options_are_refused_in_one_line(options: dict[str, object], message: str) -> None:
    with pytest.raises(ZentenceError, match=message):
        decoder_settings(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"architecture": "gpt22"}, "Unknown architecture 'gpt22'. Did you mean"),
        ({"architecture": "bert"}, "'bert' is no decoder"),
        ({"architecture": "vit"}, "does not fit here"),
        ({"memory": False, "embedding": False}, "the code is not read"),
    ],
)
def test_unfit_networks_are_refused_in_one_line(options: dict[str, object], message: str) -> None:
    settings = decoder_settings(layers=1, hidden_size=8, heads=2, **options)
    with pytest.raises(ZentenceError, match=message) as error:
        build_model(settings, 7)
    assert "\n" not in str(error.value)


def test_the_shape_of_the_weights_holds_whatever_else_is_given(pretrained: Path) -> None:
    options = decoder_settings(weights=str(pretrained), layers=3, heads=16, architecture="llama").decoder.options
    assert (options["layers"], options["heads"], options["architecture"]) == (2, 4, "gpt2")


def test_a_directory_without_a_description_of_weights_is_refused(tmp_path: Path) -> None:
    for content, message in [("{", "cannot be read"), ("{}", "names no model_type")]:
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
        with pytest.raises(ZentenceError, match=message):
            decoder_settings(weights=str(tmp_path))


def test_only_training_takes_a_sample_of_the_words() -> None:
    model = model_of(["decoder.training_words=20"], 200)
    exact, batch = model_of([], 200), random_batch((7, 5, 5), 200)
    z = codes(batch.size)
    assert torch.allclose(model.token_log_prob(z, batch), exact.token_log_prob(z, batch), **CLOSE)
    model.train()
    assert not torch.allclose(model.token_log_prob(z, batch), exact.token_log_prob(z, batch), **CLOSE)
