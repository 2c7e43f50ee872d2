import pytest
import torch

from zentence.corpora.corruption import corrupt, hide_words
from zentence.noise import Noise
from zentence.settings import CorruptionSettings
from zentence.testing import random_batch
from zentence.types import BOS, EOS, PAD, UNK


def test_share_of_hidden_words_and_special_tokens_kept() -> None:
    batch = random_batch([20] * 200 + [7], vocabulary=50)
    ids = batch.source.ids
    hidden = hide_words(ids, 0.3, Noise(1, batch.index))
    words = ids > UNK
    assert abs(float((hidden[words] == UNK).double().mean()) - 0.3) < 0.03
    assert torch.equal(hidden[~words], ids[~words])
    assert {PAD, BOS, EOS} <= set(hidden.unique().tolist())


def test_all_and_nothing() -> None:
    batch = random_batch([5, 3])
    assert torch.equal(hide_words(batch.inputs, 0.0, Noise(1, batch.index)), batch.inputs)
    hidden = hide_words(batch.inputs, 1.0, Noise(1, batch.index))
    assert bool(((hidden == UNK) | (batch.inputs <= UNK)).all())


def test_targets_stay_and_the_two_inputs_are_hidden_independently() -> None:
    batch = random_batch([30] * 50, vocabulary=40)
    corrupted = corrupt(batch, 0.5, 0.5, Noise(1, batch.index))
    assert torch.equal(corrupted.target.ids, batch.target.ids)
    decoder_hidden = corrupted.inputs[:, 1:] == UNK
    encoder_hidden = corrupted.source.ids[:, 1:-1] == UNK
    both = float((decoder_hidden & encoder_hidden).double().mean())
    assert abs(both - 0.25) < 0.04


def test_a_sentence_is_corrupted_alike_in_any_batch() -> None:
    batch = random_batch([6, 6, 6])
    whole = hide_words(batch.inputs, 0.5, Noise(1, batch.index))
    alone = hide_words(batch.inputs[1:2], 0.5, Noise(1, batch.index[1:2]))
    assert torch.equal(whole[1:2], alone)


def test_uneven_rows_lose_parts_from_none_to_all_and_the_same_share_together() -> None:
    batch = random_batch([40] * 600, vocabulary=50)
    hidden = hide_words(batch.source.ids, 0.2, Noise(1, batch.index), where="uneven")
    words = batch.source.ids > UNK
    lost = ((hidden == UNK) & words).double().sum(1) / words.double().sum(1)  # [B]
    assert abs(float(lost.mean()) - 0.2) < 0.03
    assert abs(float((lost == 0.0).double().mean()) - 0.61) < 0.06  # 3 of 5, and those that lose next to nothing
    touched = lost[lost > 0.0]
    quarters = torch.histc(touched, 4, 0.0, 1.0) / len(touched)
    assert float((quarters - 0.25).abs().max()) < 0.09
    assert torch.equal(hidden[~words], batch.source.ids[~words])
    alone = hide_words(batch.source.ids[7:8], 0.2, Noise(1, batch.index[7:8]), where="uneven")
    assert torch.equal(hidden[7:8], alone)


def test_the_end_of_a_sentence_is_hidden_in_the_same_shares() -> None:
    batch = random_batch([40] * 500 + [11] * 100, vocabulary=50)
    hidden = hide_words(batch.source.ids, 0.2, Noise(1, batch.index), where="end")
    words = batch.source.ids > UNK
    lost = (hidden == UNK) & words
    share = lost.double().sum(1) / words.double().sum(1)  # [B]
    assert abs(float(share.mean()) - 0.2) < 0.03
    assert float(share.max()) > 0.9
    assert torch.equal(hidden[~words], batch.source.ids[~words])
    following = lost[:, 1:] | ~words[:, 1:]
    assert bool(following[lost[:, :-1]].all())  # after a hidden word none is seen


def test_uneven_shares_are_at_most_one_half() -> None:
    for where in ("uneven", "end"):
        with pytest.raises(ValueError, match="one half"):
            CorruptionSettings(unknown_inputs=0.6, unknown_where=where)
        assert CorruptionSettings(unknown_inputs=0.5, unknown_where=where).unknown_where == where


def test_settings_of_earlier_models_are_read() -> None:
    for uneven, where in ((True, "uneven"), (False, "anywhere")):
        content = {"unknown_inputs": 0.2, "unknown_uneven": uneven}
        assert CorruptionSettings.model_validate(content).unknown_where == where
