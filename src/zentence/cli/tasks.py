"""`zentence classify`, `zentence rank` and `zentence answer`: what a trained space is good for."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zentence.cli.output import (
    Device,
    Json,
    Model,
    Seed,
    Threads,
    check_words,
    load_space,
    print_json,
    print_lines,
    warn,
)
from zentence.errors import ZentenceError

if TYPE_CHECKING:
    from zentence.tasks.classify import Accuracy, Classification
    from zentence.tasks.rank_answers import Ranking

PICTURES = (".png", ".svg", ".pdf")
SCORES = {
    "paper": "distance, in scales of q",
    "cosine": "cosine of codes",
    "log_q": "log q(z | no answer)",
    "tfidf": "TF-IDF of words",
}


def classify(
    model: Model,
    train: Annotated[Path, typer.Option("--train", help="Labelled sentences to learn from: label<TAB>sentence.")],
    test: Annotated[Path, typer.Option("--test", help="Labelled sentences to be tested on.")],
    labels: Annotated[
        str, typer.Option("--labels", help="How many labels, as in 0,100,1k; with 0, codes are clustered.")
    ] = "100,500,1000",
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Runs, each with labels of its own.")] = 10,
    per_class: Annotated[bool, typer.Option("--per-class", help="--labels counts those of each class.")] = False,
    classifier: Annotated[
        str,
        typer.Option(
            "--classifier",
            help="linear; raw (linear, codes not standardised); mlp; gmm (clusters named by labels); or several: a,b.",
        ),
    ] = "linear",
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the curve: a .png, .svg or .pdf file.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing picture.")] = False,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Classify sentences by their codes (posterior means, frozen) with few labels, several times over."""
    from zentence.tasks.classify import classify as run
    from zentence.tasks.classify import encode_study, plan_study, read_labelled
    from zentence.training.progress import progress_bar

    counts = read_counts(labels, "--labels")
    if plot is not None:
        check_picture(plot, overwrite)
    space = load_space(model, device, threads)
    texts, tests = read_labelled(train), read_labelled(test)
    check_words(space, tests.texts)
    study = plan_study(
        texts,
        tests,
        labels=counts,
        repeats=repeats,
        per_class=per_class,
        classifiers=classifier.split(","),
        seed=seed,
    )
    with progress_bar("encoding", study.sentences, unit="sentences") as update:
        codes = encode_study(space, study, update)
    with progress_bar("fitting classifiers", len(study.trials), unit="classifiers") as update:
        found = run(study, codes, update)
    if plot is not None:
        from zentence.tasks.curve import draw_curve

        draw_curve(found, plot)
    if json:
        print_json(found.to_dict())
    else:
        print_lines(_classification_lines(found))


def check_picture(path: Path, overwrite: bool) -> None:
    """Refuse a picture that could not be written, before anything is computed."""
    if path.suffix not in PICTURES:
        raise ZentenceError(f"--plot {path}: the name must end in {', '.join(PICTURES)}")
    if not path.parent.is_dir():
        raise ZentenceError(f"--plot {path}: there is no folder {path.parent}")
    if path.exists() and not overwrite:
        raise ZentenceError(f"{path} exists: choose another --plot, or pass --overwrite")


def read_counts(text: str, option: str) -> list[int]:
    """Read `0,100,1k`."""
    counts = []
    for word in text.split(","):
        number = word.strip().lower()
        factor = 1000 if number.endswith("k") else 1
        if not number.removesuffix("k").isdecimal():
            raise ZentenceError(f"{option} {text}: write numbers with commas between them, as in 0,100,1k")
        counts.append(factor * int(number.removesuffix("k")))
    return counts


def _classification_lines(found: "Classification") -> list[str]:
    majority, part = found.majority
    lines = [
        f"{len(found.classes)} classes, {found.sentences[0]:,} training and {found.sentences[1]:,} test sentences; "
        f"always '{majority}': {part:.1%}",
        f"{'labels a class' if found.per_class else 'labels':>14}  {'classifier':<10}  {'codes':<14}  TF-IDF of words",
    ]
    for (labels, name), accuracy in found.results.items():
        words = share(found.words[labels]) if labels in found.words else ""
        lines.append(f"{labels:>14,}  {name:<10}  {share(accuracy):<14}  {words}".rstrip())
    if any(labels == 0 for labels, _ in found.results):
        lines.append("With 0 labels, clusters are named by the best matching with the test labels.")
    return lines


def share(accuracy: "Accuracy") -> str:
    """Return a mean accuracy and its standard deviation, in percent."""
    figures = accuracy.to_dict()
    spread = f" ± {100 * figures['std']:.1f}" if figures["std"] is not None else ""
    return f"{100 * figures['mean']:.1f}{spread} %"


def rank(
    model: Model,
    file: Annotated[
        Path, typer.Option("--file", help="A table with tabs and the header question, answer, label (1: right).")
    ],
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Draws of the codes; figures are their means.")] = 1,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Answers encoded at once.")] = 64,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Rank answers to questions by how far each moves the question's code: P@1 and mean reciprocal rank."""
    from zentence.tasks.questions import read_candidates
    from zentence.tasks.rank_answers import rank_answers
    from zentence.training.progress import progress_bar

    candidates = read_candidates(file)
    space = load_space(model, device, threads)
    with progress_bar("ranking", len(candidates), unit="answers") as update:
        found = rank_answers(space, candidates, seed=seed, repeats=repeats, batch_size=batch, progress=update)
    if found.skipped:
        warn(f"{found.skipped:,} questions have no right answer (label 1) and were skipped")
    if json:
        print_json(found.to_dict())
    else:
        print_lines(_ranking_lines(found))


def _ranking_lines(found: "Ranking") -> list[str]:
    lines = [
        f"{found.questions:,} questions; {found.unknown_words:.1%} of the answers' words are unknown to the model",
        f"{'score':<26}{'P@1':>16}{'MRR':>16}",
    ]
    for name, title in SCORES.items():
        figures = found.scores[name]
        if figures is None:
            lines.append(f"{title:<26}{'not known for this posterior':>32}")
            continue
        first = f"{figures.p_at_1:.3f} ± {figures.p_at_1_error:.3f}"
        mean = f"{figures.mrr:.3f} ± {figures.mrr_error:.3f}"
        lines.append(f"{title:<26}{first:>16}{mean:>16}")
    return [*lines, f"{'a random order':<26}{found.chance.p_at_1:>8.3f}{'':8}{found.chance.mrr:>8.3f}"]


def answer(
    model: Model,
    question: Annotated[str, typer.Argument(help="A question.", show_default=False)],
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Write a short, a medium and a long answer to a question."""
    from zentence.tasks.answer import write_answers

    if not question.strip():
        raise ZentenceError("The question is empty: give at least one word")
    found = write_answers(load_space(model, device, threads), question, seed=seed)
    if json:
        print_json(found.to_dict())
        return
    for length, text in found.answers.items():
        print(f"{length:<8}{text or f'(no answer in {found.written[length][:60]!r})'}")
