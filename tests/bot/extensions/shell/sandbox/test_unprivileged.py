"""Tests that need a user without privileges; when the tests run as root, they run here."""

import os
from pathlib import Path

import pytest

from tests.unprivileged import Unreachable, run_unprivileged

HERE = Path(__file__).parent
PARTS = {
    "the tree": ["test_process_tree.py"],
    "the walls": ["test_escapes.py", "test_selection.py", "test_workspace_limits.py", "../test_tool.py"],
    "the network": [f"../network/test_{name}.py" for name in ("programs", "ways_out", "story", "settings")],
    "the harm": ["../../../../hostile/test_commands.py"],
}
"""What takes about as long as each of the others."""


@pytest.mark.skipif(os.geteuid() != 0, reason="each runs by itself here")
@pytest.mark.timeout(400)  # and so they begin early
@pytest.mark.parametrize("part", PARTS)
def test_the_sandbox_holds_for_a_user_without_privileges(part):
    paths = [str((HERE / file).resolve()) for file in PARTS[part]]
    try:
        done = run_unprivileged(
            "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-rs", *paths, timeout_s=360
        )
    except Unreachable as error:
        pytest.skip(str(error))
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
