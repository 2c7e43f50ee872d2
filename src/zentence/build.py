"""From settings to parts: every name and option is checked here, before any data is read."""

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import BaseModel

from zentence.corpora import TokenStore, Vocabulary
from zentence.corpora.pretrained import read_pretrained
from zentence.decoders import DECODERS
from zentence.encoders import ENCODERS
from zentence.errors import ZentenceError
from zentence.huggingface import find_weights
from zentence.model import LatentLM
from zentence.noise import derive_key
from zentence.objectives import OBJECTIVES, Objective
from zentence.parts import Part, find_part, parse_options, plain
from zentence.posteriors import POSTERIORS
from zentence.priors import PRIORS
from zentence.schedules import check_schedule
from zentence.settings import OptimizerSettings, Settings, StageSettings

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
    return Part.model_validate({"name": part.name, **plain(options)})


def complete(settings: Settings) -> Settings:
    """Check every part and return the settings with every option written out."""
    changes: dict[str, Any] = {}
    for family, table in FAMILIES.items():
        if settings.has_code or family == "decoder":
            changes[family] = _complete(family, family, table, getattr(settings, family))
        else:
            changes[family] = Part(name="none")
    if settings.has_code:
        _check_prior(settings)
    elif settings.averaged_codes > 1:
        raise ZentenceError("averaged_codes: a language model has no codes to average")
    stages = tuple(_complete_stage(settings, number, stage) for number, stage in enumerate(settings.stages))
    return settings.model_copy(update={**changes, "stages": stages})


def _check_prior(settings: Settings) -> None:
    """Refuse a prior that needs densities which the posterior cannot give."""
    prior = find_part("prior", PRIORS, settings.prior.name)
    if getattr(prior, "needs_density_elsewhere", False):
        _check_density(f"Prior '{settings.prior.name}'", settings, ", or prior 'mixture'")


def _check_density(what: str, settings: Settings, instead: str = "") -> None:
    """Refuse what needs q(z|x) at any code with a posterior that knows it at its own samples only."""
    posterior = find_part("posterior", POSTERIORS, settings.posterior.name)
    if not getattr(posterior, "density_elsewhere", True):
        raise ZentenceError(
            f"{what} needs q(z|x) at any z; posterior '{settings.posterior.name}' knows it at "
            f"its own samples only: take posterior 'gaussian' or 'iaf'{instead}"
        )


def _check_closed_form(where: str, settings: Settings, what: str) -> None:
    """Refuse what needs KL(q‖p) in closed form with a posterior and a prior that have none."""
    for family, table in (("posterior", POSTERIORS), ("prior", PRIORS)):
        name: str = getattr(settings, family).name
        if not getattr(find_part(family, table, name), "is_gaussian", False):
            need = f"{what} need a closed-form KL; {family} '{name}' has none"
            raise ZentenceError(f"{where}: {need}: use 'total' on the batch mean")


def with_lengths(settings: Settings, mean: float, spread: float) -> Settings:
    """Return settings whose prior knows mean and spread of the training sentences' lengths, if it asks for them."""
    if not settings.has_code:
        return settings
    _, options = _options("prior", "prior", PRIORS, settings.prior)
    wanted = {"length_mean": mean, "length_spread": spread}
    missing = {name: value for name, value in wanted.items() if getattr(options, name, 0.0) is None}
    part = Part.model_validate({"name": settings.prior.name, **settings.prior.options, **missing})
    return settings.model_copy(update={"prior": part})


def _complete_stage(settings: Settings, number: int, stage: StageSettings) -> StageSettings:
    where = f"stages.{number}"
    _options(f"{where}.objective", "objective", OBJECTIVES, stage.objective)
    built = build_objective(stage, 1.0, 1)
    objective = Part.model_validate({"name": stage.objective.name, **built.written_out()})
    if built.needs_code and not settings.has_code:
        raise ZentenceError(f"{where}.objective: '{objective.name}' needs a code; a language model takes 'likelihood'")
    if not built.needs_code and settings.has_code:
        raise ZentenceError(f"{where}.objective: '{objective.name}' is for language models; set encoder.name=none")
    if built.needs_density_elsewhere:
        _check_density(f"{where}.objective: '{objective.name}'", settings)
    if built.needs_closed_form:
        _check_closed_form(f"{where}.objective", settings, built.needs_closed_form)
    if built.whole_batch and settings.training.accumulate > 1:
        what = f"{built.whole_batch} of a batch in parts differs from that of the whole"
        raise ZentenceError(f"{where}.objective: {what}: set training.accumulate = 1")
    for part in stage.reset:
        if part not in FAMILIES or (not settings.has_code and part != "decoder"):
            raise ZentenceError(f"{where}.reset: this model has no part '{part}'. Known: {', '.join(FAMILIES)}.")
    optimizer = settings.optimizer_of(stage)
    for part in optimizer.l2:
        if part not in FAMILIES:
            raise ZentenceError(f"optimizer.l2: unknown part '{part}'. Known: {', '.join(FAMILIES)}.")
    _check_trained(settings, optimizer)
    check_schedule("optimizer.schedule", optimizer.schedule)
    check_schedule(f"{where}.corruption.word_dropout", stage.corruption.word_dropout)
    return stage.model_copy(update={"objective": objective})


def _check_trained(settings: Settings, optimizer: OptimizerSettings) -> None:
    """Refuse to train parts of a network that does not say what they are."""
    known = [*FAMILIES, "new_maps"]
    for part in optimizer.learning_rates:
        if part not in known:
            raise ZentenceError(f"optimizer.learning_rates: unknown part '{part}'. Known: {', '.join(known)}.")
    for family in ("encoder", "decoder"):
        name = getattr(settings, family).name
        if optimizer.trained == "all" or name == "none":
            continue
        if not hasattr(find_part(family, FAMILIES[family], name), "new_maps"):
            raise ZentenceError(
                f"optimizer.trained = 'new_maps': {family} '{name}' has no maps apart from its network; "
                "a 'transformer' has"
            )


def build_model(settings: Settings, vocabulary_size: int, encoder_vocabulary_size: int | None = None) -> LatentLM:
    """Return a new model; its initial values depend on the seed only.

    `encoder_vocabulary_size` is given where the encoder may read with a tokeniser of its own.
    """
    torch.manual_seed(derive_key(settings.training.seed, "initial values"))
    if not settings.has_code:
        chosen, options = _options("decoder", "decoder", DECODERS, settings.decoder)
        return LatentLM(chosen(options, vocabulary_size, 0))
    posterior_class, posterior_options = _options("posterior", "posterior", POSTERIORS, settings.posterior)
    code_size: int = posterior_options.size  # type: ignore[attr-defined]
    decoder_class, decoder_options = _options("decoder", "decoder", DECODERS, settings.decoder)
    decoder = decoder_class(decoder_options, vocabulary_size, code_size)
    encoder_class, encoder_options = _options("encoder", "encoder", ENCODERS, settings.encoder)
    read = encoder_vocabulary_size or vocabulary_size
    shared = getattr(decoder, "embedding", None) if read == vocabulary_size else None
    encoder = encoder_class(encoder_options, read, shared)
    _check_prior(settings)
    prior_class, prior_options = _options("prior", "prior", PRIORS, settings.prior)
    posterior = posterior_class(posterior_options, encoder.feature_size)
    asked: dict[str, Any] = {}
    if getattr(prior_class, "needs_embedding", False):
        embedding = getattr(encoder, "embedding", None)
        if not isinstance(embedding, torch.nn.Embedding) or not hasattr(encoder, "forward_embedded"):
            raise ZentenceError(
                f"Prior '{settings.prior.name}' needs an encoder that reads embeddings: "
                f"'{settings.encoder.name}' does not"
            )
        asked["embedding_size"] = embedding.embedding_dim
    prior = prior_class(prior_options, code_size, **asked)
    return LatentLM(decoder, encoder, posterior, prior, settings.averaged_codes)


def load_pretrained(model: LatentLM, vocabulary: Vocabulary) -> None:
    """Give the parts of a new model the pre-trained weights that their options name."""
    for part, read in ((model.encoder, vocabulary.encoder or vocabulary), (model.decoder, vocabulary)):
        if hasattr(part, "load_pretrained"):
            part.load_pretrained(read)


def pretrained_vocabulary(settings: Settings) -> Vocabulary:
    """Return the tokenisers of the weights that the settings name: the decoder's, and the encoder's own if it has."""
    decoder, encoder = (getattr(settings, family).options.get("weights") for family in ("decoder", "encoder"))
    if decoder in (None, "none"):
        raise ZentenceError("corpus.tokenizer = 'pretrained': set decoder.weights, whose tokeniser is meant")
    found = read_pretrained(find_weights(str(decoder), "decoder.weights"))
    if not settings.has_code or encoder in (None, "none"):
        return found
    return found.with_encoder(read_pretrained(find_weights(str(encoder), "encoder.weights")))


def check_positions(model: LatentLM, splits: Mapping[str, TokenStore]) -> None:
    """Refuse sentences that are longer than a part has positions for, before any training."""
    for name, store in splits.items():
        lengths = {"encoder": store.longest if store.sources is None else store.longest_source}
        for family, longest in {**lengths, "decoder": store.longest}.items():
            positions = getattr(getattr(model, family), "positions", None)  # parts without a limit do not name one
            if positions is not None and longest > positions:
                raise ZentenceError(
                    f"A sentence of {name} has {longest:,} tokens, the {family} has positions for {positions:,}: "
                    f"leave it out, or set more {family}.positions"
                )


def build_objective(stage: StageSettings, epoch_steps: float, total_steps: int) -> Objective:
    """Return the objective of a stage of `total_steps` updates."""
    chosen, options = _options("objective", "objective", OBJECTIVES, stage.objective)
    objective: Objective = chosen(options, epoch_steps, total_steps)
    return objective
