"""The example of docs/playbooks.md is a playbook that is played to its end."""

import re
from pathlib import Path

from tests.bot.extensions.playbooks.test_command import tried

PAGE = Path(__file__).parents[4] / "docs/playbooks.md"


def test_the_example_runs_as_the_page_says(tmp_path):
    [example] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "playbooks").mkdir(mode=0o700)
    (tmp_path / "playbooks" / "greet.yaml").write_text(example, "utf-8")
    done = tried("greet", "Ann", data=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("**greet**: done\n✓ facts\n✓ draft\n✓ done\n○ improve")
