"""The dashboard and the alerts ask only for what the bot tells, and the dashboard can be imported as it is."""

import itertools
import json
import re
from pathlib import Path

import pytest
import yaml

from bot.extensions.metrics.metrics import Metrics
from tests.bot.observe.watching import STATUS

DEPLOY = Path(__file__).parents[4] / "deploy"
NAME = re.compile(r"\b(?:threadfast|process|python)_[a-z0-9_]+")
SUFFIXES = ("", "_bucket", "_sum", "_count")


@pytest.fixture(scope="module")
def told() -> set[str]:
    """Return the names of all that a scrape can read."""
    body = Metrics().render(STATUS).body.decode()
    kinds = re.findall(r"^# TYPE (\S+) (\S+)$", body, re.MULTILINE)
    return {
        f"{name}{suffix}"
        for name, kind in kinds
        for suffix in (SUFFIXES if kind == "histogram" else SUFFIXES[:1])
    }


@pytest.fixture(scope="module")
def dashboard():
    return json.loads((DEPLOY / "grafana.json").read_text())


@pytest.fixture(scope="module")
def rules():
    (group,) = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    return group["rules"]


def expressions(dashboard) -> list[str]:
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    return asked + [one["expr"] for one in dashboard["annotations"]["list"]]


def test_every_figure_of_the_dashboard_is_one_that_the_bot_tells(told, dashboard):
    named = {name for asked in expressions(dashboard) for name in NAME.findall(asked)}
    assert len(named) > 30
    assert named - told == set()


def test_every_figure_of_ours_is_on_the_dashboard_or_in_an_alert(told, dashboard, rules):
    asked = " ".join([*expressions(dashboard), *(rule["expr"] for rule in rules)])
    named = set(NAME.findall(asked))
    mine = {name for name in told if name.startswith("threadfast_") and not name.endswith(("_sum", "_count"))}
    whole = {name for name in mine if f"{name}_bucket" in mine}
    assert mine - whole - named == set()


def test_every_figure_of_the_alerts_is_one_that_the_bot_tells(told, rules):
    assert {name for rule in rules for name in NAME.findall(rule["expr"])} - told == set()


def test_each_alert_has_a_name_of_its_own_a_severity_and_words_that_say_what_to_do(rules):
    names = [rule["alert"] for rule in rules]
    assert len(set(names)) == len(names)
    for rule in rules:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_panels_have_ids_of_their_own_and_none_covers_another(dashboard):
    panels = dashboard["panels"]
    ids = [panel["id"] for panel in panels]
    assert len(set(ids)) == len(ids)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for a, b in itertools.combinations(places, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        below = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert beside or below, (a, b)


def test_the_datasource_is_a_variable_wherever_one_is_named(dashboard):
    sources = [panel["datasource"] for panel in dashboard["panels"] if panel["type"] != "row"]
    sources += [target["datasource"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert {source["uid"] for source in sources} == {"${datasource}"}
    assert "datasource" in [variable["name"] for variable in dashboard["templating"]["list"]]
