"""Walking through a space in a browser: what is shown is what LatentSpace gives, and what is copied gives it again."""

import contextlib
import io
import os
import subprocess
import sys
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

A, B = "a man is sitting .", "the dog runs in the park ."
OPAQUE = """(side) => {
  const canvas = document.getElementById("map"), ratio = devicePixelRatio;
  const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const box = canvas.getBoundingClientRect();
  let best = null, count = 0;
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) {
    if (data[4 * (y * width + x) + 3] < 100) continue;
    count++;
    if (best === null || (side === "left" ? x < best[0] : x > best[0])) best = [x, y];
  }
  return { count, x: box.left + best[0] / ratio, y: box.top + best[1] / ratio };
}"""


def settle(page: Any) -> None:
    """Wait until the newest question has its answer."""
    page.wait_for_timeout(450)  # what is typed is not asked at once
    page.wait_for_selector("#results[aria-busy=false]")


def ready(page: Any) -> None:
    page.wait_for_selector("#map[data-ready]")
    page.wait_for_timeout(300)
    settle(page)


def rows(page: Any) -> list[str]:
    """Return the sentences that the page shows; one without words is shown in brackets."""
    return ["" if text == "(no words)" else text for text in page.locator(".result .said").all_inner_texts()]


def with_state(address: str, **state: object) -> str:
    return f"{address}#{urllib.parse.urlencode(state)}"


@pytest.fixture(scope="module")
def space(explorer: Any) -> Any:
    from zentence import LatentSpace

    return LatentSpace.load(explorer.model)


def test_load_hover_select_two_points_and_interpolate(
    explorer: Any, open_page: Callable[..., Any], space: Any, tmp_path: Path
) -> None:
    page = open_page(explorer.address)
    ready(page)
    assert "units active" in page.inner_text("#verdict")
    assert page.locator("#figures tbody tr").count() >= 5
    left, right = page.evaluate(OPAQUE, "left"), page.evaluate(OPAQUE, "right")
    assert left["count"] > 500
    page.mouse.move(left["x"], left["y"])
    tip = page.locator("#tip")
    tip.wait_for(state="visible")
    sentences = [line.split("\t")[1] for line in explorer.corpus.read_text(encoding="utf-8").splitlines()]
    hovered = tip.inner_text().split("\n")[0]
    assert hovered in sentences
    page.screenshot(path=tmp_path / "hover.png")
    page.click("#tab-interpolate")
    for point in (left, right):
        page.mouse.click(point["x"], point["y"])
    settle(page)
    a, b = page.input_value("#field-a"), page.input_value("#field-b")
    assert a == hovered and b in sentences and a != b
    assert rows(page) == space.interpolate(a, b)
    page.wait_for_selector("#map[data-path='7']")
    page.screenshot(path=tmp_path / "interpolation.png")
    before = page.url
    page.reload()
    ready(page)
    assert page.url == before and rows(page) == space.interpolate(a, b)


def test_drag_a_dimension(explorer: Any, open_page: Callable[..., Any], space: Any, tmp_path: Path) -> None:
    page = open_page(with_state(explorer.address, panel="dimensions", s=A))
    page.wait_for_selector(".dimension input")
    settle(page)
    assert page.locator(".dimension").count() == space.size
    rates = [float(text.split()[0]) for text in page.locator(".rate").all_inner_texts()]
    assert rates == sorted(rates, reverse=True)
    line = page.locator(".dimension").first
    box = line.locator("input").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] / 2, steps=5)
    page.mouse.up()
    settle(page)
    d, value = int(line.get_attribute("data-dimension")), float(line.locator("input").input_value())
    assert value > 2.0 and f"{d}%3A{value:g}" in page.url
    code, (center, scale) = space.encode(A), space.prior_moments()
    own = space.decode(code[None])[0]
    code[d] = center[d] + value * scale[d]
    assert rows(page)[:2] == [own, space.decode(code[None])[0]]
    page.screenshot(path=tmp_path / "dimension.png")
    assert shown_by_python(page)[0] == str([space.decode(code[None])[0]])


def shown_by_python(page: Any) -> list[str]:
    """Copy the Python program, run it, and return the lines that it prints."""
    page.click("[data-copy=python]")
    page.wait_for_selector("#copied:has-text('Python')")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(page.evaluate("navigator.clipboard.readText()"), {})
    return printed.getvalue().splitlines()


def copied_command(page: Any) -> str:
    page.click("[data-copy=command]")
    page.wait_for_selector("#copied:has-text('Command')")
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


def run_in_shell(command: str, folder: Path) -> list[str]:
    """Run a command as a reader would who pasted it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_what_is_copied_gives_the_same_again(
    explorer: Any, open_page: Callable[..., Any], space: Any, tmp_path: Path
) -> None:
    words = {"method": "sample", "temperature": 0.7, "seed": 3, "max_words": 20}
    page = open_page(with_state(explorer.address, panel="interpolate", a="it 's - odd", b=B, steps=4, **words))
    ready(page)
    shown = rows(page)
    assert shown == space.interpolate("it 's - odd", B, steps=4, **words)
    command = copied_command(page)
    assert run_in_shell(command, tmp_path) == shown
    assert shown_by_python(page) == shown
    page.click("[data-copy=text]")
    page.wait_for_selector("#copied:has-text('Text')")
    assert page.evaluate("navigator.clipboard.readText()").splitlines()[1] == f"0.33\t{shown[1]}"

    page.goto(with_state(explorer.address, panel="edit", s=A, add="=long", less="=short", strength=2))
    ready(page)
    after = rows(page)[1]
    assert run_in_shell(copied_command(page), tmp_path) == [A, f"  -> {after}"]
    assert shown_by_python(page) == [str([after])]


def test_the_other_panels(explorer: Any, open_page: Callable[..., Any], space: Any, tmp_path: Path) -> None:
    page = open_page(with_state(explorer.address, panel="reconstruct", s=A, push=4, seed=2))
    ready(page)
    ways: list[dict[str, Any]] = [{}, {"sample": True}, {"perturb": 4.0}]
    written = [space.reconstruct([A], seed=2, **way) for way in ways]
    assert rows(page) == [row[0] for row in written]
    assert shown_by_python(page) == [str(row) for row in written]
    assert copied_command(page).endswith(f"--side-by-side --perturb 4 --seed 2 '{A}'")

    page.goto(with_state(explorer.address, panel="analogy", a=A, b=B, c="a woman walks .", strength=1.5))
    ready(page)
    assert rows(page) == [space.analogy(A, B, "a woman walks .", strength=1.5)] == shown_by_python(page)

    page.goto(with_state(explorer.address, panel="sample", n=3, scale=0.5))
    ready(page)
    assert rows(page) == space.sample(3, scale=0.5) == shown_by_python(page)
    page.click("#words > summary")
    page.click("#again")
    settle(page)
    assert rows(page) == space.sample(3, scale=0.5, seed=1)
    page.screenshot(path=tmp_path / "sample.png")


def test_text_of_the_corpus_is_never_markup(explorer: Any, open_page: Callable[..., Any]) -> None:
    hostile = explorer.corpus.read_text(encoding="utf-8").splitlines()[-1].split("\t")[1]
    page = open_page(with_state(explorer.address, panel="neighbours", s=hostile, k=5))
    ready(page)
    assert rows(page)[0] == hostile
    page.locator(".result").first.hover()
    page.locator("#tip").wait_for(state="visible")
    assert page.inner_text("#tip").startswith(hostile)
    assert page.locator("img").count() == page.locator("main b:not(.dimension b)").count() == 0


def test_keyboard(explorer: Any, open_page: Callable[..., Any], space: Any) -> None:
    page = open_page(explorer.address)
    ready(page)
    page.focus("#map")
    page.keyboard.press("ArrowRight")
    page.locator("#tip").wait_for(state="visible")
    found = page.inner_text("#tip").split("\n")[0]
    page.keyboard.press("Enter")
    settle(page)
    assert page.input_value("#field-s") == found and rows(page)[0] == space.reconstruct([found])[0]
    page.focus("#tab-reconstruct")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-interpolate"
    assert page.get_attribute("#tab-interpolate", "aria-selected") == "true"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "field-a"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone(explorer: Any, open_page: Callable[..., Any], tmp_path: Path, scheme: str) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True, "color_scheme": scheme}
    page = open_page(with_state(explorer.address, panel="interpolate", a=A, b=B), **phone)
    ready(page)
    for name in ("interpolate", "dimensions", "edit"):
        page.locator(f"#tab-{name}").tap()
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.screenshot(path=tmp_path / f"{name}.png", full_page=True)
    page.locator("#card > summary").tap()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_results_do_not_move_what_is_above_them(explorer: Any, open_page: Callable[..., Any]) -> None:
    page = open_page(with_state(explorer.address, panel="interpolate", a=A, b=B))
    ready(page)
    page.evaluate("""() => {
      window.moved = 0;
      const add = (list) => { for (const entry of list.getEntries()) window.moved += entry.value; };
      new PerformanceObserver(add).observe({ type: "layout-shift" });
    }""")
    before = page.locator("#results").bounding_box()["y"]
    page.locator("#field-path").select_option("spherical")
    settle(page)
    assert page.locator("#results").bounding_box()["y"] == before
    assert page.evaluate("window.moved") < 0.1


def test_without_a_corpus_and_with_a_token(
    start: Callable[..., str], model: Path, open_page: Callable[..., Any], tmp_path: Path, space: Any
) -> None:
    settings = (model / "settings.toml").read_text(encoding="utf-8")
    alone = tmp_path / "alone"
    alone.mkdir()
    for name in ("tokenizer.json", "model.safetensors", "results.json"):
        (alone / name).write_bytes((model / name).read_bytes())
    lines = [line for line in settings.splitlines() if "captions" not in line]
    (alone / "settings.toml").write_text("\n".join(lines), encoding="utf-8")
    address = start(alone, "--token", "open-sesame")
    assert address.endswith("#token=open-sesame")
    page = open_page(address)
    page.wait_for_selector("#field-s")
    assert "token" not in page.url and not page.is_visible("#map")
    page.fill("#field-s", A)
    settle(page)
    assert rows(page)[0] == space.reconstruct([A])[0]
    assert "neighbours" not in page.inner_text("#tabs").lower()
    other = open_page(address.split("#")[0])
    other.wait_for_selector("#ask[open]")
    other.fill("#token", "open-sesame")
    other.click("#ask button")
    other.wait_for_selector("#field-s")


def test_mistakes_are_said_in_the_panel(explorer: Any, open_page: Callable[..., Any]) -> None:
    page = open_page(with_state(explorer.address, panel="reconstruct", s="xqzzy blorf"))
    ready(page)
    assert "'xqzzy blorf'" in page.inner_text("#warnings")
    page.fill("#field-s", "a " * 300)
    page.wait_for_timeout(500)
    page.wait_for_selector("#problem:visible")
    assert "at most 200" in page.inner_text("#problem")
    assert page.is_disabled("[data-copy=text]")
