"""`explore` and `serve` by their entry point: start, answer, stop; ports, hosts and tokens."""

import json
import signal
import socket
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

A = "a man is sitting ."


@pytest.fixture(scope="module")
def model(preloaded: Any, files: list[str], tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("served") / "model"
    preloaded("train", *files, "--out", folder, *tiny())
    return folder


def get(address: str, **headers: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def post(address: str, question: Any, **headers: str) -> Any:
    headers = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(address, json.dumps(question).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.parametrize("command", ["explore", "serve"])
def test_help(preloaded: Any, command: str) -> None:
    shown = preloaded(command, "--help").out
    assert shown.startswith(f"Usage: zentence {command} ")
    for option in ("--corpus", "--points", "--port", "--host", "--token", "--json"):
        assert f"  {option} " in shown
    assert ("--no-browser" in shown) == (command == "explore")


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_serve_answers_and_stops(zentence: Any, preloaded: Any, model: Path, end: signal.Signals) -> None:
    process = zentence.start("serve", model, "--port", 0)
    said = process.stdout.readline()
    assert said.startswith(f"Serving {model} at http://127.0.0.1:")
    address = said.split()[-1]
    assert get(f"{address}healthz")[0] == 200
    assert get(address)[0] == 404  # no page
    found = post(f"{address}api/reconstruct", {"sentences": [A]})
    assert found["sentences"] == [preloaded("reconstruct", model, A, "--json").json[0]["reconstruction"]]
    card = json.loads(get(f"{address}api/model")[1])
    assert card["corpus"]["points"] == 20 and card["model"] == str(model)  # the validation text of its training
    process.send_signal(end)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out.splitlines()[-1]) == (0, "Stopped.")
    assert "Traceback" not in err


def test_a_request_at_hand_is_answered_before_the_end(zentence: Any, model: Path) -> None:
    process = zentence.start("serve", model, "--port", 0)
    address = process.stdout.readline().split()[-1]
    size = json.loads(get(f"{address}api/model")[1])["size"]
    question = {"codes": [[0.1 * n] * size for n in range(64)], "method": "sample", "max_words": 200}
    with ThreadPoolExecutor(6) as pool:  # what is drawn shares no call: one after the other
        answers = [pool.submit(post, f"{address}api/decode", {**question, "seed": n}) for n in range(6)]
        answers[0].exception(60)
        process.send_signal(signal.SIGTERM)
        assert not all(answer.done() for answer in answers), "nothing was at hand any more"
        assert [len(answer.result(60)["sentences"]) for answer in answers] == [64] * 6
    assert process.communicate(timeout=60)[0].splitlines()[-1] == "Stopped."
    with pytest.raises(urllib.error.URLError):
        get(f"{address}healthz")


def test_a_port_in_use_is_said_before_the_model_is_read(preloaded: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        shown = preloaded("serve", tmp_path / "none", "--port", port, expect=2)
    assert shown.err.startswith(f"zentence: Port {port} is in use: pass --port ")
    free = int(shown.err.split("--port ")[1].split(",")[0])
    with socket.create_server(("127.0.0.1", free)):
        pass


def test_mistakes(preloaded: Any, model: Path, tmp_path: Path) -> None:
    assert "not a model directory" in preloaded("serve", tmp_path, "--port", 0, expect=2).err
    missing = preloaded("explore", model, "--port", 0, "--corpus", tmp_path / "missing.txt", expect=2)
    assert "missing.txt" in missing.err and missing.err.count("\n") == 1
    assert "at least 8" in preloaded("serve", model, "--port", 0, "--token", "short", expect=2).err
    assert "Unknown host" in preloaded("serve", model, "--port", 0, "--host", "no.such.host.invalid", expect=2).err


def test_beyond_this_machine_a_token_is_made(zentence: Any, model: Path) -> None:
    process = zentence.start("explore", model, "--port", 0, "--host", "0.0.0.0", "--json", env={"DISPLAY": ""})
    said = json.loads(process.stdout.readline())
    port = said["address"].split(":")[2].split("/")[0]
    address = f"http://127.0.0.1:{port}/"
    assert len(said["token"]) >= 24 and said["address"].endswith(f"#token={said['token']}")
    assert get(f"{address}api/model")[0] == 401 and get(address)[0] == 200
    status, content = get(f"{address}api/model", Authorization=f"Bearer {said['token']}")
    assert status == 200 and str(model.parent) not in content.decode()  # no path of this machine
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and out == ""  # one JSON document, and nothing after it
    assert "not encrypted" in err and "no browser could be opened" in err
