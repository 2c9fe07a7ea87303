"""The core stays readable in one sitting."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from docs.generate.layers_page import CORE

CORE_LINE = re.compile(r"^ *\d+ core  ([^:]+):", re.MULTILINE)


def test_the_core_path_has_fewer_than_600_lines_and_the_order_of_the_page():
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
    assert tuple(dict.fromkeys(CORE_LINE.findall(done.stdout))) == CORE
