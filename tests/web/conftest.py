from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

from zentence.corpora.vocabulary import build_vocabulary
from zentence.latent import LatentSpace
from zentence.settings import CorpusSettings
from zentence.testing import tiny_model, tiny_settings
from zentence.web.api import create_app
from zentence.web.corpus import Corpus
from zentence.web.guard import LOOPBACK, Guard
from zentence.web.service import Service
from zentence.web.worker import Worker

SENTENCES = ["a cat sat .", "the dog ran to the cat .", "a dog .", "the cat sat to a dog .", "a dog ran .", "the dog ."]
LABELS = ["cat", "dog", "dog", "cat", "dog", "dog"]


def tiny_space(language_model: bool = False, overrides: tuple[str, ...] = ()) -> LatentSpace:
    """Return a random model whose sentences differ with their codes, and end."""
    vocabulary = build_vocabulary(Counter(" ".join(SENTENCES).split()), CorpusSettings())
    model = tiny_model(overrides, vocabulary=len(vocabulary), spread=0.8, language_model=language_model).float()
    with torch.no_grad():
        model.decoder.output.bias[2] -= 1.0
    return LatentSpace(model, vocabulary, tiny_settings(overrides, language_model=language_model))


@pytest.fixture(scope="session")
def space() -> LatentSpace:
    return tiny_space()


@pytest.fixture(scope="session")
def plain_space() -> LatentSpace:
    return tiny_space(language_model=True)


def client_of(service: Service, *, token: str | None = None, page: bool = True) -> TestClient:
    """Return a client of the service, guarded as it is on loopback."""
    hosts = LOOPBACK | {"testserver"}
    app: Any = Guard(create_app(service, page=page), token=token, hosts=hosts)
    return TestClient(app, raise_server_exceptions=False)


@pytest.fixture(scope="session")
def make_client() -> Callable[..., TestClient]:
    return client_of


@pytest.fixture(scope="session")
def make_space() -> Callable[..., LatentSpace]:
    return tiny_space


@pytest.fixture(scope="session")
def service(space: LatentSpace) -> Iterator[Service]:
    corpus = Corpus("captions", SENTENCES, LABELS, space.encode(SENTENCES), 60)
    found = Service(tiny_space(), corpus, worker=Worker(gathering=0.02))
    yield found
    found.stop()


@pytest.fixture(scope="session")
def client(service: Service) -> TestClient:
    return client_of(service)  # not entered: the service outlives it


@pytest.fixture(scope="session")
def bare() -> Iterator[TestClient]:
    """A service without a corpus."""
    found = Service(tiny_space())
    yield client_of(found)
    found.stop()


@pytest.fixture(scope="session")
def language_model() -> Iterator[TestClient]:
    found = Service(tiny_space(language_model=True))
    yield client_of(found)
    found.stop()
