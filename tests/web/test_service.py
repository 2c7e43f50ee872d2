"""The API gives LatentSpace's own answers, alone and with twenty requests at once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from zentence.latent import LatentSpace, moves
from zentence.latent.maps import principal_components, tsne
from zentence.web.service import Service

A, B, C = "a cat sat .", "the dog ran to the cat .", "a dog ."
FEW = {"max_words": 12}
DRAWN = {"method": "sample", "temperature": 0.8, "top_p": 0.9, "seed": 5, **FEW}
BEAM = {"method": "beam", "beam": 3, **FEW}


def post(client: TestClient, address: str, **question: Any) -> Any:
    answer = client.post(f"/api/{address}", json=question)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("words", [FEW, DRAWN, BEAM])
def test_every_move_is_the_spaces_own(client: TestClient, space: LatentSpace, words: dict[str, Any]) -> None:
    codes = space.encode([A, B, C])
    assert post(client, "decode", codes=codes.tolist(), **words)["sentences"] == space.decode(codes, **words)
    for way in ({}, {"sample": True}, {"perturb": 3.0}):
        found = post(client, "reconstruct", sentences=[A, B, C], **way, **words)
        assert found["sentences"] == space.reconstruct([A, B, C], **way, **words)
    for way in ({}, {"path": "spherical", "steps": 4}, {"sample": True}):
        found = post(client, "interpolate", start=A, end=B, **way, **words)
        assert found["sentences"] == space.interpolate(A, B, **way, **words)
        assert len(found["at"]) == len(found["codes"]) == len(found["sentences"])
    found = post(client, "analogy", a=A, b=B, c=C, strength=1.5, **words)
    assert found["sentence"] == space.analogy(A, B, C, strength=1.5, **words)
    sides = {"add": {"sentences": [A, C]}, "subtract": {"sentences": [B]}}
    found = post(client, "edit", sentences=[A, B], strength=2.0, **sides, **words)
    direction = space.direction([A, C], [B])
    assert found["sentences"] == space.edit([A, B], direction, strength=2.0, **words)
    assert found["reconstructions"] == space.reconstruct([A, B], **words)
    assert found["norm"] == pytest.approx(float(np.linalg.norm(direction)), rel=1e-5)
    assert post(client, "sample", count=6, scale=0.7, **words)["sentences"] == space.sample(6, scale=0.7, **words)
    [walk] = post(client, "traverse", code=codes[0].tolist(), dimensions=[1], steps=3, **words)["dimensions"]
    [own] = moves.traverse(space, codes[0], [1], steps=3, **words)
    assert walk["own"] == pytest.approx(own.own)
    assert list(zip(walk["at"], walk["sentences"], strict=True)) == [tuple(step) for step in own.steps]


def test_codes(client: TestClient, space: LatentSpace) -> None:
    found = post(client, "encode", sentences=[A, B])
    assert np.array(found["codes"]) == pytest.approx(space.encode([A, B]), abs=1e-6)
    drawn = post(client, "encode", sentences=[A, B], sample=True, seed=3)
    assert np.array(drawn["codes"]) == pytest.approx(space.encode([A, B], sample=True, seed=3), abs=1e-6)


def test_directions_from_labels(client: TestClient, space: LatentSpace, service: Service) -> None:
    corpus = service.need_views().corpus
    cats, dogs = (
        [text for text, own in zip(corpus.sentences, corpus.labels or [], strict=True) if own == label]
        for label in ("cat", "dog")
    )
    sides = {"add": {"label": "cat"}, "subtract": {"label": "dog"}}
    found = post(client, "edit", sentences=[B], strength=1.5, **sides, **FEW)
    direction = space.direction(cats, dogs)
    assert found["sentences"] == space.edit([B], direction, strength=1.5, **FEW)
    assert found["norm"] == pytest.approx(float(np.linalg.norm(direction)), rel=1e-5)
    refused = client.post("/api/edit", json={"sentences": [B], "add": {"label": "bird"}, "subtract": {"label": "dog"}})
    assert refused.status_code == 400 and "'bird'" in refused.json()["detail"]


def test_neighbours_are_the_nearest_codes(client: TestClient, space: LatentSpace, service: Service) -> None:
    corpus = service.need_views().corpus
    code = space.encode(["the cat ran ."])[0]
    distances = np.linalg.norm(corpus.codes.astype(float) - code, axis=1)
    for query in ({"sentence": "the cat ran ."}, {"code": code.tolist()}):
        hits = post(client, "neighbours", k=4, **query)["neighbours"]
        assert [hit["id"] for hit in hits] == np.argsort(distances, kind="stable")[:4].tolist()
        assert [hit["sentence"] for hit in hits] == [corpus.sentences[hit["id"]] for hit in hits]
        assert [hit["distance"] for hit in hits] == pytest.approx(np.sort(distances)[:4], abs=1e-5)
    cosines = [hit["cosine"] for hit in post(client, "neighbours", sentence=A, metric="cosine")["neighbours"]]
    assert cosines == sorted(cosines, reverse=True) and len(cosines) == len(corpus.sentences)


def test_dimensions_are_ordered_by_their_rates(client: TestClient, bare: TestClient, space: LatentSpace) -> None:
    sentences = client.get("/api/corpus").json()["sentences"]
    found, own = client.get("/api/dimensions").json(), moves.rates_by_dimension(space, sentences)
    assert found["rates"] == pytest.approx(own.values, rel=1e-5) and found["order"] == own.order()
    assert (found["exact"], found["sentences"]) == (True, len(sentences))
    alone = bare.get("/api/dimensions", params={"sentence": A}).json()
    assert alone["rates"] == pytest.approx(moves.rates_by_dimension(space, [A]).values, rel=1e-5)
    assert bare.get("/api/dimensions").status_code == 400


def columns(answer: dict[str, Any]) -> Any:
    return np.array([answer["x"], answer["y"]]).T


def test_map_and_places_on_it(client: TestClient, space: LatentSpace, service: Service) -> None:
    corpus = service.need_views().corpus
    points, _ = principal_components(corpus.codes)
    found = client.get("/api/map/pca").json()
    assert columns(found) == pytest.approx(points, abs=1e-4)
    placed = post(client, "project", codes=corpus.codes[:2].tolist())
    assert columns(placed) == pytest.approx(points[:2], abs=1e-4)
    assert client.get("/api/map/tsne").json()["status"] in ("running", "ready")
    assert service.need_views().tsne.wait() is not None, service.need_views().tsne.state()
    found = client.get("/api/map/tsne").json()
    there = tsne(corpus.codes)
    assert columns(found) == pytest.approx(there, rel=1e-3, abs=1e-3)
    placed = post(client, "project", codes=corpus.codes[:1].tolist(), method="tsne")
    assert [placed["x"][0], placed["y"][0]] == pytest.approx(there[0], rel=1e-2, abs=1e-2)  # where its sentence is


def test_likelihoods_come_in_the_background(client: TestClient, space: LatentSpace, service: Service) -> None:
    sentences = client.get("/api/corpus").json()["sentences"]
    assert client.get("/api/likelihoods").json()["status"] in ("running", "ready")
    service.need_views().likelihoods.wait()
    found = client.get("/api/likelihoods").json()
    assert found["values"] == pytest.approx(-space.score(sentences, samples=found["samples"]), abs=1e-3)


def test_card(client: TestClient, bare: TestClient, language_model: TestClient) -> None:
    card = client.get("/api/model").json()
    assert (card["size"], card["has_code"], card["state"]) == (2, True, "unknown")
    assert card["corpus"]["labels"] == [{"name": "dog", "count": 4}, {"name": "cat", "count": 2}]
    assert (card["corpus"]["points"], card["corpus"]["sentences"]) == (6, 60)
    assert "[posterior]" in card["settings"]
    assert bare.get("/api/model").json()["corpus"] is None
    assert bare.get("/api/map/pca").status_code == bare.get("/api/corpus").status_code == 400
    assert language_model.get("/api/model").json()["has_code"] is False
    for path, question in (("encode", {"sentences": [A]}), ("decode", {"codes": [[0.0]]})):
        refused = language_model.post(f"/api/{path}", json=question)
        assert refused.status_code == 400 and "no codes" in refused.json()["detail"]


def test_a_language_model_samples(language_model: TestClient, plain_space: LatentSpace) -> None:
    found = post(language_model, "sample", count=4, seed=2, **FEW)["sentences"]
    assert found == plain_space.sample(4, seed=2, **FEW)


def test_twenty_requests_at_once_give_what_each_gives_alone(
    client: TestClient, space: LatentSpace, service: Service
) -> None:
    codes = space.prior_codes(40, seed=1)
    asked: list[tuple[str, dict[str, Any], Callable[[], list[str]]]] = []
    for i in range(20):
        mine = codes[2 * i : 2 * i + 2]
        seed = {"method": "sample", "seed": i, **FEW}
        asked += [
            ("decode", {"codes": mine.tolist(), **FEW}, lambda mine=mine: space.decode(mine, **FEW)),  # type: ignore[misc]
            ("decode", {"codes": mine.tolist(), **seed}, lambda mine=mine, seed=seed: space.decode(mine, **seed)),  # type: ignore[misc]
            ("interpolate", {"start": A, "end": B, **seed}, lambda seed=seed: space.interpolate(A, B, **seed)),  # type: ignore[misc]
            ("reconstruct", {"sentences": [A, C], **FEW}, lambda: space.reconstruct([A, C], **FEW)),
        ]
    calls, jobs = service.worker.calls, service.worker.jobs
    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(lambda one: post(client, one[0], **one[1])["sentences"], asked))
    assert found == [own() for _, _, own in asked]
    shared, answered = service.worker.calls - calls, service.worker.jobs - jobs
    assert answered == 20 * 4  # a decoding, an encoding, and both of a reconstruction: drawn words are never shared
    assert shared < answered  # and some were


def test_warnings_of_unknown_words_and_of_cuts(client: TestClient) -> None:
    assert post(client, "reconstruct", sentences=[A], **FEW)["warnings"] == []
    [warning] = post(client, "reconstruct", sentences=["xqzzy blorf"], **FEW)["warnings"]
    assert "'xqzzy blorf'" in warning
