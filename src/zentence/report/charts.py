"""The pictures of a report: each takes runs and returns a picture, or None where there is nothing to draw."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from zentence.report.picture import INK, MUTED, SERIES, Picture, direct_legend, draw_picture, shown_name
from zentence.report.record import Histogram, Numbers, Record, is_number, table, vector

LATE = 0.15  # the share of training after which a curve's height decides the axis: the first steps dwarf all others
SMOOTH = 25  # a log's line is smoothed over 1 / SMOOTH of the training; batches differ in the length of their sentences


def color_of(number: int) -> str:
    """Return the colour of the n-th run."""
    return SERIES[number % len(SERIES)]


def _several(curves: Sequence[tuple[int, Record, Any]]) -> bool:
    return len(curves) > 1


def training_curve(
    runs: Sequence[Record], event: str, name: str, title: str, unit: str, caption: str, noisy: bool = False
) -> Picture | None:
    """Draw one logged number over training, a line a run.

    A `noisy` one gets a running mean over its faint raw line, and an axis that fits it after the first steps; others
    get an axis with zero.
    """
    curves = [(n, run, found) for n, run in enumerate(runs) if (found := run.curve(event, name)) is not None]
    if not curves:
        return None
    validation = event == "validation"

    def draw(axes: Any) -> None:
        low, high = math.inf, -math.inf
        for number, run, (steps, values) in curves:
            color, smooth = color_of(number), values
            if noisy and not validation:
                axes.plot(steps, values, color=color, linewidth=0.8, alpha=0.3)
                smooth = running_mean(values, max(1, len(values) // SMOOTH))
            marker = "o" if validation else None
            axes.plot(steps, smooth, color=color, label=shown_name(run.name), marker=marker, markersize=4)
            late = values[steps >= LATE * steps[-1]] if noisy else values
            low, high = min(low, float(late.min())), max(high, float(late.max()))
        low = low if noisy else min(low, 0.0)
        margin = 0.06 * (high - low) or 1.0
        axes.set_ylim(low - (margin if low else 0.0), high + margin)
        axes.set_xlim(left=0)
        axes.set_xlabel("update")
        axes.set_ylabel(unit)
        direct_legend(axes, _several(curves))

    return draw_picture(f"training-{event}-{name}".replace("_", "-"), title, caption, draw)


def running_mean(values: Numbers, width: int) -> Numbers:
    """Return the mean of each value and its neighbours up to width // 2 away; fewer at the ends."""
    half, total = width // 2, np.concatenate(([0.0], np.cumsum(values)))
    place = np.arange(len(values))
    first, last = np.maximum(place - half, 0), np.minimum(place + half + 1, len(values))
    return np.asarray((total[last] - total[first]) / (last - first), dtype=np.float64)


def rate_distortion_plane(runs: Sequence[Record]) -> tuple[Picture | None, list[str]]:
    """Draw all runs by rate and distortion, with lines of equal −ELBO; also name runs measured on other text."""
    points: list[tuple[int, Record, Numbers]] = []
    for number, run in enumerate(runs):
        rate, distortion, exact = run.figure("rate"), run.figure("distortion"), run.figure("nll")
        if rate is not None and distortion is not None:
            place = np.array(
                [rate.value, distortion.value, rate.standard_error or 0.0, distortion.standard_error or 0.0]
            )
            points.append((number, run, place))
        elif exact is not None:  # a language model needs no code
            place = np.array([0.0, exact.value, 0.0, exact.standard_error or 0.0])
            points.append((number, run, place))
    if not any(run.figure("rate") for _, run, _ in points):
        return None, []
    texts = [run.text(run.split) for _, run, _ in points]
    text = Counter(texts).most_common(1)[0][0]
    left_out = [run.name for (_, run, _), other in zip(points, texts, strict=True) if other != text]
    kept = [point for point, other in zip(points, texts, strict=True) if other == text]
    caption = (
        "Each run by what its code costs (rate) and what the words still cost once the code is known (distortion). "
        "Along a dashed line the sum, −ELBO, is the same: lower lines are better models, and further right more "
        "is said by the code."
    )
    if len(kept) == 1:
        count = kept[0][1].settings.evaluation.selection_sentences
        caption += f" Small points: validation during training, on {count:,} sentences at most."
    picture = draw_picture(
        "rate-distortion", "Rate–distortion plane", caption, lambda axes: _draw_plane(axes, kept), (6.2, 4.3)
    )
    return picture, left_out


def _draw_plane(axes: Any, points: Sequence[tuple[int, Record, Numbers]]) -> None:
    seen_x, seen_y = [p[0] for *_, p in points], [p[1] + side * p[3] for *_, p in points for side in (-1.0, 1.0)]
    path = _validation_path(points[0][1]) if len(points) == 1 else None
    if path is not None:
        axes.plot(*path.T, color=color_of(points[0][0]), marker="o", markersize=3, linewidth=1.0, alpha=0.55)
        seen_x += path[len(path) // 3 :, 0].tolist()
        seen_y += path[len(path) // 3 :, 1].tolist()
    for number, run, (x, y, error_x, error_y) in points:
        axes.errorbar(
            x,
            y,
            yerr=error_y,
            xerr=error_x,
            fmt="o",
            color=color_of(number),
            markersize=7,
            capsize=2,
            label=shown_name(run.name),
        )
    span = max(max(seen_y) - min(seen_y), 0.6 * max(seen_x), 1.0)
    left, right = min(0.0, *seen_x) - 0.02 * max(seen_x), 1.25 * max(seen_x) + 0.5
    bottom, top = min(seen_y) - 0.2 * span, max(seen_y) + 0.2 * span
    _equal_sums(axes, left, right, bottom, top)
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.grid(False)
    axes.set_xlabel("rate: what the code costs, nats per sentence")
    axes.set_ylabel("distortion, nats per sentence")
    direct_legend(axes, len(points) > 1, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3)


def _equal_sums(axes: Any, left: float, right: float, bottom: float, top: float) -> None:
    """Draw lines of equal rate + distortion across a picture, each with its sum where it leaves."""
    step = _round_step((right + top - left - bottom) / 7)
    for total in np.arange(math.ceil((left + bottom) / step) * step, right + top, step):
        axes.plot([left, right], [total - left, total - right], color=MUTED, linewidth=0.8, alpha=0.6, dashes=(4, 4))
        at, beyond = min(right, total - bottom), 0.12 * (right - left)
        if at <= left + beyond or total - at >= top - 0.05 * (top - bottom):
            continue
        below = at == right  # the sum stands under a line that leaves at the right, beside one that leaves below
        shift, align = ((-2, -3), ("right", "top")) if below else ((4, 3), ("left", "bottom"))
        axes.annotate(
            f"{total:g}",
            (at, total - at),
            shift,
            textcoords="offset points",
            ha=align[0],
            va=align[1],
            color=MUTED,
            fontsize=9,
        )


def _validation_path(run: Record) -> Numbers | None:
    rate, distortion = run.curve("validation", "rate"), run.curve("validation", "distortion")
    if rate is None or distortion is None or len(rate[0]) != len(distortion[0]):
        return None
    return np.stack((rate[1], distortion[1]), axis=1)


def _round_step(step: float) -> float:
    """Return the nearest of 1, 2, 5 × 10ⁿ."""
    power = 10.0 ** math.floor(math.log10(step))
    return power * min((1.0, 2.0, 5.0, 10.0), key=lambda factor: abs(factor * power - step))


def sampling_curve(runs: Sequence[Record]) -> Picture | None:
    """Draw the importance-weighted bound against the number of codes K."""
    found = [(n, run, table(run.detail("iw_nll", "k_curve"), 2)) for n, run in enumerate(runs)]
    curves = [(n, run, rows) for n, run, rows in found if rows is not None and len(rows) > 1 and (rows[:, 0] > 0).all()]
    if not curves:
        return None

    def draw(axes: Any) -> None:
        for number, run, rows in curves:
            axes.plot(
                rows[:, 0], rows[:, 1], color=color_of(number), marker="o", markersize=4, label=shown_name(run.name)
            )
        _log_axis(axes)
        axes.set_xlabel("codes a sentence, K")
        axes.set_ylabel("bound of −log p(x), nats per sentence")
        direct_legend(axes, _several(curves))

    caption = "More codes give a tighter bound. Where the curve is level, more would change nothing."
    return draw_picture("k-curve", "The bound against the number of codes", caption, draw)


def _log_axis(axes: Any) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def melbo_curve(runs: Sequence[Record]) -> Picture | None:
    """Draw MELBO against the number N of sentences, with spread, floor and extrapolation (paper 1, Fig. 5)."""
    found = [(n, run, table(run.detail("melbo_nll", "curve"), 3)) for n, run in enumerate(runs)]
    curves = [(n, run, rows) for n, run, rows in found if rows is not None and len(rows) > 1 and (rows[:, 0] > 0).all()]
    if not curves:
        return None

    def draw(axes: Any) -> None:
        for number, run, rows in curves:
            N, mean, spread = rows.T
            axes.fill_between(N, mean - spread, mean + spread, color=color_of(number), alpha=0.2, linewidth=0)
            axes.plot(N, mean, color=color_of(number), marker="o", markersize=4, label=shown_name(run.name))
            _draw_melbo_extras(axes, run, rows, color_of(number))
        N = np.unique(np.concatenate([rows[:, 0] for *_, rows in curves]))
        axes.plot(N, np.log(N), color=MUTED, dashes=(1.5, 2.5), label="floor, log N")
        _log_axis(axes)
        axes.set_xlabel("sentences, N")
        axes.set_ylabel("MELBO, nats per sentence")
        direct_legend(axes, True)

    caption = (
        "Distortion and log N, as if a code had only to name one of the N measured sentences: no bound of −log p(x), "
        "but what a paper on such models prints. It cannot fall below log N. The dashed line goes on with its slope; "
        "a diamond marks where it meets a given likelihood."
    )
    return draw_picture("melbo", "MELBO against the number of sentences", caption, draw)


def _draw_melbo_extras(axes: Any, run: Record, rows: Numbers, color: str) -> None:
    line, meets = run.detail("melbo_nll", "extrapolation"), run.detail("melbo_nll", "meets")
    end = float(rows[-1, 0]) * 4.0
    if isinstance(meets, dict) and is_number(meets.get("n")) and is_number(meets.get("nll")) and meets["n"] >= 1.0:
        if meets["n"] < 1e4 * end:  # further off it would squeeze all else
            end = max(end, float(meets["n"]))
            axes.plot([meets["n"]], [meets["nll"]], "D", color=color, markersize=6)
        axes.axhline(meets["nll"], color=color, linewidth=0.8, alpha=0.6)
    if isinstance(line, dict) and is_number(line.get("slope")) and is_number(line.get("intercept")):
        N = np.geomspace(rows[0, 0], end, 30)
        axes.plot(N, line["intercept"] + line["slope"] * np.log(N), color=color, linewidth=1.0, dashes=(5, 3))


def sorted_bars(run: Record, number: int, metric: str, key: str) -> Picture | None:
    """Draw a figure of each dimension, largest first: the rate, or the variance of the codes' means."""
    values = vector(run.detail(metric, key))
    if values is None:
        return None
    ordered = np.sort(values)[::-1]
    threshold = run.detail(metric, "threshold")
    if metric == "rate":
        title, unit, name = "Rate per dimension", "rate, nats", "rate-per-dimension"
        caption = "What each dimension of the code costs, largest first. A dimension near zero says nothing."
    else:
        title, unit, name = "Variance spectrum", "variance of the mean", "variance-spectrum"
        caption = "How much the codes’ means differ between sentences, by dimension, largest first."
        caption += f" Above {threshold:g}, the dashed line, a unit counts as active." if is_number(threshold) else ""

    def draw(axes: Any) -> None:
        axes.bar(np.arange(1, len(ordered) + 1), ordered, width=0.8, color=color_of(number))
        if metric != "rate" and is_number(threshold):
            if ordered[-1] > 0.0 and ordered[0] / ordered[-1] > 50.0:
                axes.set_yscale("log")
            axes.axhline(threshold, color=INK, linewidth=1.0, dashes=(4, 3))
        axes.grid(axis="x", visible=False)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("dimension, sorted")
        axes.set_ylabel(unit)

    return draw_picture(f"{name}-{number + 1}", title, caption, draw)


def pair_histograms(run: Record, number: int, metric: str) -> Picture | None:
    """Draw log p(x_i|z_j) or log q(z_i|x_j): own pairs (i = j) against strangers (i ≠ j)."""
    same, other = (Histogram.parse(run.detail(metric, key)) for key in ("same", "other"))
    if same is None or other is None:
        return None
    if metric == "log_likelihood_pairs":
        title, unit = "Words given codes", "log p(words of i | code of j), nats"
        caption = "If the decoder uses the code, a sentence is likelier given its own code than given another’s."
    else:
        title, unit = "Codes given sentences", "log q(code of i | sentence j), nats"
        caption = "How well the encoder tells sentences apart: densities of codes under their own and other sentences."

    def draw(axes: Any) -> None:
        for part, color, label in ((other, SERIES[6], "another sentence’s"), (same, color_of(number), "its own")):
            axes.stairs(part.shares, part.edges, color=color, fill=True, alpha=0.45)
            axes.stairs(part.shares, part.edges, color=color, linewidth=1.2, label=label)
        axes.set_xlabel(unit)
        axes.set_ylabel("share of pairs, %")
        direct_legend(axes, True)

    return draw_picture(f"{metric.replace('_', '-')}-{number + 1}", title, caption, draw)


def bound_histograms(run: Record, number: int) -> Picture | None:
    """Draw the histograms of −log p, or of its bounds, over the sentences of the split."""
    kept = run.sentence_figures()
    found: list[tuple[str, Histogram]] = []
    for name in ("nll", "elbo_nll", "iw_nll"):
        histogram = Histogram.parse(run.detail(name, "histogram"))
        if histogram is None and name in kept:
            histogram = Histogram.of(kept[name])
        if histogram is not None:
            found.append((name, histogram))
    if not found:
        return None
    return _stairs(
        f"sentence-bounds-{number + 1}",
        "Sentence by sentence",
        "How the figure is spread over the sentences; long sentences cost more.",
        "nats of a sentence",
        [(name, histogram, color_of(number + place)) for place, (name, histogram) in enumerate(found)],
    )


def length_histogram(lengths: Numbers, number: int, unit: str) -> Picture:
    """Draw how many words the sentences have."""
    longest = int(lengths.max())
    width = max(1, -(-longest // 60))
    edges = np.arange(0.5, longest + width + 0.5, width)
    counts = np.histogram(lengths, bins=edges)[0].astype(np.float64)
    return _stairs(
        f"lengths-{number + 1}",
        "Sentence lengths",
        f"{len(lengths):,} sentences, {lengths.mean():.1f} {unit} on average, the longest {longest}.",
        unit,
        [("", Histogram(edges, counts), color_of(number))],
    )


def _stairs(name: str, title: str, caption: str, unit: str, parts: Sequence[tuple[str, Histogram, str]]) -> Picture:
    def draw(axes: Any) -> None:
        for label, part, color in parts:
            if len(parts) == 1:  # two fillings would hide each other
                axes.stairs(part.shares, part.edges, color=color, fill=True, alpha=0.35)
            axes.stairs(part.shares, part.edges, color=color, linewidth=1.2, label=label or None)
        axes.set_xlabel(unit)
        axes.set_ylabel("share of sentences, %")
        axes.set_ylim(bottom=0.0)
        direct_legend(axes, len(parts) > 1)

    return draw_picture(name, title, caption, draw)
