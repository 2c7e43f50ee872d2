"""Priors made of training sentences, for the commands that take one in place of a model's own."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from zentence.errors import ZentenceError, suggestion

if TYPE_CHECKING:
    from zentence.corpora import TokenStore
    from zentence.latent.space import LatentSpace

KINDS = ("aggregate", "mixture")

Prior = Annotated[
    str | None,
    typer.Option("--prior", metavar="|".join(KINDS), help="A prior made of training sentences; default: the model's."),
]
PriorSentences = Annotated[int, typer.Option("--prior-sentences", min=1, help="Training sentences of such a prior.")]
Components = Annotated[int, typer.Option("--components", min=1, help="Gaussians of a mixture of training codes.")]


def check_prior(kind: str | None) -> None:
    """Raise if a prior has a name that nobody knows; a second's work less than reading the model first."""
    if kind is not None and kind not in KINDS:
        raise ZentenceError(f"Unknown prior '{kind}'.{suggestion(kind, KINDS)}")


def training_corpus(space: "LatentSpace", instead: str) -> Any:
    """Return the text that a model was trained on, as its settings name it, or say what to do instead."""
    from zentence.corpora.prepare import prepare
    from zentence.corpora.readers import is_stream
    from zentence.training.progress import phase_bar

    files = space.settings.corpus
    if not files.train or any(is_stream(file) for file in (*files.train, *files.valid, *files.test)):
        raise ZentenceError(f"This model's training text is not in a file: {instead}")
    with phase_bar() as progress:
        return prepare(
            files,
            files.train,
            files.valid,
            files.test,
            vocabulary=space.vocabulary,
            progress=lambda done, total: progress("reading", done, total),
        )


def swap(space: "LatentSpace", kind: str, training: "TokenStore", *, sentences: int, components: int, seed: int) -> str:
    """Put a prior of training sentences in the place of the model's own; return what it is in words."""
    from zentence.evaluation.priors import swap_prior
    from zentence.training.progress import phase_bar

    with phase_bar() as progress:
        swap_prior(
            space.model,
            kind,
            training,
            sentences=sentences,
            components=components,
            seed=seed,
            progress=lambda done, total: progress("training codes", done, total),
        )
    return f"{kind} of {min(sentences, len(training)):,} training sentences"
