"""Maps: coordinates against the singular value decomposition, what is drawn, and text that would like to be code."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from zentence.errors import ZentenceError
from zentence.latent.maps import (
    MAX_LABELS,
    OTHER,
    Colour,
    choose,
    make_map,
    need_libraries,
    principal_components,
    tsne,
    write_page,
    write_picture,
)

HOSTILE = [
    "</script><script>alert(1)</script>",
    '<img src=x onerror="alert(2)">',
    "a & b < c > d \" ' &lt;b&gt;",
    "<a href='javascript:alert(3)'>press</a>",
    "日本 \u2028 \u2029 naïve",
    "$\\frac{1}{2$ _x^",
    "word " * 300,
    "b" * 500,
]


@pytest.fixture(scope="module")
def codes() -> np.ndarray:
    random = np.random.default_rng(0)
    return (random.normal(size=(120, 5)) * [5.0, 1.0, 3.0, 0.5, 0.1] + random.integers(0, 2, size=(120, 1))).astype(
        np.float32
    )


def test_principal_components_are_those_of_the_decomposition(codes: np.ndarray) -> None:
    points, shares = principal_components(codes)
    x = codes.astype(np.float64) - codes.astype(np.float64).mean(0)
    u, s, v = np.linalg.svd(x, full_matrices=False)
    expected = u[:, :2] * s[:2] * np.sign(v[np.arange(2), np.abs(v[:2]).argmax(1)])
    assert points == pytest.approx(expected, abs=1e-9)
    assert shares == pytest.approx(s[:2] ** 2 / (s**2).sum())
    assert np.array_equal(principal_components(codes)[0], points)


def test_principal_components_of_little() -> None:
    points, shares = principal_components(np.array([[1.0], [3.0]]))
    assert points == pytest.approx(np.array([[-1.0, 0.0], [1.0, 0.0]])) and shares == pytest.approx([1.0, 0.0])
    points, shares = principal_components(np.ones((5, 3)))
    assert np.all(points == 0.0) and np.all(shares == 0.0)


def test_t_sne_repeats_with_its_seed_and_separates_groups() -> None:
    random = np.random.default_rng(1)
    codes = np.concatenate((random.normal(size=(40, 4)), 30.0 + random.normal(size=(40, 4)))).astype(np.float32)
    points = tsne(codes, seed=3)
    assert np.array_equal(points, tsne(codes, seed=3))
    distance = np.linalg.norm(points[:, None] - points[None], axis=-1)
    np.fill_diagonal(distance, np.inf)
    nearest = distance.argmin(1)
    assert np.array_equal(nearest < 40, np.arange(80) < 40)
    assert tsne(np.ones((6, 3))).shape == (6, 2)
    with pytest.raises(ZentenceError, match="at least 4 sentences"):
        tsne(codes[:3])


def test_a_choice_is_even_ordered_and_repeats() -> None:
    assert choose(range(5), 5, 0) == ([0, 1, 2, 3, 4], 5)
    chosen, count = choose(iter(range(1000)), 100, 7)
    assert count == 1000 and len(set(chosen)) == 100 and chosen == sorted(chosen)
    assert chosen == choose(range(1000), 100, 7)[0] != choose(range(1000), 100, 8)[0]
    taken = np.zeros(20)
    for seed in range(2000):
        taken[choose(range(20), 5, seed)[0]] += 1
    assert np.abs(taken - 500).max() < 5 * np.sqrt(2000 * 0.25 * 0.75)


def test_rare_labels_share_a_group() -> None:
    labels = [f"l{i}" for i in range(25) for _ in range(30 - i)]
    groups = Colour("label", labels).groups()
    assert [name for name, _ in groups] == [*(f"l{i}" for i in range(MAX_LABELS - 1)), OTHER]
    assert sorted(np.concatenate([places for _, places in groups])) == list(range(len(labels)))
    assert {labels[place] for place in groups[-1][1]} == {f"l{i}" for i in range(MAX_LABELS - 1, 25)}
    assert [name for name, _ in Colour("label", ["b", "a", "b"]).groups()] == ["b", "a"]


class Page(HTMLParser):
    """The elements of a page as a browser sees them, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def figure_of(page: Page) -> tuple[list[dict], dict]:
    """Return the traces and the layout that a page gives to plotly."""
    script = next(script for script in page.scripts if "Plotly.newPlot(" in script and len(script) < 200_000)
    decoder, rest = json.JSONDecoder(), script.split("Plotly.newPlot(", 1)[1]
    found = []
    while len(found) < 3:
        start = re.match(r"[\s,]*", rest).end()  # type: ignore[union-attr]
        value, end = decoder.raw_decode(rest[start:])
        found.append(value)
        rest = rest[start + end :]
    return found[1], found[2]


@pytest.mark.parametrize("kind", ["label", "length"])
def test_hostile_text_is_shown_and_never_run(kind: str, codes: np.ndarray, tmp_path: Path) -> None:
    colour = Colour(HOSTILE[0], HOSTILE) if kind == "label" else Colour(HOSTILE[1], np.arange(8.0))
    drawn = make_map(HOSTILE, codes[:8], colour, ["pca"], note=HOSTILE[1])
    write_page(drawn, tmp_path / "map.html")
    text = (tmp_path / "map.html").read_text(encoding="utf-8")
    page = Page(text)
    assert {tag for tag, _ in page.tags} <= {"html", "head", "meta", "title", "body", "div", "script"}
    assert not any(name.startswith("on") or name in ("src", "href") for _, attrs in page.tags for name in attrs)
    traces, layout = figure_of(page)
    shown = [text for trace in traces for text in trace["text"]]
    assert len(shown) == 8
    allowed = re.compile(r"</?(b|i|br)>")
    for string in (*shown, layout["title"]["text"], *(trace.get("name", "") for trace in traces)):
        assert "<" not in allowed.sub("", string) and ">" not in allowed.sub("", string)
    assert any("&lt;/script&gt;&lt;script&gt;alert(1)" in string for string in shown)
    assert any("a &amp; b &lt; c &gt; d \" ' &amp;lt;b&amp;gt;" in string for string in shown)
    assert any("naïve" in string for string in shown)
    assert all(len(string) < 1500 for string in shown)


def test_a_page_needs_nothing_else_and_offers_both_methods(codes: np.ndarray, tmp_path: Path) -> None:
    sentences = [f"sentence {i} ." for i in range(120)]
    drawn = make_map(sentences, codes, Colour("label", ["x", "y"] * 60), seed=1, note="120 sentences")
    write_page(drawn, tmp_path / "map.html")
    text = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert not re.search(r"<(script|link)[^>]*(src|href)\s*=", text) and len(text) > 1_000_000
    traces, layout = figure_of(Page(text))
    assert [trace["visible"] for trace in traces] == [True, True, False, False]
    buttons = layout["updatemenus"][0]["buttons"]
    assert [button["label"] for button in buttons] == ["principal components", "t-SNE"]
    assert [button["args"][0]["visible"] for button in buttons] == [
        [True, True, False, False],
        [False, False, True, True],
    ]
    assert traces[0]["x"] == pytest.approx(drawn.points["pca"][::2, 0].tolist())
    assert traces[3]["y"] == pytest.approx(drawn.points["tsne"][1::2, 1].tolist())
    assert "sentence 2 ." in traces[0]["text"][1]
    write_page(drawn, tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == text


def test_a_picture_shows_the_points(codes: np.ndarray, tmp_path: Path) -> None:
    from matplotlib.image import imread

    labels = ["_hidden", "$x", "日本", "x" * 100] * 30
    drawn = make_map(["a"] * 120, codes, Colour("label", labels), ["pca"], note="$note")
    write_picture(drawn, tmp_path / "map.png")
    picture = imread(tmp_path / "map.png")
    assert picture.shape[0] > 500 and picture.shape[1] > 800
    colours = {tuple(row) for row in np.round(picture[::2, ::2, :3].reshape(-1, 3), 1).tolist()}
    assert len(colours) > 20
    write_picture(drawn, tmp_path / "again.png")
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "map.png").read_bytes()
    numbers = make_map(["a"] * 120, codes, Colour("length", np.arange(120.0)), ["pca"])
    write_picture(numbers, tmp_path / "numbers.png")
    assert (tmp_path / "numbers.png").stat().st_size > 10_000


def test_maps_of_too_little_or_too_much_are_refused() -> None:
    with pytest.raises(ZentenceError, match="at least 2 sentences"):
        make_map(["a"], np.zeros((1, 2)), Colour("length", np.ones(1)), ["pca"])
    with pytest.raises(ZentenceError, match="at most 20,000 points"):
        make_map(["a"] * 20_001, np.zeros((20_001, 2)), Colour("length", np.ones(20_001)), ["pca"])


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    need_libraries(["pca", "tsne"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "sklearn" else name)
    need_libraries(["pca"])
    with pytest.raises(ZentenceError, match="A map needs scikit-learn: pip install"):
        need_libraries(["pca", "tsne"])


def test_maps_of_the_same_sentences_stand_side_by_side(codes: np.ndarray, tmp_path: Path) -> None:
    from matplotlib.image import imread

    sentences, colour = [f"sentence {i}" for i in range(120)], Colour("label", ["x", "y", "x"] * 40)
    maps = [
        make_map(sentences, vectors, colour, ["pca"], note="120 sentences", title=title)
        for title, vectors in (("code", codes), ("<b>encoder", codes[:, ::-1] * [9.0, 1.0, 1.0, 1.0, 1.0]))
    ]
    write_page(maps, tmp_path / "map.html")
    traces, layout = figure_of(Page((tmp_path / "map.html").read_text(encoding="utf-8")))
    assert [trace.get("xaxis", "x") for trace in traces] == ["x", "x", "x2", "x2"]
    assert [trace["legendgroup"] for trace in traces] == ["0", "1", "0", "1"]
    assert [trace.get("showlegend", True) for trace in traces] == [True, True, False, False]
    assert traces[0]["marker"]["color"] == traces[2]["marker"]["color"] != traces[1]["marker"]["color"]
    assert traces[3]["y"] == pytest.approx(maps[1].points["pca"][1::3, 1].tolist())
    assert layout["xaxis"]["domain"][1] < layout["xaxis2"]["domain"][0]
    titles = [note["text"] for note in layout["annotations"]]
    assert titles == ["code: principal components", "&lt;b&gt;encoder: principal components"]
    write_picture(maps, tmp_path / "two.png")
    write_picture(maps[0], tmp_path / "one.png")
    two, one = (imread(tmp_path / name).shape for name in ("two.png", "one.png"))
    assert two[0] == one[0] and two[1] > 1.7 * one[1]
    with pytest.raises(ValueError, match="of the same sentences"):
        write_picture([maps[0], make_map(sentences[::-1], codes, colour, ["pca"])], tmp_path / "bad.png")
