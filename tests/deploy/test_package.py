"""What the built package has beside the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from hatchling import build; getattr(build, sys.argv[1])(sys.argv[2])"


@pytest.fixture(scope="module", params=["build_wheel", "build_editable"])
def wheel(request, tmp_path_factory) -> ZipFile:
    folder = tmp_path_factory.mktemp("built")
    subprocess.run(
        [sys.executable, "-c", BUILD, request.param, str(folder)], cwd=ROOT, check=True, timeout=120
    )
    [built] = folder.glob("*.whl")
    with ZipFile(built) as opened:
        yield opened


def test_the_name_of_the_program_is_a_module_that_runs_it(wheel):
    assert b"main(" in wheel.read("threadfast.py")


def test_it_has_the_checks_for_transports_of_somebody_else(wheel):
    assert b"CHECKS" in wheel.read("threadfast_testing.py")


def test_its_description_has_no_link_that_leads_nowhere_on_an_index(wheel):
    [metadata] = [name for name in wheel.namelist() if name.endswith("METADATA")]
    text = wheel.read(metadata).decode()
    assert "# Threadfast" in text
    assert re.findall(r"\]\((?!https://)[^)]*", text) == []
