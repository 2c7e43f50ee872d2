"""Codes of beginnings: what the first words of a text tell of its code, with the doubt that they leave."""

from typing import Any

from pydantic import Field

from zentence.corpora.corruption import hide_words
from zentence.model import LatentLM
from zentence.noise import Noise
from zentence.objectives.autoencoder import AutoEncoder
from zentence.objectives.base import Objective, share
from zentence.objectives.elbo import Elbo
from zentence.objectives.info_vae import InfoVae
from zentence.objectives.iwae import Iwae
from zentence.objectives.mim import Mim
from zentence.parts import Options as PartOptions
from zentence.parts import Part, find_part, parse_options
from zentence.types import Batch, Terms, Tokens

INNER: dict[str, type[Objective]] = {
    "elbo": Elbo,
    "iwae": Iwae,
    "info_vae": InfoVae,
    "mim": Mim,
    "autoencoder": AutoEncoder,
}


class Foresight(Objective):
    """Any other objective, and −log q(z|x̃): x̃ is the text with its last words unknown, z ~ q(z|x) its whole code.

    z has no gradient here, so that codes do not change in order to be guessed. The minimum over q(z|x̃) is the density
    of codes of all texts that begin like this one, as near as the posterior's family comes to it; so the distance of
    a whole text's code in units of its scale tells how well the text's end fits its beginning (paper 1's ranking of
    answers). Of each text a part drawn evenly between none and all is hidden.
    """

    paper = "for the ranking of paper 1 (§4.6); ours"
    needs_density_elsewhere = True

    class Options(PartOptions):
        objective: Part = Field(Part(name="mim"), description="The objective that codes are learnt by.")
        weight: float = Field(1.0, ge=0.0, description="Weight of −log q(z|x̃).")

    def __init__(self, options: Any, epoch_steps: float, total_steps: int) -> None:
        super().__init__(options, epoch_steps, total_steps)
        chosen = find_part("objective", INNER, options.objective.name)
        inner_options = parse_options("objective.objective", chosen.Options, options.objective.options)
        self.inner = chosen(inner_options, epoch_steps, total_steps)
        self.selection = self.inner.selection
        self.needs_closed_form, self.whole_batch = self.inner.needs_closed_form, self.inner.whole_batch

    def written_out(self) -> dict[str, Any]:
        """Return every option as plain values, those of the objective inside included."""
        return {**super().written_out(), "objective": {"name": self.options.objective.name, **self.inner.written_out()}}

    def forward(self, model: LatentLM, batch: Batch, step: int, noise: Noise) -> Terms:
        """Return this process's share of both terms."""
        terms: Terms = self.inner(model, batch, step, noise)
        code = model.infer(batch.source).rsample_and_log_prob(1, noise.fork("whole"))[0].detach()
        hidden = hide_words(batch.source.ids, 0.5, noise.fork("end"), where="end")
        surprise = -model.infer(Tokens(hidden, batch.source.lengths)).log_prob(code).squeeze(0)
        values = {**terms.values, "surprise": surprise.detach()}
        return terms._replace(loss=terms.loss + self.options.weight * share(surprise, batch), values=values)

    def after_update(self, terms: Terms) -> None:
        """Let the objective inside move its multipliers."""
        self.inner.after_update(terms)
