"""Sentences of a wanted label from a frozen model: codes from a conditional GAN, or from Gaussians, decoded.

`train_label_control` makes a directory that `LabelControl.load` reads; see `training/fit.py` for what it holds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from zentence.errors import ZentenceError, suggestion
from zentence.files import checksum
from zentence.guided.codes import BalancedBatches, LabelledCodes, On, Progress, draws_codes, encoded
from zentence.guided.label_gan import Alternate, GanOptions, GanTrainable, LabelGan, energy_distance
from zentence.latent import LatentSpace
from zentence.latent.space import Codes
from zentence.noise import Noise, derive_key
from zentence.parts import Options, Part, parse_options, plain
from zentence.settings import override
from zentence.training.events import Callback
from zentence.training.fit import FitResult, FitSettings, check_fit, fit, load_fit, read_fit

NAME = "label-control"
DRAWS = 4  # codes a sentence: passes take them in turn
BATCH = 128  # rows
WORDS = {"method": "sample", "temperature": 0.9, "forbid_unknown": True}  # how sentences are written unless told
SETTINGS = FitSettings(
    steps=2000,
    learning_rate=1e-3,
    schedule=Part(name="cosine", warmup_share=0.02, end=0.05),
    betas=(0.5, 0.9),
    clip=None,
    validate_every=200,
    log_every=20,
)
LoadSpace = Callable[[Path], LatentSpace]


class LabelControlSettings(Options):
    """Everything that can be set about a label control."""

    gan: GanOptions = GanOptions()
    fit: FitSettings = SETTINGS


def read_settings(changes: Sequence[str] = ()) -> LabelControlSettings:
    """Return the settings with changes such as `gan.loss=hinge` or `fit.steps=100`."""
    settings: LabelControlSettings = parse_options(
        "", LabelControlSettings, override(plain(LabelControlSettings()), changes)
    )
    return settings


def default_folder(model: Path, on: On = "codes") -> Path:
    """Return where a model's label control is kept unless told otherwise: inside its directory."""
    return model / (NAME if on == "codes" else f"{NAME}-{on}")


def train_label_control(
    space: LatentSpace,
    file: Path,
    folder: Path,
    *,
    on: On = "codes",
    options: GanOptions | None = None,
    settings: FitSettings = SETTINGS,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: Progress | None = None,
) -> FitResult:
    """Train a GAN on the codes of labelled sentences; the model stays as it is.

    The best weights are those whose codes are nearest to codes of sentences held out and obey their labels, as
    `validation_figures` weighs the two. The class-conditional Gaussians are written beside them.
    """
    model = space.folder
    if model is None:
        raise ZentenceError("Label control needs a model that was read from a directory")
    check_fit(folder, resume=resume, overwrite=overwrite)
    options = options or GanOptions()
    with encoded(space, file, on=on, draws=DRAWS, seed=settings.seed, progress=progress) as codes:
        training, held = codes.split(settings.seed)
        torch.manual_seed(derive_key(settings.seed, "label control"))
        gan = LabelGan(codes.vectors.shape[-1], len(codes.names), options)
        gan.fit_moments(codes, training)
        gan.to(space.device)
        return fit(
            NAME,
            GanTrainable(gan),
            BalancedBatches(codes, training, BATCH, settings.seed),
            settings=settings,
            folder=folder,
            fingerprint={
                "on": on,
                "drawn": draws_codes(space) and on == "codes",
                "labels": list(codes.names),
                "size": codes.vectors.shape[-1],
                "model weights": checksum(model / "model.safetensors"),
                "text": codes.digest,
                "options": plain(options),
            },
            validate=partial(validation_figures, gan, codes, held, settings.seed),
            resume=resume,
            overwrite=overwrite,
            callbacks=callbacks,
            update=partial(Alternate, options),
            about={"model": str(model.resolve()), "file": str(file.resolve())},
        )


@torch.no_grad()
def validation_figures(
    gan: LabelGan, codes: LabelledCodes, held: list[NDArray[np.int64]], seed: int
) -> dict[str, float]:
    """Return figures of generated codes, means over labels; `criterion` selects.

    `energy_distance` is to the standardised codes of held-out sentences; its root is a distance of distributions.
    `label_nll` is −log p(y | code). `criterion`, as the generator's loss, is that root + label_weight × label_nll.
    """
    distances, nll = [], []
    for label, rows in enumerate(held):
        true = gan.standardised(torch.from_numpy(codes.vectors[rows, 0]).to(gan.center.device))
        labels = torch.full((len(rows),), label, device=true.device)
        noise = Noise(derive_key(seed, "label control, validation", label), torch.arange(len(rows), device=true.device))
        fake = gan.standardised(gan.sample(labels, noise))
        distances.append(energy_distance(true, fake))
        if gan.classifier is not None:
            nll.append(float(functional.cross_entropy(gan.classifier(fake), labels)))
    distance = float(np.mean(distances))
    figures = {"criterion": math.sqrt(max(0.0, distance)), "energy_distance": distance}
    if nll:
        figures["label_nll"] = float(np.mean(nll))
        figures["criterion"] += gan.options.label_weight * figures["label_nll"]
    return figures


@dataclass(frozen=True)
class LabelControl:
    """A trained label control and the space that its codes belong to."""

    space: LatentSpace
    gan: LabelGan
    labels: tuple[str, ...]
    on: On
    folder: Path
    about: dict[str, Any]

    @classmethod
    def load(cls, folder: Path, load_space: LoadSpace = LatentSpace.load, model: Path | None = None) -> "LabelControl":
        """Read a label control's directory, or that inside a model directory; `model`: where the model is now."""
        if (folder / "settings.toml").is_file():
            if not default_folder(folder).is_dir():
                raise ZentenceError(f"{folder} has no label control: zentence {NAME} train {folder} --file FILE")
            model, folder = folder, default_folder(folder)
        about = read_fit(folder, NAME)
        where = model or Path(about["model"])
        if not where.is_dir():
            raise ZentenceError(f"{folder} belongs to the model {where}, which is not there: say where with --model")
        if checksum(where / "model.safetensors") != about["model weights"]:
            raise ZentenceError(f"{folder} was trained with other weights than {where} has now: train it anew")
        space = load_space(where)
        gan = LabelGan(about["size"], len(about["labels"]), parse_options("", GanOptions, about["options"]))
        load_fit(folder, gan)
        return cls(space, gan.to(space.device), tuple(about["labels"]), about["on"], folder, about)

    def number_of(self, label: str) -> int:
        """Return a label's number; raise for one never seen in training."""
        if label not in self.labels:
            raise ZentenceError(f"Label '{label}' was never seen in training.{suggestion(label, self.labels)}")
        return self.labels.index(label)

    @torch.no_grad()
    def codes(self, label: str, count: int, *, seed: int = 0, first: int = 0, gaussian: bool = False) -> Codes:
        """Return codes [N, D] of a label, from the GAN or from the label's Gaussian; the same whatever the count."""
        number = self.number_of(label)
        index = torch.arange(first, first + count, device=self.space.device)
        noise = Noise(derive_key(seed, NAME, number, int(gaussian)), index)
        if gaussian:
            vectors = self.gan.sample_gaussian(number, noise)
        else:
            vectors = self.gan.sample(torch.full_like(index, number), noise)
        if self.on == "features":
            vectors = self.space.model.posterior(vectors).center
        found: Codes = vectors.float().cpu().numpy()
        return found

    def write(
        self,
        label: str,
        count: int,
        *,
        seed: int = 0,
        first: int = 0,
        gaussian: bool = False,
        progress: Progress | None = None,
        **words: Any,
    ) -> list[str]:
        """Return sentences of a label (paper 5, Eq. 17); `words` as `Generation`, sampled unless they say otherwise."""
        if count < 1:
            raise ZentenceError("Give a number of sentences of at least 1")
        codes = self.codes(label, count, seed=seed, first=first, gaussian=gaussian)
        key = derive_key(seed, NAME, "words", self.number_of(label), int(gaussian)) % 2**31
        return self.space.decode(codes, first=first, progress=progress, **{**WORDS, **words, "seed": key})
