"""The service's addresses. Every answer is typed; every refusal is one sentence under `detail`."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import resources
from typing import Annotated, Any

from anyio.to_thread import current_default_thread_limiter
from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response

from zentence import __version__
from zentence.errors import ZentenceError
from zentence.web import requests as ask
from zentence.web.service import Service
from zentence.web.worker import BusyError, TooSlowError

THREADS = 96  # requests that are worked on at once; most of them wait for the model
PAGE = {"index.html": "text/html", "style.css": "text/css", "icon.svg": "image/svg+xml"}
PAGE |= dict.fromkeys(("app.js", "map.js", "panels.js", "copy.js", "service.js"), "text/javascript")
_REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": ask.Problem, "description": "It cannot be done, and why."},
    408: {"model": ask.Problem, "description": "It took too long."},
    413: {"model": ask.Problem, "description": "The request is too large."},
    422: {"model": ask.Problem, "description": "The request is not as described."},
    429: {"model": ask.Problem, "description": "Too many requests are waiting."},
}
_LOG = logging.getLogger("zentence.web")

router = APIRouter(prefix="/api", responses=_REFUSALS)


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Given = Annotated[Service, Depends(_service)]


@router.get("/model")
def model(service: Given) -> ask.ModelCard:
    """Return what the model is and what is known of it."""
    return service.card()


@router.get("/corpus")
def corpus(service: Given) -> ask.CorpusAnswer:
    """Return the sentences of the map."""
    return service.points()


@router.get("/map/{method}")
def map_(service: Given, method: ask.MapMethod) -> ask.MapAnswer:
    """Return the places of the corpus's sentences: pca at once, tsne when it is ready."""
    return service.need_views().map(method)


@router.get("/likelihoods")
def likelihoods(service: Given) -> ask.LikelihoodsAnswer:
    """Return log p(x) of the corpus's sentences when they are ready."""
    return service.need_views().likelihood_answer()


@router.post("/encode")
def encode(service: Given, question: ask.EncodeQuestion) -> ask.CodesAnswer:
    """Return the codes of sentences."""
    return service.encode(question)


@router.post("/decode")
def decode(service: Given, question: ask.DecodeQuestion) -> ask.SentencesAnswer:
    """Return the sentences of codes."""
    return service.decode(question)


@router.post("/reconstruct")
def reconstruct(service: Given, question: ask.ReconstructQuestion) -> ask.SentencesAnswer:
    """Encode and decode: what is kept of each sentence."""
    return service.reconstruct(question)


@router.post("/interpolate")
def interpolate(service: Given, question: ask.InterpolateQuestion) -> ask.WalkAnswer:
    """Walk from one sentence to another."""
    return service.interpolate(question)


@router.post("/analogy")
def analogy(service: Given, question: ask.AnalogyQuestion) -> ask.AnalogyAnswer:
    """Return what is to C as B is to A."""
    return service.analogy(question)


@router.post("/edit")
def edit(service: Given, question: ask.EditQuestion) -> ask.EditAnswer:
    """Move sentences along the direction from one side's mean code to the other's."""
    return service.edit(question)


@router.get("/dimensions")
def dimensions(
    service: Given, sentence: Annotated[str | None, Query(min_length=1, max_length=ask.CHARACTERS)] = None
) -> ask.DimensionsAnswer:
    """Order the dimensions by information: on the corpus, or without one on a sentence."""
    return service.dimensions(sentence)


@router.post("/traverse")
def traverse(service: Given, question: ask.TraverseQuestion) -> ask.TraverseAnswer:
    """Change a code in one dimension at a time."""
    return service.traverse(question)


@router.post("/neighbours")
def neighbours(service: Given, question: ask.NeighboursQuestion) -> ask.NeighboursAnswer:
    """Return the corpus's nearest sentences."""
    return service.neighbours(question)


@router.post("/sample")
def sample(service: Given, question: ask.SampleQuestion) -> ask.SentencesAnswer:
    """Write new sentences from the prior."""
    return service.sample(question)


@router.post("/project")
def project(service: Given, question: ask.ProjectQuestion) -> ask.PointsAnswer:
    """Return where codes stand on a map."""
    return service.project(question)


async def health(service: Given) -> ask.Health:
    """Tell that the service is alive."""
    return ask.Health(calls=service.worker.calls, jobs=service.worker.jobs)


def create_app(service: Service, *, page: bool = True) -> FastAPI:
    """Return the application; `page` False leaves the service without its page. `Guard` belongs around it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        current_default_thread_limiter().total_tokens = THREADS
        yield
        service.stop()

    app = FastAPI(
        title="zentence",
        version=__version__,
        description="The space of a latent-variable language model.",
        lifespan=lifespan,
        openapi_url="/api/openapi.json",
        docs_url=None,  # those pages load scripts from the network
        redoc_url=None,
    )
    app.state.service = service
    app.include_router(router)
    app.get("/healthz")(health)
    app.add_exception_handler(RequestValidationError, _not_as_described)
    for kind, status in ((ZentenceError, 400), (TooSlowError, 408), (BusyError, 429)):
        app.add_exception_handler(kind, _refusal(status))
    app.add_exception_handler(Exception, _failure)
    if page:
        for name in PAGE:
            app.get(f"/{name}", include_in_schema=False)(_file(name))
        app.get("/", include_in_schema=False)(_file("index.html"))
    return app


def _file(name: str) -> Callable[[], Any]:
    """Return what serves a file of the page; it was read before any request, and no request names a path."""
    content = resources.files("zentence.web").joinpath("page", name).read_bytes()

    async def served() -> Response:
        return Response(content, media_type=PAGE[name])

    return served


def _refusal(status: int) -> Callable[[Request, Exception], Any]:
    async def refused(_: Request, error: Exception) -> JSONResponse:
        headers = {"retry-after": "1"} if status == 429 else None
        return JSONResponse({"detail": " ".join(_printable(str(error)).split())}, status, headers)

    return refused


async def _not_as_described(_: Request, error: Exception) -> JSONResponse:
    """Say what is wrong first; what was sent is not repeated."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part)[:60] for part in first["loc"][1:]) or str(first["loc"][0])
    return JSONResponse({"detail": _printable(f"{where}: {first['msg']}")}, 422)


async def _failure(_: Request, error: Exception) -> JSONResponse:
    _LOG.error("a request failed", exc_info=error)
    return JSONResponse({"detail": "The service failed on this request; others are not affected"}, 500)


def _printable(text: str) -> str:
    """Return text that can be sent as UTF-8: half characters are replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")
