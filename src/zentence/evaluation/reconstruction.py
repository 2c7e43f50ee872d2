"""What comes back: sentences written from their own codes, and how much of a sentence its code tells the decoder."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zentence.corpora import Vocabulary, collate
from zentence.evaluation.measurement import ratio_and_error
from zentence.evaluation.passes import batches, considered, draw, most_words, texts, write
from zentence.evaluation.recorder import Recorder
from zentence.evaluation.subject import Subject
from zentence.evaluation.text import corpus_bleu, same_places, sentence_bleu1, why_not
from zentence.model import LatentLM
from zentence.noise import Noise, derive_key
from zentence.types import Batch

COMPARISONS = ("bleu4", "bleu1", "bleu1_sentence_mean", "exact_match", "word_accuracy")
WAYS = {  # suffix → code, words
    "": ("mean", "greedy"),
    "_from_sample": ("sample", "greedy"),
    "_sampled_words": ("mean", "sample"),
    "_from_sample_sampled_words": ("sample", "sample"),
}
SWAPS = (1, 2, 3, 4)
WITHOUT_CODE = "a language model has no code to write a sentence from"


def reconstruction(subject: Subject, recorder: Recorder) -> None:
    """Record how sentences come back from their codes, the accuracy gap, and the loss from disturbed inputs."""
    noisy = [f"noisy_reconstruction_k{k}" for k in SWAPS]
    if not subject.model.has_code:
        for name in [*(c + suffix for suffix in WAYS for c in COMPARISONS), "accuracy_gap", *noisy]:
            recorder.refuse(name, WITHOUT_CODE)
        return
    wanted = [suffix for suffix in WAYS if subject.wants(*(name + suffix for name in COMPARISONS))]
    if wanted:
        _written(subject, recorder, wanted)
    if subject.wants("accuracy_gap"):
        _accuracy_gap(subject, recorder)
    if subject.wants(*noisy):
        _noisy(subject, recorder)


@torch.no_grad()
def _written(subject: Subject, recorder: Recorder, wanted: list[str]) -> None:
    """Write every sentence anew in each way that is wanted, and compare."""
    model, count = subject.model, considered(subject)
    references = list(texts(subject, subject.store, count))
    written = {suffix: [""] * count for suffix in wanted}
    for batch in batches(subject, "reconstruction"):
        q = model.infer(batch.source)
        # a mean used for all L states would give L equal ones, whose average is any of them: one is enough
        codes = {"mean": q.center[None], "sample": draw(q, model, batch.index, subject.seed, "reconstruction")}
        for suffix in wanted:
            code, method = WAYS[suffix]
            for number, text in zip(
                batch.index.tolist(), write(subject, codes[code], batch.index, method), strict=True
            ):
                written[suffix][number] = text
    for suffix in wanted:
        _compare(subject, recorder, suffix, written[suffix], references)


def _compare(subject: Subject, recorder: Recorder, suffix: str, written: list[str], references: list[str]) -> None:
    code, method = WAYS[suffix]
    how = {"from": code, "method": method, "max_words": most_words(subject)}
    samples = None if code == "mean" else subject.model.averaged_codes
    count = len(references)
    for name, order in (("bleu4", 4), ("bleu1", 1)):
        if missing := why_not("sacrebleu"):
            recorder.refuse(name + suffix, missing)
        elif subject.wants(name + suffix):
            bleu = corpus_bleu(written, references, order, subject.seed)
            recorder.add(
                name + suffix, bleu.value, "estimate", count, bleu.error, samples, signature=bleu.signature, **how
            )
    recorder.add_mean(
        "bleu1_sentence_mean" + suffix, sentence_bleu1(written, references), "estimate", samples, **how
    )  # fmt: skip
    exact = np.array([a.split() == b.split() for a, b in zip(written, references, strict=True)])
    recorder.add_mean("exact_match" + suffix, exact, "estimate", samples, **how)
    accuracy, error = ratio_and_error(*same_places(written, references))
    recorder.add("word_accuracy" + suffix, accuracy, "estimate", count, error, samples, **how)


def next_word_hits(model: LatentLM, z: Tensor, batch: Batch) -> Tensor:
    """Return how many words and `<eos>` of each sentence [B] are the decoder's first choice after the gold words.

    z is [L, B, D]. The decoder is led word by word, so any decoder will do.
    """
    state, mask = model.decoder.start(z, batch.size), batch.target.mask()
    hits = torch.zeros(batch.size, dtype=torch.int64, device=batch.index.device)
    for place in range(batch.inputs.shape[1]):
        scores, state = model.decoder.advance(batch.inputs[:, place], state)
        hits += (scores.argmax(-1) == batch.target.ids[:, place]) & mask[:, place]
    return hits


@torch.no_grad()
def _accuracy_gap(subject: Subject, recorder: Recorder) -> None:
    """Teacher-forced accuracy over words and `<eos>` with codes from the posterior minus from the prior (paper 2)."""
    model, prior = subject.model, subject.model.prior_density()
    rows: list[NDArray[np.int64]] = []
    for batch in batches(subject, "accuracy gap"):
        informed = draw(model.infer(batch.source), model, batch.index, subject.seed, "accuracy gap")
        blind = draw(prior, model, batch.index, subject.seed, "accuracy gap, prior")
        found = [next_word_hits(model, z, batch) for z in (informed, blind)]
        rows.append(torch.stack([*found, batch.target.lengths]).cpu().numpy())
    posterior, blindly, tokens = np.concatenate(rows, axis=1)
    gap, error = ratio_and_error(100.0 * (posterior - blindly), tokens)
    recorder.add(
        "accuracy_gap",
        gap,
        "estimate",
        len(tokens),
        error,
        model.averaged_codes,
        posterior=100.0 * float(posterior.sum() / tokens.sum()),
        prior=100.0 * float(blindly.sum() / tokens.sum()),
        tokens=int(tokens.sum()),
    )


def swap_words(words: list[str], uniform: NDArray[np.float64]) -> list[str]:
    """Return the words after k swaps of two different places each; uniform [k, 2] in [0, 1) chooses the places.

    Every pair of places is equally likely, whatever words stand there. Fewer than two words stay as they are.
    """
    words, count = list(words), len(words)
    if count < 2:
        return words
    for first, second in uniform:
        i = int(first * count)
        j = (i + 1 + int(second * (count - 1))) % count
        words[i], words[j] = words[j], words[i]
    return words


def swapped_sources(batch: Batch, k: int, vocabulary: Vocabulary, seed: int) -> Batch:
    """Return the batch with k word swaps in what the encoder reads; those of k are the first of those of k + 1."""
    uniform = Noise(derive_key(seed, "swaps"), batch.index).uniform(2 * SWAPS[-1], torch.float64).cpu().numpy()
    lengths = batch.target.lengths.tolist()
    sentences = [
        " ".join(swap_words(vocabulary.decode(ids[:length]).split(), draws.reshape(-1, 2)[:k]))
        for ids, length, draws in zip(batch.target.ids.tolist(), lengths, uniform, strict=True)
    ]
    read = collate((vocabulary.encoder or vocabulary).encode_batch(sentences), batch.index.tolist())
    return batch._replace(source=read.source.to(batch.index.device))


@torch.no_grad()
def _noisy(subject: Subject, recorder: Recorder) -> None:
    """Loss of the original from the code of its input with k words swapped (paper 4, Table 6); one code a sentence."""
    model, count = subject.model, considered(subject)
    losses = np.empty((1 + len(SWAPS), count))
    for batch in batches(subject, "noisy reconstruction"):
        index = batch.index.cpu().numpy()
        for row, k in enumerate((0, *SWAPS)):
            read = swapped_sources(batch, k, subject.vocabulary, subject.seed) if k else batch
            z = draw(model.infer(read.source), model, batch.index, subject.seed, "noisy reconstruction")
            losses[row, index] = -model.token_log_prob(z, batch)[0].double().sum(-1).cpu().numpy()
    short = sum(len(text.split()) < 2 for text in texts(subject, subject.store, count))
    for row, k in enumerate(SWAPS, start=1):
        recorder.add_mean(
            f"noisy_reconstruction_k{k}",
            losses[row],
            "estimate",
            model.averaged_codes,
            swaps=k,
            without_swaps=float(losses[0].mean()),
            sentences_of_one_word=short,
        )
