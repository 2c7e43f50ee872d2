"""A paper's rows: their recipes, variants, published figures, and about how long they take."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from zentence.build import complete
from zentence.errors import ZentenceError, suggestion
from zentence.evaluation.metrics import METRICS
from zentence.evaluation.papers import PaperRow, PaperTable, paper_names, read_paper
from zentence.evaluation.suite import AFTER_TRAINING, check_metrics
from zentence.reproduce.data import CORPORA, check_corpora
from zentence.settings import Settings, apply_variant, override, paper_recipe_names, resolve_recipe, settings_from
from zentence.training.updates import complete_updates

TASKS = ("classify",)
# for PTB's shapes on two cores, where the processor is made for bfloat16; other shapes differ
TOKENS_A_SECOND = {"float32": 3500.0, "bfloat16": 7000.0, "auto": 7000.0}
SAMPLED = 1.6  # times that, where the softmax of training is of a sample of the words


@dataclass(frozen=True)
class Row:
    """One recipe of a paper."""

    paper: str
    name: str
    corpora: tuple[str, ...]
    content: dict[str, Any]  # of the recipe, resolved
    published: tuple[PaperRow, ...]

    @property
    def variants(self) -> tuple[str, ...]:
        """`faithful` and the variants that the recipe has."""
        return "faithful", *self.content.get("variants", {})

    @property
    def tasks(self) -> tuple[str, ...]:
        """What is measured beyond the metrics."""
        return tuple(self.content.get("tasks", ()))

    @property
    def title(self) -> str:
        """What the paper calls it, or the recipe's name."""
        return self.published[0].name if self.published else self.name

    def metrics(self) -> list[str]:
        """Return the metrics to measure: the usual ones, the recipe's, and those that the paper prints."""
        printed = [name for entry in self.published for name in entry.figures if name in METRICS]
        return check_metrics([*AFTER_TRAINING, *self.content.get("metrics", ()), *printed])

    def settings(self, variant: str, changes: Sequence[str] = ()) -> Settings:
        """Return the complete settings of a variant."""
        plain = apply_variant(f"{self.paper}/{self.name}", self.content, variant)
        return complete_updates(complete(settings_from(override(plain, changes))))

    def minutes(self, variant: str) -> float:
        """Estimate the time of training on two cores: tokens, times codes a sentence, over a measured speed.

        A recipe that stops when nothing improves takes less; wider models, and the search of `aggressive`, more.
        """
        settings = self.settings(variant)
        epoch = sum(CORPORA[key].tokens for key in self.corpora)
        total = 0.0
        for stage in settings.stages:
            tokens = min(stage.epochs * epoch, stage.max_tokens or float("inf"))
            codes = int(stage.objective.options.get("num_codes", 1))
            total += tokens * codes * (1.0 + 0.35 * (settings.averaged_codes - 1))  # averaged: one output layer for all
        sampled = settings.decoder.options.get("training_words", "none") != "none"
        return total / TOKENS_A_SECOND[settings.training.precision] / (SAMPLED if sampled else 1.0) / 60.0


def check_paper(name: str) -> str:
    """Return a paper's name; an unknown one is refused."""
    known = papers()
    if name not in known:
        raise ZentenceError(f"Unknown paper '{name}'.{suggestion(name, known)}")
    return name


def papers() -> list[str]:
    """Return the papers that have recipes."""
    with_recipes = {name.partition("/")[0] for name in paper_recipe_names()}
    return [name for name in paper_names() if name in with_recipes]


def table_of(paper: str) -> PaperTable:
    """Return what a paper prints."""
    return read_paper(check_paper(paper))


def deviations(paper: str) -> str:
    """Return the paper's README: what differs from it, and why."""
    return (resources.files("zentence") / "recipes" / paper / "README.md").read_text(encoding="utf-8")


def rows_of(paper: str, names: Sequence[str] | None = None) -> list[Row]:
    """Return a paper's rows in the order of its tables, then those without a printed figure; or only some of them."""
    table = table_of(paper)
    known = [name.partition("/")[2] for name in paper_recipe_names() if name.startswith(f"{paper}/")]
    printed = dict.fromkeys(entry.recipe for entry in table.rows if entry.recipe)
    ordered = [name for name in printed if name in known] + [name for name in known if name not in printed]
    for name in names or ():
        if name not in known:
            raise ZentenceError(f"{paper} has no row '{name}'.{suggestion(name, known)}")
    return [_row(paper, name, table) for name in ordered if names is None or name in names]


def _row(paper: str, name: str, table: PaperTable) -> Row:
    content = resolve_recipe(f"{paper}/{name}")
    given = content.get("data", ())
    corpora = (given,) if isinstance(given, str) else tuple(given)
    check_corpora(f"{paper}/{name}", corpora)
    for task in content.get("tasks", ()):
        if task not in TASKS:
            raise ZentenceError(f"{paper}/{name}: unknown task '{task}'.{suggestion(task, TASKS)}")
    return Row(paper, name, corpora, content, tuple(entry for entry in table.rows if entry.recipe == name))
