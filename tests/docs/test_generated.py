"""What is drawn from the code is up to date, and every setting has a reason."""

from pathlib import Path

import pytest

from bot.config.extensions import settings_model
from bot.observe.logs import FOREIGN, named
from docs.generate.__main__ import PAGES
from docs.generate.events_page import calls_in
from docs.generate.layers_page import machines_in
from docs.generate.reasons import REASONS
from docs.generate.settings_page import settings_in

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", PAGES)
def test_a_document_that_is_made_from_the_code_is_up_to_date(name):
    assert (ROOT / "docs" / name).read_text("utf-8") == PAGES[name](), f"{name}: make docs"


def test_every_setting_has_a_reason_and_every_reason_a_setting():
    assert sorted(path for path, _ in settings_in(settings_model())) == sorted(REASONS)


def test_state_machines_are_found_in_the_docstrings_of_their_modules():
    found = {path for path, *_ in machines_in(ROOT)}
    known = {"transports/shared/link/supervisor.py", "bot/llm/policies/breaker.py", "bot/tools/approvals.py"}
    assert known <= found


def test_every_log_call_names_its_event():
    nameless = [
        f"{file.relative_to(ROOT)}: {text!r}"
        for package in ("bot", "threads", "transports")
        for file in (ROOT / package).rglob("*.py")
        for _, text in calls_in(file)
        if named(text)[0] == FOREIGN
    ]
    assert not nameless
