"""Writing sentences with any decoder: greedy, sampling and beam search, batched; finished rows are dropped."""

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from zentence.noise import Noise
from zentence.parts import Options
from zentence.types import BOS, EOS, PAD, UNK


class Generation(Options):
    """How words are chosen."""

    method: Literal["greedy", "sample", "beam"] = Field("greedy", description="How words are chosen.")
    max_words: int = Field(100, ge=1, le=10_000, description="Longest sentence.")
    temperature: float = Field(1.0, gt=0.0, description="Sampling: scores are divided by it.")
    top_k: int | None = Field(None, ge=1, description="Sampling: only the k best words.")
    top_p: float | None = Field(None, gt=0.0, le=1.0, description="Sampling: the fewest words with this probability.")
    beam: int = Field(5, ge=1, le=100, description="Beam search: sentences kept.")
    length_penalty: float = Field(
        0.0, ge=0.0, description="Beam search: log-probability is divided by length to this power; 0 compares sums."
    )
    forbid_unknown: bool = Field(False, description="Never write <unk>.")
    seed: int = Field(0, ge=0, description="Of the sampling.")


@torch.no_grad()
def generate(
    decoder: Any, z: Tensor | None, batch: int, options: Generation, index: Tensor | None = None
) -> list[list[int]]:
    """Return word ids (no `<eos>`) for codes [S, B, D], or for `batch` sentences without a code.

    With S > 1 the hidden states of the S codes are averaged. `index` [B] keys the sampling noise, so that a sentence
    comes out the same in any batch.
    """
    if options.method == "beam":
        return _beam_search(decoder, z, batch, options)
    device = next(decoder.parameters()).device
    numbers = torch.arange(batch, device=device) if index is None else index.to(device)
    state = decoder.start(z, batch)
    alive = torch.arange(batch, device=device)
    token = torch.full((batch,), BOS, device=device)
    written = torch.full((batch, options.max_words), PAD, device=device)
    for position in range(options.max_words):
        scores, state = decoder.advance(token, state)
        scores = _allowed(scores, options)
        if options.method == "greedy":
            token = scores.argmax(-1)
        else:
            token = _draw(scores, options, Noise(options.seed, numbers[alive]).fork("words", position))
        written[alive, position] = token
        going = (token != EOS).nonzero().squeeze(1)
        if len(going) == 0:
            break
        if len(going) < len(alive):
            alive, token, state = alive[going], token[going], state.select(going)
    return [_until_end(row) for row in written.tolist()]


def _until_end(row: list[int]) -> list[int]:
    words = []
    for token in row:
        if token in (EOS, PAD):
            break
        words.append(token)
    return words


def _allowed(scores: Tensor, options: Generation) -> Tensor:
    """Return scores with the tokens that are never written ruled out."""
    banned = [PAD, BOS, UNK] if options.forbid_unknown else [PAD, BOS]
    scores = scores.clone()
    scores[:, banned] = -torch.inf
    return scores


def _draw(scores: Tensor, options: Generation, noise: Noise) -> Tensor:
    """Draw a word for each row [B, V] by inverting the cumulative distribution."""
    probability = torch.softmax(scores.double() / options.temperature, -1)
    if options.top_k is None and options.top_p is None:
        cumulative = probability.cumsum(-1)
        point = noise.uniform(1, torch.float64) * cumulative[:, -1:]
        return (cumulative <= point).sum(-1)  # the first word whose sum is above: its probability is not zero
    probability, order = probability.sort(dim=-1, descending=True, stable=True)
    if options.top_k is not None:
        probability[:, options.top_k :] = 0.0
    if options.top_p is not None:
        before = probability.cumsum(-1) - probability
        probability = torch.where(before < options.top_p, probability, 0.0)
    cumulative = probability.cumsum(-1)
    point = noise.uniform(1, torch.float64) * cumulative[:, -1:]
    chosen = (cumulative <= point).sum(-1, keepdim=True)
    last = (probability > 0.0).sum(-1, keepdim=True) - 1  # against rounding at the upper end
    return order.gather(1, torch.minimum(chosen, last)).squeeze(1)


def _beam_search(decoder: Any, z: Tensor | None, batch: int, options: Generation) -> list[list[int]]:
    """Keep the `beam` best beginnings of each sentence until no open one can beat the best finished one."""
    K, device = options.beam, next(decoder.parameters()).device
    state = decoder.start(z, batch).select(torch.arange(batch, device=device).repeat_interleave(K))
    token = torch.full((batch * K,), BOS, device=device)
    score = torch.full((batch, K), -torch.inf, dtype=torch.float64, device=device)
    score[:, 0] = 0.0  # all K beginnings are equal at first: only one counts
    words = torch.empty((batch, K, 0), dtype=torch.int64, device=device)
    alive = torch.arange(batch, device=device)
    best_score = torch.full((batch,), -torch.inf, dtype=torch.float64, device=device)
    best: list[list[int]] = [[] for _ in range(batch)]
    for position in range(options.max_words):
        raw, state = decoder.advance(token, state)
        log_prob = torch.log_softmax(_allowed(raw.double(), options), -1).view(len(alive), K, -1)
        V = log_prob.shape[-1]
        score, flat = (score[:, :, None] + log_prob).view(len(alive), -1).topk(K, dim=-1)
        parent, token = flat // V, flat % V  # [A, K]
        words = torch.cat((words.gather(1, parent[:, :, None].expand(-1, -1, position)), token[:, :, None]), dim=-1)
        ended = token == EOS
        normed = score / float(position + 1) ** options.length_penalty
        candidate, which = torch.where(ended, normed, -torch.inf).max(-1)
        for row in (candidate > best_score[alive]).nonzero().squeeze(1).tolist():
            best_score[alive[row]] = candidate[row]
            best[int(alive[row])] = words[row, which[row]].tolist()[:-1]
        score = torch.where(ended, -torch.inf, score)
        hope = score.max(-1).values / float(options.max_words) ** options.length_penalty  # the best it may become
        going = (hope > best_score[alive]).nonzero().squeeze(1)
        if len(going) == 0:
            return best
        rows = (going[:, None] * K + parent[going]).reshape(-1)
        alive, token, score, words = alive[going], token[going].reshape(-1), score[going], words[going]
        state = state.select(rows)
    for row in range(len(alive)):  # no ending within the limit: the best beginning
        if best_score[alive[row]] == -torch.inf:
            best[int(alive[row])] = words[row, int(score[row].argmax())].tolist()
    return best
