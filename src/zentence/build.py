"""From settings to parts: every name and option is checked here, before any data is read."""

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import BaseModel

from zentence.decoders import DECODERS
from zentence.encoders import ENCODERS
from zentence.errors import ZentenceError
from zentence.model import LatentLM
from zentence.noise import derive_key
from zentence.objectives import OBJECTIVES, Objective
from zentence.parts import Part, find_part, parse_options
from zentence.posteriors import POSTERIORS
from zentence.priors import PRIORS
from zentence.schedules import check_schedule
from zentence.settings import Settings, StageSettings

FAMILIES: dict[str, Mapping[str, type[Any]]] = {
    "encoder": ENCODERS,
    "posterior": POSTERIORS,
    "prior": PRIORS,
    "decoder": DECODERS,
}


def _options(where: str, family: str, table: Mapping[str, type[Any]], part: Part) -> tuple[type[Any], BaseModel]:
    chosen = find_part(family, table, part.name)
    return chosen, parse_options(where, chosen.Options, part.options)


def _complete(where: str, family: str, table: Mapping[str, type[Any]], part: Part) -> Part:
    _, options = _options(where, family, table, part)
    return Part.model_validate({"name": part.name, **options.model_dump(exclude_none=True)})


def complete(settings: Settings) -> Settings:
    """Check every part and return the settings with every option written out."""
    changes: dict[str, Any] = {}
    for family, table in FAMILIES.items():
        if settings.has_code or family == "decoder":
            changes[family] = _complete(family, family, table, getattr(settings, family))
        else:
            changes[family] = Part(name="none")
    stages = tuple(_complete_stage(settings, number, stage) for number, stage in enumerate(settings.stages))
    return settings.model_copy(update={**changes, "stages": stages})


def _complete_stage(settings: Settings, number: int, stage: StageSettings) -> StageSettings:
    where = f"stages.{number}"
    objective = _complete(f"{where}.objective", "objective", OBJECTIVES, stage.objective)
    built = build_objective(stage, 1.0, 1)
    if built.needs_code and not settings.has_code:
        raise ZentenceError(f"{where}.objective: '{objective.name}' needs a code; a language model takes 'likelihood'")
    if not built.needs_code and settings.has_code:
        raise ZentenceError(f"{where}.objective: '{objective.name}' is for language models; set encoder.name=none")
    for part in stage.reset:
        if part not in FAMILIES or (not settings.has_code and part != "decoder"):
            raise ZentenceError(f"{where}.reset: this model has no part '{part}'. Known: {', '.join(FAMILIES)}.")
    optimizer = settings.optimizer_of(stage)
    for part in optimizer.l2:
        if part not in FAMILIES:
            raise ZentenceError(f"optimizer.l2: unknown part '{part}'. Known: {', '.join(FAMILIES)}.")
    check_schedule("optimizer.schedule", optimizer.schedule)
    check_schedule(f"{where}.corruption.word_dropout", stage.corruption.word_dropout)
    return stage.model_copy(update={"objective": objective})


def build_model(settings: Settings, vocabulary_size: int) -> LatentLM:
    """Return a new model; its initial values depend on the seed only."""
    torch.manual_seed(derive_key(settings.training.seed, "initial values"))
    if not settings.has_code:
        chosen, options = _options("decoder", "decoder", DECODERS, settings.decoder)
        return LatentLM(chosen(options, vocabulary_size, 0))
    posterior_class, posterior_options = _options("posterior", "posterior", POSTERIORS, settings.posterior)
    code_size: int = posterior_options.size  # type: ignore[attr-defined]
    decoder_class, decoder_options = _options("decoder", "decoder", DECODERS, settings.decoder)
    decoder = decoder_class(decoder_options, vocabulary_size, code_size)
    encoder_class, encoder_options = _options("encoder", "encoder", ENCODERS, settings.encoder)
    encoder = encoder_class(encoder_options, vocabulary_size, getattr(decoder, "embedding", None))
    prior_class, prior_options = _options("prior", "prior", PRIORS, settings.prior)
    posterior = posterior_class(posterior_options, encoder.feature_size)
    return LatentLM(decoder, encoder, posterior, prior_class(prior_options, code_size))


def build_objective(stage: StageSettings, epoch_steps: float, total_steps: int) -> Objective:
    """Return the objective of a stage of `total_steps` updates."""
    chosen, options = _options("objective", "objective", OBJECTIVES, stage.objective)
    objective: Objective = chosen(options, epoch_steps, total_steps)
    return objective
