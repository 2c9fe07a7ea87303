"""The core stays readable in one sitting."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_core_path_has_fewer_than_600_lines():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.core_path"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Delivery.settle" in done.stdout
