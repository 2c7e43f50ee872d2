"""Pictures: one matplotlib figure as inline SVG that follows the page's colours, and as a PNG for papers."""

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from zentence.errors import ZentenceError

INK, MUTED, GRID = "#1b2430", "#5a6676", "#e1e5ea"
SERIES = ("#2a68b0", "#c4561b", "#16846a", "#9149a3", "#8a7300", "#b5325c", "#4d5b6b", "#0b86a5")
RAMP = ("#9ccfab", "#57b2a4", "#2d8c9c", "#2a6089", "#2b2d66")  # small to large
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    **{color: f"--series-{number}" for number, color in enumerate(SERIES, 1)},
    **{color: f"--ramp-{number}" for number, color in enumerate(RAMP, 1)},
}
DPI = 200  # of the PNGs
_STYLE: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10.5,
    "text.color": INK,
    "text.parse_math": False,  # labels come from users: a $ is a $
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",  # letters stay letters: a small file, and text that can be searched and copied
    "svg.image_inline": True,
}


@dataclass(frozen=True)
class Picture:
    """A drawn picture; `svg` is safe to place in a page."""

    name: str
    title: str
    caption: str
    svg: str
    png: bytes


def draw_picture(
    name: str,
    title: str,
    caption: str,
    draw: Callable[[Any], None],
    size: tuple[float, float] = (5.0, 3.4),
) -> Picture:
    """Call draw(axes) and return what came of it, as SVG and PNG. Size in inches; equal input gives equal bytes."""
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ZentenceError("A report needs matplotlib: pip install 'zentence[plots]'") from error
    svg, png = io.BytesIO(), io.BytesIO()
    style: Any = {**_STYLE, "svg.hashsalt": name}  # ids in the SVG follow from the name
    with rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # the PNG shows a box, the SVG is right
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure.subplots())
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # what was laid out once need not be laid out for each format
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    return Picture(name, title, caption, _inline(svg.getvalue().decode(), title), png.getvalue())


def shown_name(text: str, longest: int = 28) -> str:
    """Return a user's name for a legend: short, drawable, and not hidden as matplotlib hides names with `_` first."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    if len(shown) > longest:
        shown = f"{shown[: longest // 2 - 1]}…{shown[-(longest // 2) :]}"
    return f" {shown}" if shown.startswith("_") else shown


def direct_legend(axes: Any, many: bool, **options: Any) -> None:
    """Add a legend where there is more than one thing to tell apart."""
    if many:
        axes.legend(**{"loc": "best", "handlelength": 1.4, **options})


def dots(axes: Any, x: Sequence[float], y: Sequence[float], color: str, size: float, label: str | None = None) -> None:
    """Draw a cloud of dots as one path: a tenth of the bytes of as many markers."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    vertices = [(a + shift, b) for a, b in zip(x, y, strict=True) for shift in (0.0, 1e-9)]
    if vertices:
        path = Path(vertices, [Path.MOVETO, Path.LINETO] * (len(vertices) // 2))
        path.should_simplify = False
        axes.add_patch(PathPatch(path, facecolor="none", edgecolor=color, linewidth=size, capstyle="round", alpha=0.8))
    axes.plot([], [], "o", color=color, markersize=size + 1.5, label=label)


def _inline(svg: str, title: str) -> str:
    """Return an SVG for the inside of a page: no ids but those in use, short numbers, colours by name."""
    body = svg[svg.index("<svg") :]
    # its <style> would hold for the whole page; ours has the same
    body = re.sub(r"<metadata>.*?</metadata>|<defs>\s*<style[^>]*>[^<]*</style>\s*</defs>", "", body, flags=re.DOTALL)
    used = set(re.findall(r'(?:href="#|url\(#)([\w-]+)', body))

    def tidy(tag: re.Match[str]) -> str:
        text = re.sub(r' id="([\w.-]+)"', lambda found: found[0] if found[1] in used else "", tag[0])
        text = re.sub(r"#[0-9a-f]{6}\b", lambda found: _color(found[0]), text)
        return re.sub(r"(\d\.\d\d)\d+", r"\1", text)

    body = re.sub(r"<[^>]*>", tidy, body)
    view = re.search(r'viewBox="[^"]*"', body)
    start = f'<svg {view[0] if view else ""} role="img" aria-label="{escape(title, quote=True)}">'
    return re.sub(r"\n\s*", "\n", start + body[body.index(">") + 1 :])


def _color(found: str) -> str:
    return f"var({VARIABLES[found]})" if found in VARIABLES else found
