"""The page: sections by data, escaping, nothing from outside, the same bytes every time."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from zentence.errors import ZentenceError
from zentence.report import write_report

SHARED = {
    *("training-step-distortion", "training-step-rate", "training-step-beta", "training-step-multiplier"),
    *("training-step-active-units", "training-validation-iw-nll", "rate-distortion", "k-curve", "melbo"),
}
OWN = {
    *("rate-per-dimension-1", "variance-spectrum-1", "log-likelihood-pairs-1", "log-posterior-pairs-1"),
    *("sentence-bounds-1", "lengths-1", "code-map-pca-1", "code-map-tsne-1"),
}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img/src=x/onerror=alert(1)>',
    "--><svg/onload=alert(1)>",
    "]]></style><b>",
    "&lt;i&gt;",
    "$x_1^{2}$",
    "{{7*7}}",
    "'onmouseover='alert(1)",
]


KNOWN = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "footer", "section", "div", "p", "a", "span"),
    *("h1", "h2", "h3", "h4", "em", "i", "b", "code", "pre", "details", "summary", "dl", "dt", "dd", "ol", "ul", "li"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td", "figure", "figcaption"),
    *("svg", "g", "path", "text", "use", "defs", "clippath", "rect"),
}


class Page(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.html = path.read_text(encoding="utf-8")
        self.feed(self.html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def stems(images: list[Path]) -> set[str]:
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in images)
    return {path.stem for path in images}


def test_all_figures_make_all_sections(whole: Any) -> None:
    _, report, steps = whole
    assert stems(report.images) == SHARED | OWN
    assert {path.parent for path in report.images} == {report.path.with_name("page-images")}
    page = Page(report.path)
    assert page.tags.count("svg") == len(SHARED | OWN)
    assert "To fill this in" not in page.text
    for word in (
        "2 of 2 units active",
        "New sentences",
        "Reconstructions",
        "Interpolations",
        "Settings and provenance",
    ):
        assert word in page.text
    assert page.text.index("2 of 2 units active") < page.text.index("Figures")  # the verdict comes first
    assert report.verdicts["run"] in page.text
    assert 'name = "gaussian"' in page.text  # all settings
    assert "1,234" in page.text  # parameters, from the log
    assert steps[-1] == ("drawing", steps[-1][2], steps[-1][2])
    assert all(0 <= done <= total for _, done, total in steps)


def test_what_was_not_measured_is_named_with_its_command(make_run: Any, tmp_path: Path) -> None:
    folder = make_run("bare run")
    report = write_report([folder], tmp_path / "page.html", examples=False)
    assert report.images == []
    text = Page(report.path).text
    for metrics in ("rate,distortion", "iw_nll", "melbo_nll", "rate", "active_units", "log_likelihood_pairs",
                    "log_posterior_pairs", "iw_nll,elbo_nll"):  # fmt: skip
        assert f"zentence evaluate '{folder}' --metrics {metrics}" in text
    assert "has no log.jsonl" in text
    assert "--no-examples" in text
    assert "New sentences" not in text


def test_language_model(make_run: Any, figure: Any, tmp_path: Path) -> None:
    folder = make_run(results=[figure("nll", 28.0, "exact")], language_model=True)
    text = Page(write_report([folder], tmp_path / "page.html", threads=1).path).text
    assert "New sentences" in text
    assert "a language model has no codes" in text.lower()
    assert "melbo" not in text
    assert "Reconstructions" not in text


def test_hostile_text_stays_text(make_run: Any, figure: Any, tmp_path: Path) -> None:
    """Words, labels, run name, split name, units, settings: whatever they spell, the page shows it and does nothing."""
    lines = [f"{HOSTILE[n % 8]}\t" + " ".join(HOSTILE[(n * k + k) % 8] for k in range(1, 7)) for n in range(90)]
    name = "<b onclick=x>&amp;'\"run$_$"
    rows = [figure("rate", 3.0, split=HOSTILE[0]), figure("distortion", 9.0, split=HOSTILE[0])]
    rows.append({**figure("<i>", 1.0, split=HOSTILE[0]), "unit": HOSTILE[1], "provenance": {HOSTILE[2]: HOSTILE[3]}})
    log = [{"event": "warning", "message": HOSTILE[2]}, *[{"event": "step", "tick": n, "rate": 1.0} for n in range(3)]]
    folder = make_run(name, rows, text=lines, log=log, labels="yes")
    other = make_run("_hidden", rows, text=lines, log=log, labels="yes")
    page = Page(write_report([folder, other], tmp_path / "page.html", threads=1).path)
    assert not {"script", "img", "b onclick", "iframe", "object", "link"} & set(page.tags)
    assert not [item for item in page.attributes if item[0].startswith("on") or "javascript:" in item[1]]
    assert page.tags.count("style") == page.html.count("</style>") == 1
    assert set(page.tags) <= KNOWN
    for word in (*HOSTILE, name, "_hidden", "<i>"):
        assert word in page.text, word
    assert page.html.count("<text") == page.html.count("</text>")
    legends = re.findall(r"<text[^>]*>([^<]*)</text>", page.html)
    assert any("&lt;script&gt;" in text for text in legends)  # a label in a picture
    assert any(text.strip() == "_hidden" for text in legends)


def test_control_characters_do_not_reach_the_page(make_run: Any, figure: Any, tmp_path: Path) -> None:
    rows = [figure("rate", 3.0, split="a\u202eb\x1bc\u200dd"), figure("distortion", 9.0, split="a\u202eb\x1bc\u200dd")]
    report = write_report([make_run(results=rows)], tmp_path / "page.html", examples=False)
    html = report.path.read_text(encoding="utf-8")
    assert "a\ufffdb\ufffdc\u200dd" in html
    assert not {"\u202e", "\x1b"} & set(html)


def test_nothing_comes_from_outside(whole: Any) -> None:
    page = Page(whole[1].path)
    assert not re.findall(r"https?://", page.html)
    for name, value in page.attributes:
        if name in ("src", "href", "xlink:href"):
            assert value.startswith("#"), (name, value)
    assert all(found.startswith("#") for found in re.findall(r"url\(([^)]*)\)", page.html))
    assert "@import" not in page.html
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(set(ids)) == len(ids)
    used = {value[1:] for name, value in page.attributes if name.endswith("href")}
    assert used | set(re.findall(r"url\(#([^)]*)\)", page.html)) <= set(ids)


def test_equal_input_gives_equal_bytes(whole: Any, tmp_path: Path) -> None:
    folder, first, _ = whole
    second = write_report([folder], tmp_path / "page.html", threads=1)
    assert first.path.read_bytes() == second.path.read_bytes()
    for one, other in zip(first.images, second.images, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_nothing_is_replaced_unasked(make_run: Any, tmp_path: Path) -> None:
    folder, out = make_run(), tmp_path / "page.html"
    out.write_text("mine")
    with pytest.raises(ZentenceError, match="exists"):
        write_report([folder], out, examples=False)
    assert out.read_text() == "mine"
    write_report([folder], out, examples=False, overwrite=True)
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_without_the_training_text(make_run: Any, tmp_path: Path) -> None:
    """Figures and samples stay; what needs text is left out, or comes from a file that is given."""
    folder = make_run()
    text = (folder / "valid.txt").rename(tmp_path / "other.txt")
    (folder / "train.txt").unlink()
    bare = Page(write_report([folder], tmp_path / "bare.html", threads=1).path).text
    assert "New sentences" in bare
    assert "Reconstructions" not in bare
    assert "No such file" in bare
    assert "--text FILE" in bare
    full = Page(write_report([folder], tmp_path / "full.html", text=text, threads=1).path).text
    assert "Sentences of other.txt" in full
    assert "nearest sentence of the training text" not in full


def test_without_the_model(make_run: Any, figure: Any, tmp_path: Path) -> None:
    folder = make_run(results=[figure("rate", 3.0, per_dimension=[2.0, 1.0])])
    (folder / "model.safetensors").unlink()
    text = Page(write_report([folder], tmp_path / "page.html", threads=1).path).text
    assert "model.safetensors is missing" in text
    assert "Rate per dimension" in text


def test_damaged_details_are_left_out(make_run: Any, figure: Any, tmp_path: Path) -> None:
    rows = [
        figure("iw_nll", 29.0, "upper_bound", histogram={"edges": [0, 1], "counts": [1, 2]}, k_curve=[[1], "x"]),
        figure("rate", 3.0, per_dimension=["a", None]),
        figure("active_units", 2, variances=[]),
        figure("melbo_nll", 2.0, curve={"a": 1}, meets=[], extrapolation=3),
        figure("log_posterior_pairs", 9.0, same=None, other=7),
    ]
    folder = make_run(results=rows, log=[{"event": "step", "tick": "x", "rate": None}, {"event": "start", "corpus": 3}])
    with (folder / "log.jsonl").open("a") as file:
        file.write('[1, 2]\n{"event": "st')
    assert write_report([folder], tmp_path / "page.html", examples=False).images == []


def test_kinds_and_texts_are_kept_apart(make_run: Any, figure: Any, tmp_path: Path) -> None:
    exact = make_run("lm", [figure("ppl", 11.0, "exact")], language_model=True)
    bound = make_run("vae", [figure("ppl", 12.0, "upper_bound"), figure("ppl", 13.0, "upper_bound", split="test")])
    elsewhere = make_run("other", [{**figure("ppl", 14.0, "exact"), "count": 31}], language_model=True)
    html = write_report([exact, bound, elsewhere], tmp_path / "page.html", examples=False).path.read_text("utf-8")
    tables = [
        " ".join(re.sub(r"<[^>]*>", " ", table).split()) for table in re.findall(r"<table.*?</table>", html, re.DOTALL)
    ]
    assert len(tables) == 3
    shared, test, other = tables
    assert re.search(r"valid · 30 sentences.*Exact.*11\.00.*–.*Upper bounds.*–.*12\.00", shared)
    assert "13.00" in test and "11.00" not in test and "14.00" not in test
    assert "31 sentences" in other and "14.00" in other and "11.00" not in other
