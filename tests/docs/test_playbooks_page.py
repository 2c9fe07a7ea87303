"""The example of docs/playbooks.md is a playbook that is played to its end."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/playbooks.md"


def test_the_example_runs_as_the_page_says(tmp_path):
    [example] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "playbooks").mkdir(mode=0o700)
    (tmp_path / "playbooks" / "greet.yaml").write_text(example, "utf-8")
    command = [sys.executable, "-m", "bot", "playbooks", "try", "greet", "Ann", "--data", str(tmp_path)]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert tried.returncode == 0, tried.stderr
    assert tried.stdout.startswith("**greet**: done\n✓ facts\n✓ draft\n✓ done\n○ improve")
