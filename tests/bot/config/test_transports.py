"""The transports of a settings file: by the name of their kind, or by a name of their own."""

import json

import jsonschema
import pytest

from bot.config.built_in_extensions import BUILT_IN
from bot.config.load import json_schema, load, references
from bot.config.scopes import Place, resolve
from bot.config.transports import served
from bot.ports.config_error import ConfigInvalid

MATRIX = " matrix," if BUILT_IN["matrix"].is_here else ""
SALES = {"kind": "slack", "bot_token": "env:SALES_BOT", "app_token": "env:SALES_APP"}


@pytest.fixture
def loaded(tmp_path):
    def load_these(**document):
        path = tmp_path / "settings.json"
        path.write_text(json.dumps(document))
        return load(path, environ={}).settings

    return load_these


@pytest.fixture
def faults(loaded):
    def faults_of(**document):
        with pytest.raises(ConfigInvalid) as error:
            loaded(**document)
        return str(error.value).splitlines()[:-1]

    return faults_of


def test_a_platform_is_served_under_several_names_each_with_its_own_settings(loaded):
    given = {"slack": {"feedback": False}, "sales": SALES, "shop": {"kind": "discord"}, "discord": None}
    settings = loaded(transports=given)
    found = served(settings)
    expected = {"slack": "slack", "sales": "slack", "shop": "discord"}
    assert {name: one.kind for name, one in found.items()} == expected
    assert (found["slack"].feedback, found["sales"].feedback) == (False, True)
    assert {path: name for path, name in references(settings).items() if path.startswith("transports.")} == {
        "transports.slack.bot_token": "env:SLACK_BOT_TOKEN",
        "transports.slack.app_token": "env:SLACK_APP_TOKEN",
        "transports.sales.bot_token": "env:SALES_BOT",
        "transports.sales.app_token": "env:SALES_APP",
        "transports.shop.token": "env:DISCORD_TOKEN",
    }


@pytest.mark.parametrize(
    ("transports", "words"),
    [
        ({"sales": {}}, f"transports.sales: unknown key; there are slack, discord,{MATRIX} web, and a name of your own says what"),
        ({"slak": {}}, 'transports.slak: unknown key; the nearest known one is "slack", and a name'),
        ({"sales": {**SALES, "kind": "teams"}}, 'transports.sales.kind: no platform is called "teams"; there are discord'),
        ({"sales": {**SALES, "feedbck": 1}}, 'transports.sales.feedbck: unknown key; the nearest known one is "feedback"'),
        ({"slack": {"kind": "discord"}}, "transports.slack.kind: "),
        ({"team": {"kind": "web"}}, "transports.team: web is served once, as transports.web"),
        ({"user": SALES}, "transports.user: a transport's name is made of"),
        ({"Sales": SALES}, "transports.Sales: a transport's name is made of"),
        ({"slack": {}, "sales": {"kind": "slack"}}, "transports.sales.bot_token: is the same as transports.slack.bot_token"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_named(faults, transports, words):
    assert faults(transports=transports)[0].startswith(words)


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        (
            "shop:T1",
            f'scopes.shop:T1: no transport is called "shop"; there are console, discord,{MATRIX} sales, slack, web',
        ),
        ("sales:C0123456", "scopes.sales:C0123456: that is the id of a channel; write sales:TEAM:C0123456"),
        ("slack:D0123456", "scopes.slack:D0123456: that is the id of a channel; write slack:TEAM:D0123456"),
    ],
)
def test_a_scope_that_covers_nothing_is_named(faults, scope, words):
    assert faults(transports={"sales": SALES}, scopes={scope: {}}) == [words]


def test_a_scope_covers_a_whole_transport_and_a_narrower_one_wins(loaded):
    scopes = {"sales": {"model": "openai/a"}, "sales:T1": {"model": "openai/b"}}
    settings = loaded(transports={"sales": SALES}, scopes=scopes)
    places = (Place("sales", "T2", "C1"), Place("sales", "T1", "C1"), Place("slack", "T1", "C1"))
    assert [resolve(settings, place).settings.model for place in places[:2]] == ["openai/a", "openai/b"]
    assert resolve(settings, places[2]).settings.model == settings.model


@pytest.mark.parametrize(
    ("given", "fits"), [(SALES, True), ({"bot_token": "env:A"}, False), ({"kind": "slak"}, False)]
)
def test_an_editor_knows_a_transport_with_a_name_of_its_own(given, fits):
    checker = jsonschema.Draft202012Validator(json_schema())
    assert checker.is_valid({"transports": {"slack": {}, "sales": given}}) == fits
