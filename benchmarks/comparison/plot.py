"""Bars against ceilings, as an SVG picture that needs no program to make."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
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
class Ceiling:
    """A line that bars are held against, by what was measured."""

    what: str
    value: float


@dataclass(frozen=True, slots=True)
class Panel:
    """One group of bars a file, and the lines that each file's are held against."""

    title: str
    unit: str
    bars: Mapping[str, Mapping[str, float]]
    ceilings: Mapping[str, tuple[Ceiling, ...]]


def picture(panels: list[Panel]) -> str:
    """Return the SVG text; panels stand below each other."""
    shapes, y = list(legend()), 44.0
    for panel in panels:
        drawn, y = drawing(panel, y)
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


def drawing(panel: Panel, y: float) -> tuple[list[str], float]:
    """Return the shapes of one panel from ``y`` on, and where the next one begins."""
    lines = [c.value for file in panel.bars for c in panel.ceilings.get(file, ())]
    values = [v for bars in panel.bars.values() for v in bars.values()]
    scale = _PLOT / ((max([*lines, *values], default=0) or 1) * 1.02)
    shapes = [text(20, y + 12, panel.title, 'font-weight="bold" font-size="13"')]
    y += 24
    for ceilings, files in groupby(panel.bars, lambda file: panel.ceilings.get(file, ())):
        top = y
        for file in files:
            shapes += group(panel, file, scale, y)
            y += len(panel.bars[file]) * _BAR + _GAP
        for i, ceiling in enumerate(ceilings):
            x, label = _LEFT + ceiling.value * scale, y + 6 + i * _BAR
            shapes += line(x, top - 4, y - _GAP + 4)
            words = f"{ceiling.what}, measured: {ceiling.value:,.0f} {panel.unit}"
            shapes.append(text(x, label, words, 'fill="#b00020" text-anchor="end"'))
        y += len(ceilings) * _BAR + 10
    return shapes, y + 1


def group(panel: Panel, file: str, scale: float, y: float) -> Iterator[str]:
    """Yield the bars of one file."""
    bars = panel.bars[file]
    yield text(_LEFT - 8, y + len(bars) * _BAR / 2 + 4, file, 'text-anchor="end"')
    for name, value in bars.items():
        width = value * scale
        label = f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
        yield (
            f'<rect x="{_LEFT}" y="{y:.1f}" width="{width:.1f}" height="{_BAR - 2}" '
            f'fill="{COLOURS.get(name, "#777777")}">'
            f"<title>{escape(f'{file}, {name}: {label} {panel.unit}')}</title></rect>"
        )
        yield text(_LEFT + width + 4, y + _BAR - 4, label)
        y += _BAR


def line(x: float, top: float, bottom: float) -> Iterator[str]:
    """Yield the line of a ceiling."""
    yield (
        f'<line x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{bottom:.1f}" '
        'stroke="#b00020" stroke-width="1.5" stroke-dasharray="5 3"/>'
    )


def text(x: float, y: float, words: str, more: str = "") -> str:
    """Return words at a place."""
    colour = "" if "fill=" in more else ' fill="#222222"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{colour} {more}>{escape(words)}</text>'
