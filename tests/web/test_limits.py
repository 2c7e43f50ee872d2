"""Limits, tokens, other sites' pages, and requests of every shape: refused in words, never a crash."""

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zentence.latent import LatentSpace
from zentence.web import guard, worker
from zentence.web import requests as ask
from zentence.web.service import Service

A = "a cat sat ."


def refused(answer: Any, status: int) -> str:
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["detail"]
    said: str = answer.json()["detail"]
    assert said and "\n" not in said and "Traceback" not in said
    return said


@pytest.mark.parametrize(
    ("path", "question", "status", "says"),
    [
        ("encode", {"sentences": []}, 422, "at least 1"),
        ("encode", {"sentences": [""]}, 422, "at least 1"),
        ("encode", {"sentences": ["a", " \t"]}, 400, "Sentence 2 is empty"),
        ("encode", {"sentences": ["x" * (ask.CHARACTERS + 1)]}, 422, str(ask.CHARACTERS)),
        ("encode", {"sentences": ["a " * (ask.WORDS + 1)]}, 400, f"at most {ask.WORDS}"),
        ("encode", {"sentences": [A] * (ask.SENTENCES + 1)}, 422, str(ask.SENTENCES)),
        ("encode", {"sentences": A}, 422, "list"),
        ("encode", {"sentences": [A], "file": "/etc/passwd"}, 422, "file"),
        ("decode", {"codes": [[0.0]]}, 400, "2 numbers"),
        ("decode", {"codes": [[0.0, 1e300]]}, 422, "1000000"),
        ("decode", {"codes": [[0.0, 0.0]], "max_words": ask.WORDS + 1}, 422, "max_words"),
        ("decode", {"codes": [[0.0, 0.0]], "method": "best"}, 422, "greedy"),
        ("decode", {"codes": [[0.0, 0.0]], "method": "beam", "beam": 11}, 422, "beam"),
        ("reconstruct", {"sentences": [A], "sample": True, "perturb": 1.0}, 422, "not both"),
        ("interpolate", {"start": A, "end": A, "steps": ask.STEPS + 1}, 422, "steps"),
        ("interpolate", {"start": A, "end": A, "path": "curly"}, 422, "spherical"),
        ("edit", {"sentences": [A], "add": {}, "subtract": {"label": "cat"}}, 422, "label or sentences"),
        ("traverse", {"code": [0.0, 0.0], "dimensions": [2]}, 400, "from 0 to 1"),
        ("neighbours", {"k": 3}, 422, "one of the two"),
        ("sample", {"count": ask.SENTENCES + 1}, 422, "count"),
        ("project", {"codes": [[0.0, 0.0]], "method": "umap"}, 422, "pca"),
    ],
)  # fmt: skip
def test_limits_are_said(client: TestClient, path: str, question: dict[str, Any], status: int, says: str) -> None:
    assert says in refused(client.post(f"/api/{path}", json=question), status)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b"[" * 5000, b'{"sentences": [NaN]}']
)
def test_bodies_that_are_no_request(client: TestClient, body: bytes) -> None:
    answer = client.post("/api/encode", content=body, headers={"content-type": "application/json"})
    assert 400 <= answer.status_code < 500 and answer.json()["detail"]


def test_numbers_that_are_none_and_half_characters(client: TestClient) -> None:
    for body in (b'{"codes": [[NaN, 0]]}', b'{"codes": [[1e999, 0]]}', b'{"codes": [[0, 0]], "temperature": Infinity}'):
        refused(client.post("/api/decode", content=body, headers={"content-type": "application/json"}), 422)
    body = b'{"sentences": ["\\ud800 cat"]}'
    refused(client.post("/api/encode", content=body, headers={"content-type": "application/json"}), 422)


def test_a_body_that_is_too_large(client: TestClient) -> None:
    large = b" " * (ask.BODY + 1)
    assert "at most" in refused(client.post("/api/encode", content=large), 413)
    parts = (large[: ask.BODY // 2] for _ in range(3))  # without its length in advance
    assert "at most" in refused(client.post("/api/encode", content=parts), 413)


def test_another_sites_page_and_another_name_are_refused(client: TestClient) -> None:
    assert client.get("/healthz").status_code == 200
    refused(client.get("/healthz", headers={"host": "evil.example"}), 403)
    refused(client.get("/api/model", headers={"host": "127.0.0.1.evil.example:80"}), 403)
    assert client.get("/api/model", headers={"host": "127.0.0.1:8642"}).status_code == 200
    assert client.get("/api/model", headers={"host": "[::1]:8642"}).status_code == 200
    refused(client.post("/api/sample", json={}, headers={"origin": "http://evil.example"}), 403)
    assert client.post("/api/sample", json={}, headers={"origin": "http://testserver"}).status_code == 200
    refused(client.get("/api/map/tsne", headers={"sec-fetch-site": "cross-site"}), 403)
    assert client.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200  # a link to the page
    plain = client.post("/api/sample", content=b"{}", headers={"content-type": "text/plain"})  # needs no preflight
    assert 400 <= plain.status_code < 500


def test_token(service: Service, make_client: Any) -> None:
    guarded = make_client(service, token="a-secret-token")
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "a-secret-token"},
        {"authorization": "Bearer"},
    ):
        refused(guarded.get("/api/model", headers=headers), 401)
        refused(guarded.get("/api/openapi.json", headers=headers), 401)
    assert guarded.get("/api/model", headers={"authorization": "Bearer a-secret-token"}).status_code == 200
    assert guarded.get("/").status_code == guarded.get("/healthz").status_code == 200


def test_the_page_is_served_with_nothing_else(client: TestClient, service: Service, make_client: Any) -> None:
    page = client.get("/")
    assert (
        page.headers["content-type"].startswith("text/html")
        and "script-src 'self'" in page.headers["content-security-policy"]
    )
    for name in ("app.js", "map.js", "panels.js", "copy.js", "service.js", "style.css", "icon.svg"):
        assert client.get(f"/{name}").status_code == 200
    assert "http://" not in page.text and "https://" not in page.text  # works without a network
    for path in (
        "/../api.py",
        "/%2e%2e/api.py",
        "/page/index.html",
        "/etc/passwd",
        "/..%2fapi.py",
        "/app.js/../../api.py",
    ):
        assert client.get(path).status_code == 404
    assert make_client(service, page=False).get("/").status_code == 404


def test_a_crash_leaves_the_others_alone(client: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("a bug, with a secret path")

    with monkeypatch.context() as patch:
        patch.setattr(service, "analogy", broken)
        answer = client.post("/api/analogy", json={"a": A, "b": A, "c": A})
        assert answer.status_code == 500 and "secret" not in answer.text
    assert client.post("/api/analogy", json={"a": A, "b": A, "c": A}).status_code == 200


def test_too_many_and_too_slow(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(worker, "MAX_WAITING", 1)
        answer = client.post("/api/encode", json={"sentences": [A, A]})
        assert "waiting" in refused(answer, 429) and answer.headers["retry-after"] == "1"
    with monkeypatch.context() as patch:
        patch.setattr(guard, "SECONDS", 0.0)
        assert "too long" in refused(client.post("/api/encode", json={"sentences": [A]}), 408)
    assert client.post("/api/encode", json={"sentences": [A, A]}).status_code == 200


def test_text_comes_back_as_it_is_and_never_as_markup(client: TestClient) -> None:
    answer = client.post(
        "/api/edit", json={"sentences": [A], "add": {"label": "<b>x</b>"}, "subtract": {"label": "cat"}}
    )
    assert (
        answer.headers["content-type"] == "application/json" and answer.headers["x-content-type-options"] == "nosniff"
    )
    assert "'<b>x</b>'" in refused(answer, 400)


# Requests made from the OpenAPI description, half of them with something wrong in them.

TEXTS = st.sampled_from(["a", A, "the dog ran .", "zebra", "-x", "<i>", "é\u2028 'q'", " "]) | st.text(max_size=30)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_subnormal=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def of_schema(schema: dict[str, Any], whole: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return values that a schema describes, limits included."""
    if "$ref" in schema:
        return of_schema(whole["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], whole)
    if "anyOf" in schema:
        return st.one_of([of_schema(one, whole) for one in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema.get("type")
    if kind == "object":
        required = {n: of_schema(s, whole) for n, s in schema["properties"].items() if n in schema.get("required", [])}
        rest = {n: of_schema(s, whole) for n, s in schema["properties"].items() if n not in required}
        return st.fixed_dictionaries(required, optional=rest)
    if kind == "array":
        most = min(schema.get("maxItems", 4), 4)
        inner = of_schema(schema["items"], whole)
        return st.lists(inner, min_size=schema.get("minItems", 0), max_size=most) | st.lists(
            inner, min_size=2, max_size=2
        )
    if kind == "integer":
        return st.integers(schema.get("minimum"), min(schema.get("maximum", 40), 40))
    if kind == "number":
        return st.floats(schema.get("minimum", 0.01), schema.get("maximum", 1.0), allow_subnormal=False)
    return {"string": TEXTS, "boolean": st.booleans(), "null": st.none()}[str(kind)]


@st.composite
def damaged(draw: st.DrawFn, value: Any) -> Any:
    """Put something else in one place of a value."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        name = draw(st.sampled_from(sorted(value)))
        return {**value, name: draw(damaged(value[name]))}
    if isinstance(value, list) and value and draw(st.booleans()):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], draw(damaged(value[place])), *value[place + 1 :]]
    return draw(ANYTHING)


@pytest.fixture(scope="module")
def description(client: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/api/openapi.json").json()
    return found


OPERATIONS = (
    "decode", "encode", "reconstruct", "interpolate", "analogy", "edit", "traverse", "neighbours", "sample", "project"
)  # fmt: skip


def test_every_operation_is_described(description: dict[str, Any]) -> None:
    posts = {path for path, operations in description["paths"].items() if "post" in operations}
    assert posts == {f"/api/{name}" for name in OPERATIONS}
    for operations in description["paths"].values():
        for operation in operations.values():
            assert operation["description"] and "schema" in operation["responses"]["200"]["content"]["application/json"]


@pytest.mark.parametrize("name", OPERATIONS)
@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_nothing_makes_the_service_fail(
    client: TestClient, language_model: TestClient, description: dict[str, Any], name: str, data: st.DataObject
) -> None:
    body = description["paths"][f"/api/{name}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    question = data.draw(of_schema(body, description))
    if data.draw(st.booleans()):
        question = data.draw(damaged(question))
    content = json.dumps(question).encode()
    for asked in (client, language_model):
        answer = asked.post(f"/api/{name}", content=content, headers={"content-type": "application/json"})
        assert answer.status_code < 500, (question, answer.text)
        if answer.status_code != 200:
            refused(answer, answer.status_code)


def test_cut_sentences_are_warned_of(space: LatentSpace, make_client: Any, make_space: Any) -> None:
    short = Service(make_space(overrides=("corpus.max_words=3",)))
    answer = make_client(short).post("/api/encode", json={"sentences": ["a cat sat to the dog ."]})
    assert answer.json()["warnings"] == ["The sentence has 7 words: only the first 3 are read"]
    short.stop()
