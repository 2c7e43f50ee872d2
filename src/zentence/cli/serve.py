"""Commands that answer over HTTP: explore (a page), serve (the service alone)."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zentence.cli.codes import bars
from zentence.cli.output import Device, Json, Model, Seed, Threads, load_space, print_json, warn
from zentence.errors import ZentenceError

if TYPE_CHECKING:
    from zentence.latent import LatentSpace
    from zentence.web.corpus import Corpus

CorpusFile = Annotated[
    Path | None,
    typer.Option(
        "--corpus", help="Text for map and neighbours; default: the model's validation text.", show_default=False
    ),
]
Points = Annotated[int, typer.Option("--points", min=2, max=20_000, help="At most so many sentences on the map.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port; 0: any that is free.")]
Host = Annotated[str, typer.Option("--host", help="Address to listen on; beyond this machine a token is needed.")]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="ZENTENCE_TOKEN",
        help="What requests must carry; default: none on this machine, else a new one, which is printed.",
        show_default=False,
    ),
]


def explore(
    model: Model,
    corpus: CorpusFile = None,
    points: Points = 5000,
    port: Port = 8642,
    host: Host = "127.0.0.1",
    token: Token = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Open a page to walk through a model's space; it needs no network. Ctrl-C stops it."""
    where = {"port": port, "host": host, "token": token}
    _run(model, corpus, points, seed, device, threads, json, page=True, browser=not no_browser, **where)


def serve(
    model: Model,
    corpus: CorpusFile = None,
    points: Points = 5000,
    port: Port = 8642,
    host: Host = "127.0.0.1",
    token: Token = None,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Answer requests over HTTP, as /api/openapi.json describes; without the page. Ctrl-C stops it."""
    where = {"port": port, "host": host, "token": token}
    _run(model, corpus, points, seed, device, threads, json, page=False, browser=False, **where)


def _run(
    model: Path,
    file: Path | None,
    points: int,
    seed: int,
    device: str,
    threads: int | None,
    json: bool,
    *,
    page: bool,
    browser: bool,
    **where: Any,
) -> None:
    from zentence.machine import bound_kernel_cache

    try:
        from zentence.web import server
        from zentence.web.service import Service
    except ImportError as error:
        raise ZentenceError(f"{error.name} is not installed: pip install 'zentence[web]'") from None
    host, local = where["host"], server.is_loopback(where["host"])
    token = _token(where["token"], local)
    with server.bind(host, where["port"]) as opened:  # a port in use is noticed before the model is read
        bound_kernel_cache()
        space = load_space(model, device, threads)
        corpus = _read(space, file, points, seed)
        service = Service(space, corpus, model=str(model) if local else None)
        address = server.address_of(opened, host) + ("" if token is None or not page else f"#token={token}")

        def started() -> None:
            if json:
                print_json({"address": address, "token": token, "model": str(model), "corpus": corpus and corpus.name})
            else:
                print(f"{'Exploring' if page else 'Serving'} {model} at {address}")
                print("Ctrl-C stops it." if token is None else f"Token: {token}\nCtrl-C stops it.")
            sys.stdout.flush()
            if not local:
                warn("the connection is not encrypted: whoever can listen reads along")
            if browser and not server.open_browser(address):
                warn("no browser could be opened: open the address above in one")

        server.run(service, opened, host=host, token=token, page=page, started=started)
    if not json:
        print("Stopped.")
    sys.stdout.flush()
    os._exit(0)  # a map that is being worked out in the background is not waited for


def _token(given: str | None, local: bool) -> str | None:
    import secrets

    if given is not None and not (given.isascii() and given.isprintable() and len(given.strip()) >= 8):
        raise ZentenceError("--token: give at least 8 letters, digits or signs")
    return given or (None if local else secrets.token_urlsafe(24))


def _read(space: "LatentSpace", file: Path | None, points: int, seed: int) -> "Corpus | None":
    """Read the corpus with a bar; say what follows if there is none."""
    from zentence.web.corpus import read_corpus

    if not space.model.has_code:
        warn("this is a language model: it has no codes, so it can only write samples")
        return None
    with bars() as progress:
        corpus = read_corpus(space, file, points=points, seed=seed, progress=progress)
    if corpus is None:
        warn("this model's validation text is not here: no map and no neighbours (give --corpus FILE)")
        return None
    for warning in corpus.warnings:
        warn(warning)
    return corpus
