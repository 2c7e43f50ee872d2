"""`zentence export` and `zentence publish`: models to share."""

from pathlib import Path
from typing import Annotated

import typer

from zentence.cli.output import Json, Model, load_space, print_json


def export(
    model: Model,
    out: Annotated[Path, typer.Option("--out", help="Folder for the model, its figures and its card.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a model that is there.")] = False,
    json: Json = False,
) -> None:
    """Write a model that can be shared: no paths, no training state, and a card that says what it learnt."""
    from zentence.latent.hub import FILES

    load_space(model, "cpu").save_pretrained(out, overwrite=overwrite)
    if json:
        print_json({"out": str(out), "files": [name for name in FILES if (out / name).exists()]})
    else:
        print(f"The model and its card are in {out}")


def publish(
    model: Model,
    repository: Annotated[str, typer.Argument(help="owner/name on the Hugging Face Hub.", show_default=False)],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    json: Json = False,
) -> None:
    """Upload a model and its card to the Hugging Face Hub, as the user that `hf auth login` knows."""
    address = load_space(model, "cpu").push_to_hub(repository, private=True if private else None)
    if json:
        print_json({"repository": repository, "address": address})
    else:
        print(f"The model is at {address}")
