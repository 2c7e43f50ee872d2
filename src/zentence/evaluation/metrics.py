"""Every metric by its name: unit, direction, version, and the group of figures that it is computed with."""

from typing import Literal, NamedTuple

Direction = Literal["lower", "higher", "none"]

NATS = "nats per sentence"


class Metric(NamedTuple):
    """What a figure of this name is. The version changes whenever its value on the same model would."""

    unit: str
    direction: Direction  # which is better; "none": neither
    group: str
    meaning: str
    version: int = 1


def _reconstruction_metrics() -> dict[str, Metric]:
    """Return the comparisons of sentences with what is written from their codes, in four ways."""
    ways = {
        "": "greedy words from the mean",
        "_from_sample": "greedy words from a sample of the code",
        "_sampled_words": "sampled words from the mean",
        "_from_sample_sampled_words": "sampled words from a sample of the code",
    }
    found = {}
    for suffix, way in ways.items():
        for name, unit, meaning in (
            ("bleu4", "BLEU, 0 to 100", "corpus BLEU-4 of reconstructions"),
            ("bleu1", "BLEU, 0 to 100", "corpus BLEU-1 of reconstructions"),
            ("bleu1_sentence_mean", "BLEU, 0 to 1", "mean of NLTK's sentence BLEU-1 (paper 1)"),
            ("exact_match", "share", "sentences that come back unchanged"),
            ("word_accuracy", "share", "words that come back at their place"),
        ):
            found[name + suffix] = Metric(unit, "higher", "reconstruction", f"{meaning}; {way}")
    return found


METRICS: dict[str, Metric] = {
    "source_nll": Metric(NATS, "none", "source", "−log p under the text's true source, where it is known"),
    "nll": Metric(NATS, "lower", "likelihood", "−log p(x) of a language model"),
    "iw_nll": Metric(NATS, "lower", "likelihood", "importance-weighted bound of −log p(x) from K codes a sentence"),
    "elbo_nll": Metric(NATS, "lower", "likelihood", "distortion + rate"),
    "ppl": Metric("per word and <eos>", "lower", "likelihood", "perplexity of nll or iw_nll"),
    "ppl_without_eos": Metric(
        "per word", "lower", "likelihood", "perplexity without <eos> in both nats and count; with a code: of distortion"
    ),
    "ppl_per_bpe_with_bos_eos": Metric(
        "per sub-word, <bos> and <eos>", "lower", "likelihood", "perplexity of nll or iw_nll, counted as paper 5 does"
    ),
    "ppl_per_bpe_without_bos_eos": Metric(
        "per sub-word", "lower", "likelihood", "perplexity of nll or iw_nll; <eos> is paid for but not counted"
    ),
    "bits_per_byte": Metric("bits per byte", "lower", "likelihood", "nll or iw_nll over the split's UTF-8 bytes"),
    "distortion": Metric(NATS, "lower", "likelihood", "−E_q log p(x|z): what the words cost once the code is known"),
    "rate": Metric(NATS, "none", "likelihood", "KL(q(z|x)‖p(z)): what a code costs"),
    "mutual_information": Metric("nats", "higher", "information", "what codes tell about sentences"),
    "marginal_kl": Metric("nats", "lower", "information", "KL(q(z)‖p(z)) = rate − mutual information"),
    "active_units": Metric("units", "higher", "information", "dimensions whose mean varies with the sentence"),
    "shuffled_code_gap": Metric(
        NATS, "higher", "information", "distortion with another sentence's code, minus distortion: is the code used?"
    ),
    "code_entropy": Metric("nats", "none", "information", "entropy of codes from nearest neighbours"),
    "melbo_nll": Metric(NATS, "lower", "melbo", "−E_q log p(x|z) + log N of the N evaluated sentences (paper 1)"),
    "aggregate_prior_nll": Metric(
        NATS, "lower", "prior", "iw_nll under the aggregate posterior of training sentences as prior"
    ),
    "mixture_prior_nll": Metric(NATS, "lower", "prior", "iw_nll under a mixture fitted to training codes as prior"),
    **_reconstruction_metrics(),
    "accuracy_gap": Metric(
        "percentage points", "higher", "reconstruction", "next-word accuracy with posterior minus with prior codes"
    ),
    **{
        f"noisy_reconstruction_k{k}": Metric(
            NATS, "lower", "reconstruction", f"−log p(x|z), z of the sentence with {k} random word swaps"
        )
        for k in (1, 2, 3, 4)
    },
    "smoothness": Metric(
        "correlation", "higher", "geometry", "distance of codes against word edit distance of sentences, Pearson"
    ),
    "interpolation_smoothness": Metric(
        "0 to 1", "higher", "geometry", "word edit distance of a line's ends over that of its steps together"
    ),
    "log_likelihood_pairs": Metric("nats", "none", "geometry", "log p(x_i|z_i) minus log p(x_i|z_j), mean"),
    "log_posterior_pairs": Metric("nats", "none", "geometry", "log q(z_i|x_i) minus log q(z_i|x_j), mean"),
    "copying_distance": Metric("words", "none", "samples", "word edits from a sample to the nearest training sentence"),
    "exact_copies": Metric("share", "none", "samples", "samples that are training sentences"),
    "distinct_samples": Metric("share", "higher", "samples", "different sentences among samples"),
    "self_bleu": Metric("BLEU, 0 to 100", "lower", "samples", "BLEU-4 of a sample against all others, mean"),
    "distinct_1": Metric("share", "higher", "samples", "different words over all words of samples"),
    "distinct_2": Metric("share", "higher", "samples", "different pairs of words over all pairs in samples"),
    "forward_ppl": Metric("per word and <eos>", "lower", "samples", "perplexity of samples under a reference model"),
    "reverse_ppl": Metric(
        "per word and <eos>", "lower", "samples", "perplexity of the split under an n-gram model learnt from samples"
    ),
}
