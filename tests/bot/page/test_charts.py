"""Charts are pictures that need nothing else."""

import sys
from xml.etree import ElementTree as ET

import pytest

from bot.page import charts

CHARTS = {
    "bars": lambda names, values: charts.over_time(names, {"USD": values}, unit="$"),
    "lines": lambda names, values: charts.over_time(names, {"p50": values}, "Line", unit=" s", narrow=True),
    "shares": lambda names, values: charts.shares([*zip(names, values, strict=True)], unit="$"),
}


@pytest.fixture(params=CHARTS.values(), ids=CHARTS.keys())
def draw(request):
    return request.param


def test_a_chart_is_an_svg_without_script_or_request(draw):
    drawn = draw(["2026-11-24", "2026-11-25"], [1.5, 0.0])
    assert ET.fromstring(drawn).tag.endswith("svg")
    assert b"<script" not in drawn
    assert b"href=" not in drawn.replace(b'xlink:href="#', b"")
    assert b"url(http" not in drawn


def test_a_chart_of_nothing_says_so(draw):
    assert b"svg" in draw([], [])


def test_hostile_names_stay_text(draw):
    drawn = draw(['<script>alert(1)</script>"', "a & b"], [1.0, 2.0])
    assert b"<script" not in drawn
    ET.fromstring(drawn)


def test_a_chart_of_years_is_bounded(draw):
    drawn = draw([f"day {n}" for n in range(5_000)], [float(n) for n in range(5_000)])
    assert len(drawn) < 200_000


def test_the_library_leaves_nothing_behind_that_other_imports_ask(draw):
    draw(["a"], [1.0])
    assert [finder for finder in sys.meta_path if type(finder).__module__ == "pygal"] == []


def test_a_scale_of_small_counts_has_no_number_twice_and_one_of_nothing_has_none():
    def scale(*counts):
        drawn = ET.fromstring(charts.over_time(["a", "b"], {"retries": counts}))
        texts = [one.text for one in drawn.iter() if one.tag.endswith("text")]
        return [text for text in texts if text and text.replace(".", "").isdigit()]

    assert scale(0, 1) == ["0", "1"]
    assert scale(0, 0) == []
