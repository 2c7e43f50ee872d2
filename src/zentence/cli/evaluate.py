"""`zentence evaluate`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zentence.cli.output import (
    Device,
    Json,
    Seed,
    Threads,
    load_space,
    measurement_lines,
    metric_lines,
    print_json,
    print_lines,
    warn,
)
from zentence.cli.priors import Components, Prior, PriorSentences, check_prior, swap, training_corpus
from zentence.errors import ZentenceError

if TYPE_CHECKING:
    from zentence.corpora import TokenStore
    from zentence.evaluation.journal import Journal
    from zentence.evaluation.policy import SamplePolicy
    from zentence.evaluation.recorder import Recorder
    from zentence.evaluation.subject import Subject
    from zentence.latent.space import LatentSpace
    from zentence.model import LatentLM


def evaluate(
    model: Annotated[Path | None, typer.Argument(help="Model directory.", show_default=False)] = None,
    split: Annotated[
        Path | None,
        typer.Option("--split", help="A text file; default: the validation text of its training."),
    ] = None,
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="A,B", help="Only these metrics; default: all.")
    ] = None,
    samples: Annotated[
        str,
        typer.Option("--samples", metavar="auto|K", help="Importance samples a sentence; auto: as many as it needs."),
    ] = "auto",
    tolerance: Annotated[
        float,
        typer.Option("--tolerance", min=0.01, help="auto: standard error of a sentence's iw_nll to aim at, nats."),
    ] = 0.25,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N sentences.")] = None,
    prior: Prior = None,
    prior_sentences: PriorSentences = 2000,
    components: Components = 100,
    autoencoder: Annotated[
        Path | None, typer.Option("--autoencoder", help="A model directory whose MELBO stands beside melbo_nll.")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option("--reference", help="A language model's directory, for forward_ppl.")
    ] = None,
    rival_nll: Annotated[
        float | None, typer.Option("--rival-nll", help="Nats per sentence: how many sentences till melbo_nll meets it?")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List all metrics and leave.")] = False,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Measure a model on any text; figures are added to its results.json.

    An interrupted evaluation goes on where it stopped when the same command is given again. --json: a list of figures.
    """
    from zentence.evaluation.metrics import METRICS

    if list_:
        if json:
            print_json([{"name": name, **metric._asdict()} for name, metric in METRICS.items()])
        else:
            print_lines(metric_lines())
        return
    if model is None:
        raise ZentenceError("Give a model directory, or --list")
    chosen, policy = _metrics(metrics), _policy(samples, tolerance)
    check_prior(prior)
    space = load_space(model, device, threads)
    subject = _subject(space, model, split, limit, seed, policy, chosen, prior is not None)
    subject.prior_sentences, subject.prior_components, subject.rival_nll = prior_sentences, components, rival_nll
    beside = {"autoencoder": autoencoder, "reference": reference}
    subject.autoencoder = _beside(space, autoencoder, device, with_code=True)
    subject.reference = _beside(space, reference, device, with_code=False)
    if prior is not None:
        assert subject.training is not None
        subject.prior = swap(
            space, prior, subject.training, sentences=prior_sentences, components=components, seed=seed
        )
        subject.split = f"{subject.split} ({prior} prior)"
    subject.journal = _journal(model, subject, chosen, prior, beside)
    found = _compute(subject, chosen)
    if not found.measurements:
        raise ZentenceError("; ".join(f"{name}: {why}" for name, why in found.unavailable.items()))
    _keep(model, subject, found)
    if json:
        for line in _refusals(found):
            warn(line)
        print_json([m.__dict__ for m in found.measurements])
    else:
        print_lines(_report(subject, found))


def _metrics(given: str | None) -> list[str] | None:
    from zentence.evaluation.suite import check_metrics

    return None if given is None else check_metrics(name for name in given.replace(" ", "").split(",") if name)


def _policy(samples: str, tolerance: float) -> "SamplePolicy":
    from zentence.evaluation.policy import SamplePolicy

    if samples == "auto":
        return SamplePolicy(None, tolerance)
    if not samples.isdigit() or int(samples) < 1:
        raise ZentenceError(f"--samples {samples}: give auto or a number of at least 1")
    return SamplePolicy(int(samples), tolerance)


def _subject(
    space: "LatentSpace",
    folder: Path,
    split: Path | None,
    limit: int | None,
    seed: int,
    policy: "SamplePolicy",
    chosen: Sequence[str] | None,
    swaps_prior: bool,
) -> "Subject":
    """Find the split's text and, where a metric needs it, the training text."""
    from zentence.corpora.prepare import open_split
    from zentence.corpora.source import Origin, source_nll
    from zentence.evaluation.metrics import METRICS
    from zentence.evaluation.subject import Subject

    needs_training = swaps_prior or any(
        METRICS[name].group in ("prior", "samples") for name in (METRICS if chosen is None else chosen)
    )
    training = None
    if split is None:
        corpus = training_corpus(space, "give a file with --split")
        store, name, source = corpus.splits["valid"], "valid", corpus.source_nll("valid", limit)
        training = corpus.splits["train"]
    else:
        from zentence.training.progress import phase_bar

        with phase_bar() as progress:
            store = open_split(
                split, space.vocabulary, space.settings.corpus, progress=lambda d, t: progress("reading", d, t)
            )
        name, source = split.name, source_nll([Origin(split, store.labels is not None)], limit)
        if needs_training:
            try:
                instead = "leave --prior out" if swaps_prior else "these are left out"
                training = training_corpus(space, instead).splits["train"]
            except ZentenceError as error:
                if swaps_prior:
                    raise
                warn(f"some metrics need the training text: {error}")
    ledger = store.ledger
    if not len(store):
        raise ZentenceError(f"{split} has no sentence to evaluate on")
    if ledger.unknown > 0.1 * ledger.tokens:
        warn(f"{ledger.unknown:,} of {ledger.tokens:,} words of {name} were never seen in training")
    return Subject(
        space.model,
        store,
        space.vocabulary,
        space.settings,
        _own_name(folder, name, store),
        seed,
        limit,
        policy,
        training=training,
        source_nll=source,
    )


def _own_name(folder: Path, name: str, store: "TokenStore") -> str:
    """Return the split's name, with a part of its content's hash where another text has figures under that name."""
    from zentence.evaluation.measurement import read_results

    path = folder / "results.json"
    for m in read_results(path) if path.exists() else ():
        if m.split == name and m.provenance.get("store", store.folder.name) != store.folder.name:
            return f"{name}-{store.folder.name[:8]}"
    return name


def _beside(space: "LatentSpace", folder: Path | None, device: str, *, with_code: bool) -> "LatentLM | None":
    """Load a model that stands beside the evaluated one; it must read the same words."""
    if folder is None:
        return None
    other = load_space(folder, device)
    if other.model.has_code != with_code:
        raise ZentenceError(f"{folder} is {'a language model' if with_code else 'no language model'}: give another")
    if other.vocabulary.hash != space.vocabulary.hash:
        raise ZentenceError(f"{folder} has another tokeniser than the evaluated model: train it on the same text")
    return other.model


def _journal(
    folder: Path, subject: "Subject", chosen: Sequence[str] | None, prior: str | None, beside: dict[str, Path | None]
) -> "Journal":
    from zentence.evaluation.journal import Journal, journal_key
    from zentence.evaluation.metrics import METRICS
    from zentence.evaluation.suite import provenance_of
    from zentence.files import checksum

    weights = {"model": folder, **{name: path for name, path in beside.items() if path is not None}}
    key = journal_key(
        weights={name: checksum(path / "model.safetensors") for name, path in weights.items()},
        provenance=provenance_of(subject),
        split=subject.split,
        seed=subject.seed,
        metrics={name: METRICS[name].version for name in (METRICS if chosen is None else chosen)},
        priors=[prior, subject.prior_sentences, subject.prior_components],
        training=None if subject.training is None else subject.training.folder.name,
        rival=subject.rival_nll,
    )
    journal = Journal(folder, key, warn)
    if journal.folder is not None and journal.folder.is_dir():
        _note("going on with an interrupted evaluation")
    return journal


def _note(message: str) -> None:
    typer.echo(message, err=True)


def _compute(subject: "Subject", chosen: Sequence[str] | None) -> "Recorder":
    from zentence.evaluation.suite import evaluate_subject
    from zentence.training.progress import phase_bar

    with phase_bar() as progress:
        subject.progress = progress
        return evaluate_subject(subject, chosen)


def _keep(folder: Path, subject: "Subject", found: "Recorder") -> None:
    """Write figures and per-sentence figures; the journal has then done its work."""
    from zentence.evaluation.measurement import write_results
    from zentence.evaluation.metrics import METRICS
    from zentence.evaluation.sentences import write_sentences

    if any(METRICS[m.name].group in ("likelihood", "melbo", "prior") for m in found.measurements):
        write_sentences(folder, subject.split, subject.figures(), subject.store.folder.name, subject.seed)
    write_results(folder / "results.json", found.measurements)
    subject.journal.remove()


def _refusals(found: "Recorder") -> list[str]:
    """Return a line for each reason, with the metrics that are not available for it."""
    reasons: dict[str, list[str]] = {}
    for name, why in found.unavailable.items():
        reasons.setdefault(why, []).append(name)
    return [f"not available: {', '.join(names)} ({why})" for why, names in reasons.items()]


def _report(subject: "Subject", found: "Recorder") -> list[str]:
    from zentence.evaluation.verdict import verdict

    judged = verdict(found.measurements)
    words = [judged.text] if judged.state not in ("unknown", "no code") else []
    return [
        *subject.store.ledger.describe().splitlines(),
        *measurement_lines(found.measurements),
        *_refusals(found),
        *words,
    ]
