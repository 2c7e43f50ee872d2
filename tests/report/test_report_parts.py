"""What a report computes itself: code maps, smoothed curves, digits, marked words."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zentence.evaluation.measurement import Measurement
from zentence.report import charts
from zentence.report.codemap import map_codes
from zentence.report.record import Histogram, read_records, table, vector
from zentence.report.sections import marked, shown_value


def test_running_mean_against_a_loop() -> None:
    values = np.random.default_rng(0).normal(size=23)
    for width in (1, 2, 5, 50):
        half = width // 2
        expected = [values[max(0, n - half) : n + half + 1].mean() for n in range(23)]
        np.testing.assert_allclose(charts.running_mean(values, width), expected, atol=1e-12)


def test_principal_components_against_the_covariance() -> None:
    random = np.random.default_rng(0)
    codes = (random.normal(size=(200, 4)) * [3.0, 2.0, 0.5, 0.1] + 5.0).astype(np.float32)
    found = map_codes(codes, random.integers(1, 30, 200), None, None, seed=0)
    values, vectors = np.linalg.eigh(np.cov(codes.astype(np.float64).T))
    assert found.explained == pytest.approx((values[3] / values.sum(), values[2] / values.sum()))
    expected = (codes - codes.mean(0, dtype=np.float64)) @ vectors[:, [3, 2]]
    np.testing.assert_allclose(np.abs(found.principal), np.abs(expected), atol=1e-5)
    assert found.neighbours is not None
    assert found.neighbours.shape == (200, 2)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_maps_of_small_and_equal_codes(size: int) -> None:
    found = map_codes(np.ones((12, size), dtype=np.float32), np.full(12, 4), None, None, seed=0)
    assert found.principal.shape == (12, 2)
    assert np.isfinite(found.principal).all()
    assert found.neighbours is None
    assert found.names == ["4"]


def test_lengths_fall_into_fifths() -> None:
    lengths = np.arange(1, 101)
    found = map_codes(np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32), lengths, None, None, seed=0)
    assert found.names == ["1–20", "21–40", "41–60", "61–80", "81–100"]
    assert np.bincount(found.groups).tolist() == [20] * 5


def test_many_labels_share_a_rest() -> None:
    labels = np.repeat(np.arange(10), np.arange(10, 0, -1)).astype(np.int32)
    codes = np.random.default_rng(0).normal(size=(len(labels), 3)).astype(np.float32)
    found = map_codes(codes, np.ones(len(labels), dtype=np.int64), labels, [f"label {n}" for n in range(10)], seed=0)
    assert found.by == "label"
    assert found.names == [*(f"label {n}" for n in range(6)), "4 other labels"]
    assert np.bincount(found.groups).tolist() == [10, 9, 8, 7, 6, 5, 4 + 3 + 2 + 1]


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (133.0119, 2.5025, ("133.0", "2.5")),
        (107.0382, 0.9214, ("107.04", "0.92")),
        (5.81666, 0.02639, ("5.817", "0.026")),
        (1234567.8, 500.0, ("1,234,567.8", "500.0")),
        (0.012345, 0.00001, ("0.0123", "0.0000")),
        (3.0, None, ("3.00", "")),
        (0.0, None, ("0.00", "")),
        (0.0123, None, ("0.0123", "")),
        (2.0, 0.0, ("2.00", "0.00")),
    ],
)
def test_digits(value: float, error: float | None, shown: tuple[str, str]) -> None:
    cell = shown_value(Measurement("rate", value, "nats", "estimate", error, 10, None, "valid", 0))
    assert cell[:2] == shown


def test_marked_words() -> None:
    assert marked("a red dog runs", "the dog runs now") == [("a red", False), ("dog runs", True)]
    assert marked("", "a") == []
    assert marked("a b", "a b") == [("a b", True)]


def test_json_that_is_no_table() -> None:
    assert vector([1, 2.5]) is not None
    for wrong in (None, [], "12", [1, "2"], [True], [float("nan")], [[1]]):
        assert vector(wrong) is None
    assert table([[1, 2], [3, 4]], 2) is not None
    for wrong in ([[1, 2], [3]], [1, 2], {}, [[1, None]]):
        assert table(wrong, 2) is None
    for wrong in (
        {"edges": [0, 1], "counts": [0]},
        {"edges": [1, 0], "counts": [2]},
        {"edges": [0, 1, 2], "counts": [1]},
    ):
        assert Histogram.parse(wrong) is None


def test_plane_leaves_out_runs_on_other_text(make_run: Any, figure: Any) -> None:
    def pair(count: int) -> list[dict[str, Any]]:
        return [{**figure("rate", 3.0), "count": count}, {**figure("distortion", 20.0), "count": count}]

    folders: list[Path] = [make_run("one", pair(30)), make_run("two", pair(30)), make_run("far", pair(31))]
    folders.append(make_run("lm", [figure("nll", 22.0, "exact")], language_model=True))
    records = read_records(folders)
    picture, left_out = charts.rate_distortion_plane(records)
    assert left_out == ["far"]
    assert picture is not None
    assert {"one", "two", "lm"} <= set(picture.svg.replace("<", ">").split(">"))
    assert charts.rate_distortion_plane(records[-1:]) == (None, [])
