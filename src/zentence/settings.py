"""Every setting, typed and described in one place; read from TOML and from `--set a.b=c`."""

import copy
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from zentence.errors import ZentenceError, suggestion
from zentence.parts import Options, Part, parse_options

NonNegative = Annotated[float, Field(ge=0.0)]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Average = Annotated[float, Field(ge=0.0, lt=1.0)]
RECIPE_KEYS = ("data", "metrics", "tasks", "variants")  # of a recipe, beside its settings: see `zentence reproduce`


class CorpusSettings(Options):
    """Which text, and how it becomes sentences and tokens."""

    train: tuple[str, ...] = Field((), description="Training files; several are joined.")
    valid: tuple[str, ...] = Field((), description="Validation files; none: a share of the training text.")
    test: tuple[str, ...] = Field((), description="Test files, kept for `zentence evaluate`.")
    labels: Literal["auto", "yes", "no"] = Field(
        "auto", description="Lines are `label<TAB>sentence`; auto: yes if each of the first lines has exactly one tab."
    )
    unknown_words: tuple[str, ...] = Field(
        ("<unk>", "_UNK", "[UNK]"), description="Words of the text that are read as the unknown word."
    )
    lower_case: Literal["auto", "yes", "no"] = Field(
        "auto", description="Lower-case all text; auto: yes if the training text has no capitals."
    )
    min_count: int = Field(1, ge=1, description="Words seen less often in training become the unknown word.")
    max_vocabulary: int = Field(
        50_000, ge=5, description="Largest number of vocabulary entries, special words included."
    )
    tokenizer: Literal["words", "bpe", "pretrained", "init_from"] = Field(
        "words",
        description="Tokens are words, or byte-level sub-words learnt from the training text; or those of the "
        "pre-trained weights (the decoder's, and the encoder's own), or of the model directory `init_from`.",
    )
    bpe_size: int = Field(
        8_000, ge=300, le=200_000, description="Largest number of entries of a vocabulary of sub-words."
    )
    max_words: int | None = Field(
        None, ge=1, description="Length limit of training sentences in words; none: no limit."
    )
    long_sentences: Literal["truncate", "drop"] = Field(
        "truncate", description="What happens to training sentences beyond the limit."
    )
    valid_share: float = Field(0.05, gt=0.0, lt=1.0, description="Share split off for validation if no file is given.")
    test_share: float = Field(0.05, ge=0.0, lt=1.0, description="Share split off for testing if no file is given.")


class PlateauSettings(Options):
    """Learning-rate decay when validation stops improving."""

    factor: float = Field(0.5, gt=0.0, lt=1.0, description="The learning rate is multiplied by this.")
    patience: int = Field(2, ge=1, description="Validations without improvement before a decay.")
    not_before_epoch: float = Field(0.0, ge=0.0, description="No decay before this epoch of the stage.")
    reload_best: bool = Field(True, description="Go back to the best weights at each decay.")
    stop_after: int = Field(5, ge=1, description="The stage ends after this many decays.")


class OptimizerSettings(Options):
    """How parameters move."""

    name: Literal["sgd", "adam", "adamw"] = Field("adamw", description="Optimiser.")
    learning_rate: float = Field(2e-3, gt=0.0, description="Base learning rate.")
    schedule: NonNegative | Part = Field(1.0, description="Factor of the learning rate: a number or a schedule.")
    momentum: float = Field(0.0, ge=0.0, lt=1.0, description="Momentum of SGD.")
    betas: tuple[Average, Average] = Field((0.9, 0.999), description="Adam's averaging constants.")
    weight_decay: float = Field(0.0, ge=0.0, description="Decoupled weight decay (AdamW).")
    l2: dict[str, NonNegative] = Field(
        {}, description="L2 penalty by part (encoder, posterior, prior, decoder): added to the gradient, not decoupled."
    )
    clip: float | None = Field(5.0, gt=0.0, description="Largest norm of the gradient; none: no clipping.")
    average: Average = Field(
        0.0,
        description="Share of the past in a running average of the weights, for example 0.999; the average is what is "
        "validated and kept. 0: the weights themselves.",
    )
    plateau: PlateauSettings | None = Field(None, description="Decay on plateau.")
    trained: Literal["all", "new_maps"] = Field(
        "all",
        description="What is trained: all, or only the maps between code and transformers (posterior, prior, pooling, "
        "W_M, W_D).",
    )
    last_layers: int = Field(0, ge=0, description="With new_maps: so many of each transformer's last layers as well.")
    learning_rates: dict[str, NonNegative] = Field(
        {},
        description="Factor of the learning rate by part (encoder, posterior, prior, decoder, new_maps); 0: not "
        "trained.",
    )

    @model_validator(mode="after")
    def _layers_of_what(self) -> "OptimizerSettings":
        if self.last_layers and self.trained == "all":
            raise ValueError("last_layers goes with trained = 'new_maps'")
        return self


Hidden = Literal["anywhere", "uneven", "end"]


class CorruptionSettings(Options):
    """What is hidden from the networks while training."""

    word_dropout: Probability | Part = Field(
        0.0, description="Share of decoder inputs read as <unk>: a number or a schedule."
    )
    unknown_inputs: float = Field(0.0, ge=0.0, le=1.0, description="Share of encoder inputs read as <unk>.")
    unknown_where: Hidden = Field(
        "anywhere",
        description="Which encoder inputs: any; or sentences lose different shares (two in every 1/unknown_inputs a "
        "part between none and all, the others nothing), of words anywhere (uneven) or of the last ones (end).",
    )

    @model_validator(mode="before")
    @classmethod
    def _earlier_name(cls, content: Any) -> Any:
        """Models of earlier versions say `unknown_uneven`."""
        if isinstance(content, Mapping) and "unknown_uneven" in content:
            content = dict(content)
            if content.pop("unknown_uneven"):
                content.setdefault("unknown_where", "uneven")
        return content

    @model_validator(mode="after")
    def _at_most_half(self) -> "CorruptionSettings":
        if self.unknown_where != "anywhere" and self.unknown_inputs > 0.5:
            raise ValueError("uneven shares of unknown inputs are one half on average at most")
        return self


class StageSettings(Options):
    """One stage of a run: an objective, an update rule, a length, and what is reset before it."""

    name: str = Field("train", pattern=r"^[\w-]{1,40}$", description="Shown in progress and log.")
    epochs: float = Field(10.0, gt=0.0, description="Length in passes over the training split.")
    max_tokens: int | None = Field(
        None, ge=1, description="Length in words and <eos>, if that is shorter: large corpora need fewer epochs."
    )
    objective: Part = Field(Part(name="elbo"), description="What is minimised.")
    update: Part = Field(Part(name="joint"), description="How a step updates the parameters.")
    reset: tuple[str, ...] = Field((), description="Parts that get new initial values before the stage.")
    optimizer: OptimizerSettings | None = Field(None, description="Optimiser of this stage, if not the run's.")
    corruption: CorruptionSettings = Field(CorruptionSettings(), description="Corruption of inputs.")
    early_stopping: int | None = Field(None, ge=1, description="End after this many validations without improvement.")


class TrainingSettings(Options):
    """Batches, randomness, machine and bookkeeping."""

    batch_sentences: int | None = Field(None, ge=1, description="Sentences a batch.")
    batch_tokens: int | None = Field(None, ge=1, description="Token budget of a batch; the default is 2,048.")
    accumulate: int = Field(
        1,
        ge=1,
        description="A batch is worked through in so many parts, and their gradients are added: the same update with "
        "less memory.",
    )
    seed: int = Field(0, ge=0, lt=2**31, description="Everything random follows from it.")
    threads: int | None = Field(None, ge=1, description="Threads; none: all cores.")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Where to compute.")
    precision: Literal["float32", "bfloat16", "auto"] = Field(
        "float32", description="bfloat16 only where a probe succeeds; auto: where the machine is made for it as well."
    )
    max_steps: int | None = Field(None, ge=1, description="Updates in all; stages and schedules shrink in proportion.")
    max_minutes: float | None = Field(
        None,
        gt=0.0,
        description="End the run, stages to come included, after so much training, with the best weights of the "
        "present stage; schedules do not shrink, and where it ends depends on the machine's speed.",
    )
    validate_every: float = Field(1.0, gt=0.0, description="Epochs between validations.")
    checkpoint_seconds: float = Field(120.0, ge=0.0, description="Time between checkpoints; also after validations.")
    log_every: int = Field(20, ge=1, description="Updates between log lines.")
    tensorboard: Literal["auto", "yes", "no"] = Field(
        "auto", description="Write TensorBoard files; auto: if installed."
    )

    @model_validator(mode="after")
    def _one_size(self) -> "TrainingSettings":
        if self.batch_sentences is not None and self.batch_tokens is not None:
            raise ValueError("give batch_sentences or batch_tokens, not both")
        return self


class EvaluationSettings(Options):
    """What is measured after, and while, training."""

    samples: int = Field(50, ge=1, description="Importance samples for the figures at the end of training.")
    selection_samples: int = Field(5, ge=1, description="Importance samples where models are selected by iw_nll.")
    selection_sentences: int = Field(2000, ge=1, description="Validation sentences used while training.")
    information_sentences: int = Field(10_000, ge=2, description="Sentences M for the mutual information.")


class Settings(Options):
    """A whole run."""

    out: str | None = Field(None, description="Model directory; none: runs/<corpus name>.")
    init_from: str | None = Field(
        None, description="A model directory whose weights the first stage starts from, except for parts it resets."
    )
    corpus: CorpusSettings = CorpusSettings()
    encoder: Part = Field(Part(name="recurrent"), description="Encoder; 'none' makes a language model.")
    posterior: Part = Field(Part(name="gaussian"), description="Posterior q(z|x).")
    prior: Part = Field(Part(name="standard_normal"), description="Prior p(z).")
    decoder: Part = Field(Part(name="recurrent"), description="Decoder p(x|z).")
    averaged_codes: int = Field(
        1, ge=1, description="Codes L a sentence whose hidden states are averaged before the softmax (paper 3)."
    )
    optimizer: OptimizerSettings = OptimizerSettings()
    stages: tuple[StageSettings, ...] = Field((StageSettings(),), min_length=1, description="Stages, in order.")
    training: TrainingSettings = TrainingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()

    @property
    def has_code(self) -> bool:
        """False for a language model."""
        return self.encoder.name != "none"

    def optimizer_of(self, stage: StageSettings) -> OptimizerSettings:
        """Return the optimiser settings that hold in a stage."""
        return stage.optimizer or self.optimizer


def recipe_names() -> list[str]:
    """Return the names of the recipes inside the package."""
    folder = resources.files("zentence") / "recipes"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def paper_recipe_names() -> list[str]:
    """Return the recipes of the papers' tables, as `paper/row`; what rows share (`base*.toml`) is no row."""
    folder = resources.files("zentence") / "recipes"
    return sorted(
        f"{paper.name}/{entry.name.removesuffix('.toml')}"
        for paper in folder.iterdir()
        if (paper / "table.toml").is_file()
        for entry in paper.iterdir()
        if entry.name.endswith(".toml") and not entry.name.startswith(("base", "table."))
    )


def load_settings(recipe: str = "default", overrides: Sequence[str] = ()) -> Settings:
    """Read a recipe by name or file, apply `a.b=c` overrides, and validate."""
    return settings_from(override(read_recipe(recipe), overrides))


def read_recipe(recipe: str) -> dict[str, Any]:
    """Return the settings of a recipe: one of the package's (`name`, or `paper/row`), or a TOML file.

    `paper/row@quick` is a variant of it.
    """
    name, _, variant = recipe.partition("@")
    if Path(recipe).is_file():
        name, variant = recipe, ""
    return apply_variant(name, resolve_recipe(name), variant)


def resolve_recipe(recipe: str) -> dict[str, Any]:
    """Return the whole content of a recipe: its own, and what it `extends` where it says nothing itself."""
    folder = resources.files("zentence") / "recipes"
    if recipe in recipe_names():
        return _extended(folder, f"{recipe}.toml", ())
    if "/" in recipe and recipe in paper_recipe_names():
        paper, _, row = recipe.partition("/")
        return _extended(folder / paper, f"{row}.toml", ())
    if Path(recipe).is_file():
        return _extended(Path(recipe).parent, Path(recipe).name, ())
    raise ZentenceError(f"Unknown recipe '{recipe}'.{suggestion(recipe, [*recipe_names(), *paper_recipe_names()])}")


def _extended(folder: Any, name: str, above: tuple[str, ...]) -> dict[str, Any]:
    """Read a file, laid over the one that it extends; `above` are those that extend it."""
    chain = " → ".join((*above, name))
    if name in above:
        raise ZentenceError(f"A recipe extends itself: {chain}")
    if "/" in name or not (folder / name).is_file():
        raise ZentenceError(f"{chain}: there is no such file to extend in the same folder")
    try:
        content = parse_toml(name, (folder / name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ZentenceError(f"Cannot read {folder / name}: {error}") from error
    base = content.pop("extends", None)
    if base is None:
        return content
    if not isinstance(base, str):
        raise ZentenceError(f"{name}: 'extends' is the name of a file in the same folder")
    return overlay(_extended(folder, base, (*above, name)), content)


def overlay(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings laid over others, table by table.

    A table whose `name` changes is another part: nothing of the one below remains. Lists of tables of one length are
    laid over each other entry by entry; any other value, and a list of another length, replaces what is below.
    """
    if "name" in above and below.get("name", above["name"]) != above["name"]:
        return copy.deepcopy(dict(above))
    result = copy.deepcopy(dict(below))
    for key, value in above.items():
        found: Any = result.get(key)
        if isinstance(value, Mapping) and isinstance(found, Mapping):
            result[key] = overlay(found, value)
        elif _tables(value) and _tables(found) and len(value) == len(found):
            result[key] = [overlay(old, new) for old, new in zip(found, value, strict=True)]
        else:
            result[key] = copy.deepcopy(value)
    return result


def _tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, Mapping) for entry in value)


def apply_variant(recipe: str, content: Mapping[str, Any], variant: str) -> dict[str, Any]:
    """Return the settings of a resolved recipe: as it stands (`faithful`, or none), or one of its `variants`."""
    settings = {key: value for key, value in content.items() if key not in RECIPE_KEYS}
    if variant in ("", "faithful"):
        return settings
    known = content.get("variants", {})
    if variant not in known:
        raise ZentenceError(f"Recipe '{recipe}' has no variant '{variant}'. Known: {', '.join(['faithful', *known])}")
    return overlay(settings, known[variant])


def parse_toml(where: str, text: str) -> dict[str, Any]:
    """Parse TOML; a mistake becomes one line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ZentenceError(f"{where} is not valid TOML: {error}") from error


def settings_from(content: Mapping[str, Any]) -> Settings:
    """Validate plain content."""
    settings: Settings = parse_options("", Settings, content)
    return settings


def override(content: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return content with each `a.b=c` applied; list entries by number, as in `stages.0.epochs=3`."""
    content = copy.deepcopy(content)
    for text in overrides:
        path, equals, raw = text.partition("=")
        if not equals or not path.strip():
            raise ZentenceError(f"--set {text}: write it as name.name=value")
        try:
            value = tomllib.loads(f"value = {raw}")["value"]
        except tomllib.TOMLDecodeError:
            value = raw.strip()
        _set_at(content, path.strip().split("."), value, text)
    return content


def _set_at(content: dict[str, Any], path: list[str], value: Any, text: str) -> None:
    here: Any = content
    for depth, step in enumerate(path):
        last = depth == len(path) - 1
        if isinstance(here, list):
            if not step.lstrip("-").isdigit() or not -len(here) <= int(step) < len(here):
                raise ZentenceError(f"--set {text}: '{step}' is not the number of one of {len(here)} entries")
            key: Any = int(step)
        elif isinstance(here, dict):
            key = step
            if not last and not isinstance(here.get(key), (dict, list)):
                here[key] = [{}] if key == "stages" else {}
        else:
            raise ZentenceError(f"--set {text}: '{path[depth - 1]}' has no settings below it")
        if last:
            here[key] = value
        else:
            here = here[key]
