"""Bars against a ceiling, as an SVG picture that needs no program to make."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape

COLOURS = {
    "radiance": "#0b6e4f",
    "radiance int8": "#55b58f",
    "llama.cpp": "#b45309",
    "llama.cpp flash": "#e5a35a",
    "openvino-genai": "#3b5b92",
}
_WIDTH, _LEFT, _BAR, _GAP = 760, 150, 13, 12
_PLOT = _WIDTH - _LEFT - 90


@dataclass(frozen=True, slots=True)
class Panel:
    """One group of bars a file; ``ceiling`` is the line that they are held against."""

    title: str
    unit: str
    ceiling: float
    bars: Mapping[str, Mapping[str, float]]


def picture(panels: list[Panel]) -> str:
    """Return the SVG text; panels stand below each other."""
    shapes, y = list(legend()), 44.0
    for panel in panels:
        drawn = list(drawing(panel, y))
        y = float(drawn.pop())
        shapes += drawn
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y:.0f}" '
        'font-family="sans-serif" font-size="11" role="img">'
    )
    background = f'<rect width="{_WIDTH}" height="{y:.0f}" fill="#ffffff"/>'
    return "\n".join([head, background, *shapes, "</svg>"]) + "\n"


def legend() -> Iterator[str]:
    """Yield a mark and a name for each contender."""
    for i, (name, colour) in enumerate(COLOURS.items()):
        x = 20 + i * 145
        yield f'<rect x="{x}" y="12" width="11" height="11" fill="{colour}"/>'
        yield text(x + 16, 22, name)


def drawing(panel: Panel, y: float) -> Iterator[str]:
    """Yield the shapes of one panel from ``y`` on, and last where the next one begins."""
    most = max([panel.ceiling, *(v for b in panel.bars.values() for v in b.values())], default=1)
    scale = _PLOT / (most * 1.02)
    yield text(20, y + 12, panel.title, 'font-weight="bold" font-size="13"')
    top = y = y + 24
    for file, bars in panel.bars.items():
        yield text(_LEFT - 8, y + len(bars) * _BAR / 2 + 4, file, 'text-anchor="end"')
        for name, value in bars.items():
            width = value * scale
            colour = COLOURS.get(name, "#777777")
            label = f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
            yield (
                f'<rect x="{_LEFT}" y="{y:.1f}" width="{width:.1f}" height="{_BAR - 2}" '
                f'fill="{colour}"><title>{escape(f"{file}, {name}: {label} {panel.unit}")}</title>'
                "</rect>"
            )
            yield text(_LEFT + width + 4, y + _BAR - 4, label)
            y += _BAR
        y += _GAP
    x = _LEFT + panel.ceiling * scale
    yield (
        f'<line x1="{x:.1f}" y1="{top - 4:.1f}" x2="{x:.1f}" y2="{y - _GAP + 4:.1f}" '
        'stroke="#b00020" stroke-width="1.5" stroke-dasharray="5 3"/>'
    )
    label = f"measured ceiling {panel.ceiling:,.0f} {panel.unit}"
    yield text(x, y + 6, label, 'fill="#b00020" text-anchor="end"')
    yield str(y + 24)


def text(x: float, y: float, words: str, more: str = "") -> str:
    """Return words at a place."""
    colour = "" if "fill=" in more else ' fill="#222222"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{colour} {more}>{escape(words)}</text>'
