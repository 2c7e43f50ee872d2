"""Figures that papers publish: `recipes/<paper>/table.toml`.

    title = "A Surprisingly Effective Fix for Deep Latent Variable Modeling of Text"

    [[rows]]
    name = "pre-trained encoder, λ = 4"       # as a table shows it
    split = "PTB test"                        # the text that the figures are of
    source = "Table 1"                        # where they stand
    kind = "upper_bound"                      # of its likelihoods; or a table, { iw_nll = "upper_bound", … }
    figures = { iw_nll = 100.08, rate = 4.99 }   # by zentence's names of metrics, in their units
    tolerance = { iw_nll = 1.0 }              # how far a reproduction may be off; or one number for all
    conflict = "Table 10 prints another value"   # where a paper contradicts itself or another
    recipe = "fix-4"                          # the recipe beside it that reproduces the row
    corpus = "ptb"                            # of a recipe for several corpora: the one that the figures are of

    [[checks]]                                # relations that must come out, between recipes
    text = "the fix beats the language model"
    all = ["fix-4.iw_nll < lm.nll"]           # see zentence.reproduce.checks

All but name, figures, split and source may be left out. Figures other than likelihoods are estimates. No figure of a
paper is ever ranked against a run's: the texts differ at least in who prepared them.
"""

from importlib import resources
from pathlib import Path

from pydantic import Field, field_validator

from zentence.errors import ZentenceError, suggestion
from zentence.evaluation.measurement import Kind
from zentence.evaluation.metrics import METRICS
from zentence.parts import Options, parse_options
from zentence.settings import parse_toml

LIKELIHOODS = (  # figures of −log p(x), whose kind decides what they may be compared with
    *("source_nll", "nll", "elbo_nll", "iw_nll", "melbo_nll", "aggregate_prior_nll", "mixture_prior_nll"),
    *("ppl", "ppl_without_eos", "bits_per_byte"),
)

TASK_FIGURES = tuple(f"accuracy_{labels}" for labels in (0, 100, 500, 1000, 2000, 10_000))
"""Figures of tasks: per cent of sentences whose label a classifier finds from so many labelled codes (paper 4)."""


class PaperRow(Options):
    """One row of a published table."""

    name: str = Field(description="As a table shows it.")
    figures: dict[str, float] = Field(min_length=1, description="Values by metric.")
    split: str = Field(description="The text that the figures are of.")
    source: str = Field(description="Where in the paper they stand.")
    kind: Kind | dict[str, Kind] = Field("estimate", description="Kind of its likelihoods, or of each metric.")
    tolerance: float | dict[str, float] | None = Field(
        None, description="Largest absolute deviation of a reproduction."
    )
    conflict: str | None = Field(None, description="What contradicts the figures.")
    recipe: str | None = Field(None, description="The recipe beside the table that reproduces the row.")
    corpus: str | None = Field(None, description="The corpus of the figures, where a recipe is for several.")

    @field_validator("figures")
    @classmethod
    def _known(cls, figures: dict[str, float]) -> dict[str, float]:
        for name in figures:
            if name not in METRICS and name not in TASK_FIGURES:
                raise ValueError(f"unknown metric '{name}'.{suggestion(name, METRICS)}".rstrip("."))
        return figures

    def kind_of(self, metric: str) -> Kind:
        """Return the kind of one of its figures."""
        if isinstance(self.kind, dict):
            return self.kind.get(metric, "estimate")
        return self.kind if metric in LIKELIHOODS else "estimate"

    def tolerance_of(self, metric: str) -> float | None:
        """Return how far a reproduction of a figure may be off; None if the table does not say."""
        return self.tolerance.get(metric) if isinstance(self.tolerance, dict) else self.tolerance


class PaperCheck(Options):
    """What must come out, whatever the digits."""

    text: str = Field(description="The claim in words.")
    all: tuple[str, ...] = Field(min_length=1, description="Relations that must all hold.")


class PaperTable(Options):
    """A paper's published figures."""

    title: str = Field("", description="Title of the paper.")
    rows: tuple[PaperRow, ...] = Field(min_length=1, description="Rows, in the paper's order.")
    checks: tuple[PaperCheck, ...] = Field((), description="Directions that must come out.")


def paper_names() -> list[str]:
    """Return the papers whose figures are in the package."""
    folder = resources.files("zentence") / "recipes"
    return sorted(entry.name for entry in folder.iterdir() if (entry / "table.toml").is_file())


def read_paper(name: str) -> PaperTable:
    """Read a paper's figures by its name, or from a TOML file of the same form."""
    known = paper_names()
    if name in known:
        text = (resources.files("zentence") / "recipes" / name / "table.toml").read_text(encoding="utf-8")
    elif Path(name).is_file():
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ZentenceError(f"Cannot read {name}: {error}") from error
    else:
        listed = f"Known: {', '.join(known)}" if known else "None is in this version"
        raise ZentenceError(f"Unknown paper '{name}'. {listed}; or give a TOML file of figures")
    try:
        table: PaperTable = parse_options("", PaperTable, parse_toml(name, text))
    except ZentenceError as error:
        raise ZentenceError(f"{name}: {error}") from None
    return table
