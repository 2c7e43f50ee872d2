"""What must hold for any model: permutation, padding, splitting, and probabilities that sum to one."""

from itertools import product

import numpy as np
import pytest
import torch

from zentence.corpora import collate
from zentence.encoders.recurrent import RecurrentEncoder
from zentence.model import LatentLM
from zentence.testing import random_batch, tiny_model
from zentence.types import PAD, Batch, Tokens

SHAPES = {
    "paper 4": ["decoder.initial_state=cell", "decoder.initial_bias=false", "posterior.bias=false"],
    "paper 3": ["decoder.initial_state=hidden", "decoder.code_to_inputs=true"],
    "paper 2": [
        "encoder.cell=gru",
        "encoder.direction=both",
        "encoder.embedding=decoder",
        "encoder.reads=words",
        "posterior.scale=softplus",
        "decoder.cell=gru",
        "decoder.layers=2",
        "decoder.initial_state=tanh",
        "decoder.code_to_inputs=false",
        "decoder.dropout_mask=shared",
    ],
    "paper 1": [
        "encoder.cell=gru",
        "encoder.direction=backward",
        "encoder.reads=words_eos",
        "posterior.min_log_variance=-10",
        "decoder.cell=gru",
        "decoder.tied=true",
    ],
    "two layers": ["encoder.layers=2", "decoder.layers=2", "decoder.tied=true", "decoder.hidden_size=5"],
}
shapes = pytest.mark.parametrize("overrides", SHAPES.values(), ids=SHAPES.keys())


def pad_further(batch: Batch, extra: int) -> Batch:
    def wider(ids: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(ids, (0, extra), value=PAD)

    source, target = (Tokens(wider(t.ids), t.lengths) for t in (batch.source, batch.target))
    return batch._replace(source=source, target=target, inputs=wider(batch.inputs))


def outputs(model: LatentLM, batch: Batch) -> list[torch.Tensor]:
    q = model.infer(batch.source)
    z = torch.linspace(-1.0, 1.0, 3 * 2, dtype=torch.float64).view(3, 1, 2).expand(3, batch.size, 2)
    return [q.center, q.scale, model.log_likelihood(z, batch).t()]


@shapes
def test_permuting_a_batch_permutes_every_output(overrides: list[str]) -> None:
    model, batch = tiny_model(overrides, spread=0.5), random_batch([3, 5, 1, 4])
    order = [2, 0, 3, 1]
    rows = [batch.target.ids[i, : batch.target.lengths[i] - 1].numpy() for i in order]
    for whole, permuted in zip(outputs(model, batch), outputs(model, collate(rows, order)), strict=True):
        assert torch.allclose(whole[order], permuted, atol=1e-12)


@shapes
def test_padding_further_changes_nothing(overrides: list[str]) -> None:
    model, batch = tiny_model(overrides, spread=0.5), random_batch([3, 5, 1, 4])
    for before, after in zip(outputs(model, batch), outputs(model, pad_further(batch, 4)), strict=True):
        assert torch.allclose(before, after, atol=1e-12)


@shapes
def test_splitting_a_batch_changes_nothing(overrides: list[str]) -> None:
    model, batch = tiny_model(overrides, spread=0.5), random_batch([3, 5, 1, 4])
    for row in range(4):
        alone = collate([batch.target.ids[row, : batch.target.lengths[row] - 1].numpy()], [row])
        for whole, single in zip(outputs(model, batch), outputs(model, alone), strict=True):
            assert torch.allclose(whole[row : row + 1], single, atol=1e-12)


@shapes
def test_likelihood_sums_to_one_over_all_sentences(overrides: list[str]) -> None:
    """Over all sentences of up to 3 words; longer ones have what is left, bounded by p(no <eos> in 4 tokens)."""
    model = tiny_model(overrides, vocabulary=6, spread=0.8)
    words = range(6)  # the decoder may give mass to any token but <eos>
    sentences = [np.array(s, dtype=np.int64) for n in range(4) for s in product([w for w in words if w != 2], repeat=n)]
    z = torch.tensor([[0.3, -1.1]], dtype=torch.float64)
    batch = collate(sentences, np.arange(len(sentences)))
    total = model.log_likelihood(z[None].expand(1, len(sentences), 2), batch).exp().sum()
    longest = collate([s for s in sentences if len(s) == 3], np.arange(5**3))
    steps = model.token_log_prob(z[None].expand(1, 125, 2), longest)[0]
    unfinished = (steps[:, :3].sum(-1).exp() * (1.0 - steps[:, 3].exp())).sum()
    assert float((total + unfinished).detach()) == pytest.approx(1.0, abs=1e-10)


@shapes
def test_writing_step_by_step_follows_the_same_likelihood(overrides: list[str]) -> None:
    model, batch = tiny_model(overrides, spread=0.5), random_batch([4, 4])
    z = torch.randn(2, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for sample in z:
        state, total = model.decoder.start(sample[None], 2), torch.zeros(2, dtype=torch.float64)
        for step in range(5):
            scores, state = model.decoder.advance(batch.inputs[:, step], state)
            total += torch.log_softmax(scores, -1).gather(1, batch.target.ids[:, step, None]).squeeze(1)
        assert torch.allclose(total, model.log_likelihood(sample[None], batch)[0], atol=1e-12)


def test_language_model_is_the_decoder_without_a_code() -> None:
    model, batch = tiny_model(language_model=True, spread=0.5), random_batch([3, 5])
    assert not model.has_code and model.code_size == 0
    assert model.log_likelihood(None, batch).shape == (1, 2)
    assert torch.allclose(model.log_likelihood(None, pad_further(batch, 3)), model.log_likelihood(None, batch))


def test_resetting_the_decoder_keeps_what_the_encoder_reads() -> None:
    model = tiny_model(["encoder.embedding=decoder"])
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    model.reset_part("decoder")
    changed = {name for name, p in model.named_parameters() if not torch.equal(before[name], p)}
    assert "decoder.recurrence.weight_ih_l0" in changed and "decoder.output.weight" in changed
    assert not any(name.startswith("encoder") or "embedding" in name for name in changed)


def test_inputless_decoder_does_not_see_the_words() -> None:
    model = tiny_model(["decoder.inputless=true"], spread=0.5)
    batch = random_batch([4, 4])
    z = torch.zeros(1, 2, 2, dtype=torch.float64)
    other = batch._replace(inputs=torch.where(batch.inputs > 3, 4 + (batch.inputs + 1) % 7, batch.inputs))
    assert torch.equal(model.decoder.hidden_states(z, batch.inputs), model.decoder.hidden_states(z, other.inputs))


@pytest.mark.parametrize("mask", ["standard", "shared"])
def test_dropout_keeps_the_mean_and_shares_masks_as_told(mask: str) -> None:
    model = tiny_model([f"decoder.dropout_mask={mask}"])
    decoder = model.decoder.train()
    torch.manual_seed(0)
    dropped = decoder._drop(torch.ones(2000, 7, 3, dtype=torch.float64), 0.4, 1)
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.03)
    same_over_time = bool((dropped == dropped[:, :1]).all())
    assert same_over_time == (mask == "shared")


def test_rows_of_different_lengths_are_read_as_if_alone() -> None:
    """Many rows with much padding are read in groups; each must give what it gives by itself."""
    torch.manual_seed(0)
    encoder = RecurrentEncoder(
        RecurrentEncoder.Options(hidden_size=5, embedding_size=3, direction="both", pooling="max"), 9
    ).double()
    lengths = torch.randint(1, 31, (40,))
    lengths[:30] = lengths[:30].clamp(max=6)
    embedded = torch.randn(40, 30, 3, dtype=torch.float64)
    together = encoder.forward_embedded(embedded, lengths)
    alone = [encoder.forward_embedded(embedded[i : i + 1, : int(n)], n[None]) for i, n in enumerate(lengths)]
    assert torch.allclose(together, torch.cat(alone), atol=1e-12)
