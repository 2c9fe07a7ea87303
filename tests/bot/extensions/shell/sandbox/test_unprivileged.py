"""Tests that need a user without privileges; when the tests run as root, they run here."""

import os
from pathlib import Path

import pytest

from tests.unprivileged import Unreachable, run_unprivileged

HERE = Path(__file__).parent
FILES = (
    *("test_escapes.py", "test_process_tree.py", "test_selection.py", "test_workspace_limits.py"),
    *("../network/test_programs.py", "../network/test_ways_out.py"),
    *("../network/test_story.py", "../network/test_settings.py"),
    *("../test_tool.py", "../../../../hostile/test_commands.py"),
)


@pytest.mark.skipif(os.geteuid() != 0, reason="each runs by itself here")
@pytest.mark.timeout(400)
def test_the_sandbox_holds_for_a_user_without_privileges():
    paths = [str((HERE / file).resolve()) for file in FILES]
    try:
        done = run_unprivileged(
            "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-rs", *paths, timeout_s=360
        )
    except Unreachable as error:
        pytest.skip(str(error))
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
