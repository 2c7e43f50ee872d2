"""What a model writes when it is free: whether it copies, repeats itself, and could stand in for its training text."""

import math
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from zentence.corpora import TokenStore, collate
from zentence.decoders.generation import Generation, generate
from zentence.evaluation.kneser_ney import KneserNey
from zentence.evaluation.likelihood import exact_nll
from zentence.evaluation.measurement import ratio_and_error
from zentence.evaluation.passes import ROWS, considered, draw, most_words, texts
from zentence.evaluation.recorder import Recorder
from zentence.evaluation.subject import Subject
from zentence.evaluation.text import distinct, nearest, self_bleu, why_not
from zentence.model import LatentLM
from zentence.noise import derive_key

SAMPLES = 1000  # greedy, for variety
COPIES = 300  # of them, compared with the training text (paper 4, appendix B)
WRITTEN = 10_000  # with sampled words: draws from p(x), for the perplexities of samples
ORDER = 3  # of the n-gram model that learns from samples

VARIETY = ("distinct_samples", "self_bleu", "distinct_1", "distinct_2")
COPYING = ("copying_distance", "exact_copies")


def sampling(subject: Subject, recorder: Recorder) -> None:
    """Record variety and copying of samples, and their perplexities forward and in reverse.

    Codes come from the prior. Words are greedy, so that all variety is the code's (paper 2), but for perplexities,
    which are of p(x) and need sampled words. A language model always samples words.
    """
    if subject.wants(*VARIETY, *COPYING):
        method = "greedy" if subject.model.has_code else "sample"
        samples = [subject.vocabulary.decode(row) for row in draw_samples(subject, SAMPLES, method)]
        _variety(recorder, samples, method)
        _copying(subject, recorder, samples, method)
    if subject.reference is None or subject.reference.has_code:
        recorder.refuse("forward_ppl", "needs a language model of the same vocabulary as judge: give --reference MODEL")
    if subject.wants("reverse_ppl") or (subject.wants("forward_ppl") and "forward_ppl" not in recorder.unavailable):
        _perplexities(subject, recorder)


@torch.no_grad()
def draw_samples(subject: Subject, count: int, method: str) -> list[list[int]]:
    """Return the ids of new sentences; sample i is the same whatever the count and the batches."""
    model, written = subject.model, []
    prior = model.prior_density() if model.has_code else None
    options = Generation(
        method="greedy" if method == "greedy" else "sample",
        max_words=most_words(subject),
        seed=derive_key(subject.seed, "samples, words"),
    )
    for first in range(0, count, ROWS):
        index = torch.arange(first, min(first + ROWS, count), device=subject.device)
        z = None if prior is None else draw(prior, model, index, subject.seed, "samples")
        written += generate(model.decoder, z, len(index), options, index)
        subject.progress("samples" if method == "greedy" else "samples with sampled words", len(written), count)
    return written


def _variety(recorder: Recorder, samples: list[str], method: str) -> None:
    count = len(samples)
    recorder.add("distinct_samples", len(set(samples)) / count, "estimate", count, method=method)
    if missing := why_not("sacrebleu"):
        recorder.refuse("self_bleu", missing)
    else:
        recorder.add_mean("self_bleu", self_bleu(samples), "estimate", method=method, order=4)
    for n in (1, 2):
        recorder.add(f"distinct_{n}", distinct(samples, n), "estimate", count, method=method)


def _copying(subject: Subject, recorder: Recorder, samples: list[str], method: str) -> None:
    if subject.training is None or len(subject.training) == 0:
        for name in COPYING:
            recorder.refuse(name, "the training text is not at hand")
        return
    training = subject.training
    if subject.wants("exact_copies"):
        known = set(samples)
        seen = {text for text in _reported(subject, training, "exact copies") if text in known}
        copies = np.array([sample in seen for sample in samples])
        recorder.add_mean("exact_copies", copies, "estimate", method=method, training_sentences=len(training))
    if missing := why_not("rapidfuzz"):
        recorder.refuse("copying_distance", missing)
    elif subject.wants("copying_distance"):
        found = nearest(samples[:COPIES], _reported(subject, training, "nearest training sentences"))
        recorder.add_mean(
            "copying_distance",
            found.distance,
            "estimate",
            method=method,
            ter=float(found.ter.mean()),
            ter_error=float(found.ter.std(ddof=1) / math.sqrt(len(found.ter))) if len(found.ter) > 1 else None,
            shifts=False,
            training_sentences=len(training),
        )


def _reported(subject: Subject, store: TokenStore, what: str) -> Iterator[str]:
    for number, text in enumerate(texts(subject, store), start=1):
        yield text
        if number % 4096 == 0 or number == len(store):
            subject.progress(what, number, len(store))


def _perplexities(subject: Subject, recorder: Recorder) -> None:
    known = WRITTEN if subject.training is None else max(SAMPLES, len(subject.training))
    samples = draw_samples(subject, min(WRITTEN, known), "sample")  # more than the model has read would tell no more
    cut = sum(len(row) == most_words(subject) for row in samples)  # they have no <eos> of their own
    if subject.reference is not None and not subject.reference.has_code and subject.wants("forward_ppl"):
        nats, words = reference_nats(subject, subject.reference, samples)
        value, error, eos = *_perplexity(nats, words), len(samples)
        recorder.add(
            "forward_ppl", value, "estimate", eos, error, method="sample", words=int(words.sum()), eos=eos, cut=cut
        )
    if subject.wants("reverse_ppl"):
        _reverse(subject, recorder, samples, cut)


def _reverse(subject: Subject, recorder: Recorder, samples: list[list[int]], cut: int) -> None:
    """Perplexity of the split under an n-gram model learnt from samples; beside it, learnt from as much real text."""
    count = considered(subject)
    split = [subject.store.sentence(number) for number in range(count)]
    words = np.array([len(text.split()) for text in texts(subject, subject.store, count)])

    def learnt_from(sentences: Iterable[Iterable[int]]) -> tuple[float, float | None]:
        model = KneserNey(sentences, len(subject.vocabulary), ORDER)
        return _perplexity(np.array([model.nats(sentence) for sentence in split]), words)

    value, error = learnt_from(samples)
    real = None
    if subject.training is not None and len(subject.training) > 0:
        random = np.random.default_rng(derive_key(subject.seed, "real sentences"))
        size = min(len(samples), len(subject.training))
        chosen = random.choice(len(subject.training), size, replace=False)
        real = {"ppl": learnt_from([subject.training.sentence(int(i)) for i in chosen])[0], "sentences": size}
    recorder.add(
        "reverse_ppl",
        value,
        "estimate",
        count,
        error,
        method="sample",
        model=f"interpolated Kneser-Ney, order {ORDER}",
        sentences=len(samples),
        words=sum(len(row) for row in samples),
        cut=cut,
        from_training_text=real,
    )


@torch.no_grad()
def reference_nats(
    subject: Subject, reference: LatentLM, samples: list[list[int]]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return −log p under a language model, and the words, of each sample [N]."""
    nats = np.empty(len(samples))
    order = np.argsort([len(row) for row in samples], kind="stable")
    device = next(reference.parameters()).device
    for first in range(0, len(order), ROWS):
        chosen = order[first : first + ROWS]
        batch = collate([np.array(samples[i], dtype=np.int64) for i in chosen], chosen).to(device)
        nats[chosen] = exact_nll(reference, batch).cpu().numpy()
        subject.progress("forward perplexity", min(first + ROWS, len(order)), len(order))
    return nats, np.array([len(subject.vocabulary.decode(row).split()) for row in samples])


def _perplexity(nats: NDArray[np.float64], words: NDArray[np.int64]) -> tuple[float, float | None]:
    """Return exp(nats / (words + one `<eos>` each)), and its standard error by the delta method."""
    per_word, error = ratio_and_error(nats, words + 1)
    return math.exp(per_word), None if error is None else math.exp(per_word) * error
