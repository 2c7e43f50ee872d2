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


METRICS: dict[str, Metric] = {
    "source_nll": Metric(NATS, "none", "source", "−log p under the text's true source, where it is known"),
    "nll": Metric(NATS, "lower", "likelihood", "−log p(x) of a language model"),
    "elbo_nll": Metric(NATS, "lower", "likelihood", "distortion + rate"),
    "iw_nll": Metric(NATS, "lower", "likelihood", "importance-weighted bound of −log p(x) from K codes a sentence"),
    "ppl": Metric("per word and <eos>", "lower", "likelihood", "perplexity of nll or iw_nll"),
    "distortion": Metric(NATS, "lower", "likelihood", "−E_q log p(x|z): what the words cost once the code is known"),
    "rate": Metric(NATS, "none", "likelihood", "KL(q(z|x)‖p(z)): what a code costs"),
    "mutual_information": Metric("nats", "higher", "information", "what codes tell about sentences"),
    "active_units": Metric("units", "higher", "information", "dimensions whose mean varies with the sentence"),
}
