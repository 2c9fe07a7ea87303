"""Charts as SVG, drawn here by pygal; pure. The page shows the same numbers in a table beside each.

They are pictures: no script, no font and no request. Their colours are legible on a light and on a dark ground, and
their words on a phone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, Literal

COLOURS = ("#2f8f76", "#c9772c", "#5b7fd1", "#b5579a", "#7d8a2e", "#8a6bd1", "#c0504d", "#4f9fb5")
MOST_BARS = 60
MOST_SERIES = len(COLOURS)
LONGEST_NAME = 28
MOST_LABELS = 5
WIDE, NARROW = (600, 260, 14), (350, 240, 13)
"""Width, height and size of letters: of a chart beside another, and of one on a phone."""

THEMES = "text{fill:#55605c!important}@media(prefers-color-scheme:dark){text{fill:#a4b0ac!important}}"
"""The colours of words, as those of the page."""


@cache
def _pygal() -> Any:
    """Return the library: it takes 0.1 s, and only a page with a chart needs it."""
    import pygal.etree  # type: ignore[import-untyped]  # noqa: PLC0415

    # For plug-ins it leaves a finder of an old kind behind, which every import of the process would then ask.
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != "pygal"]
    return pygal


def _style(colours: Sequence[str], size: int) -> Any:
    grey = "#7f8a87"
    return _pygal().style.Style(
        background="transparent",
        plot_background="transparent",
        foreground=grey,
        foreground_strong=grey,
        foreground_subtle=grey,
        guide_stroke_color=grey,
        major_guide_stroke_color=grey,
        label_font_size=size,
        major_label_font_size=size,
        legend_font_size=size,
        no_data_font_size=size,
        font_family="system-ui, sans-serif",
        colors=tuple(colours),
        opacity=".95",
    )


def over_time(
    names: Sequence[str], series: Mapping[str, Sequence[float | None]],
    kind: Literal["StackedBar", "Line"] = "StackedBar",
    *, unit: str = "", narrow: bool = False, colours: Sequence[str] = COLOURS,
) -> bytes:  # fmt: skip
    """Return bars, with a part for each of the *series*, or lines, broken where a value is None, over the *names*."""
    drawn = any(map(any, series.values()))
    few = {"x_labels_major_count": MOST_LABELS, "show_minor_x_labels": len(names) <= MOST_LABELS}
    chart = getattr(_pygal(), kind)(**_options(unit, colours, narrow=narrow), **few, show_y_labels=drawn)
    chart.x_labels = [_short(name) for name in names[-MOST_BARS:]]
    for name, values in list(series.items())[:MOST_SERIES] if drawn else ():
        chart.add(_short(name), list(values[-MOST_BARS:]))
    return _svg(chart)


def shares(values: Sequence[tuple[str, float]], *, unit: str = "", narrow: bool = False) -> bytes:
    """Return one horizontal bar for each name, the largest at the top. Two may have the same name."""
    chart = _pygal().HorizontalBar(**_options(unit, COLOURS, narrow=narrow), show_legend=False)
    largest = sorted(values, key=itemgetter(1))[-12:]
    chart.x_labels = [_short(name) for name, _ in largest]
    chart.add("", [value for _, value in largest])
    return _svg(chart)


def _options(unit: str, colours: Sequence[str], *, narrow: bool) -> dict[str, Any]:
    width, height, size = NARROW if narrow else WIDE
    return {
        "style": _style(colours, size),
        "js": [],
        "width": width,
        "height": height,
        "legend_at_bottom": True,
        "legend_box_size": 10,
        "rounded_bars": 2,
        "order_min": None if unit else 0,  # a count is whole
        "dots_size": 3,
        "allow_interruptions": True,
        "range_min": 0,
        "include_x_axis": True,
        "max_scale": 3 if narrow else 5,
        "truncate_label": -1,
        "margin": 4,
        "margin_right": 30,  # half of the last label
        "disable_xml_declaration": True,
        "value_formatter": lambda value: (
            f"{unit}{value:,.2f}" if unit == "$" else f"{value:,.1f}".removesuffix(".0") + unit
        ),
        "no_data_text": "Nothing yet",
        "pretty_print": False,
    }


def _svg(chart: Any) -> bytes:
    """Return the drawing without the script that the library adds for charts inside a page."""
    root = chart.render_tree()
    for parent in list(root.iter()):
        for child in [child for child in parent if str(child.tag).endswith("script")]:
            parent.remove(child)
    _pygal().etree.etree.SubElement(root, "style").text = THEMES
    drawn: bytes = _pygal().etree.etree.tostring(root)
    return drawn


def _short(name: str) -> str:
    line = " ".join(name.split()) or "-"
    return line if len(line) <= LONGEST_NAME else f"…{line[1 - LONGEST_NAME :]}"
