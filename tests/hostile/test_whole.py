"""The corpus as a whole: how many rows there are, that no name stands twice, and that it does come to something."""

from collections import Counter

from . import (
    test_amounts,
    test_approving,
    test_arguments,
    test_commands,
    test_injection,
    test_paths,
    test_rules,
    test_secrets,
    test_uploads,
    test_web,
)

ROWS = [
    *test_paths.ROWS,
    *test_arguments.ROWS,
    *test_web.ROWS,
    *test_rules.ROWS,
    *test_secrets.ROWS,
    *test_injection.CASES,
    *test_approving.PRESSES,
    *test_commands.ROWS,
    *test_amounts.ROWS,
    *test_uploads.ROWS,
]
OTHERS = [  # rows that are a name and what is tried
    *test_rules.THEIRS,
    *test_rules.TRICKS,
    *test_rules.BACK,
    *test_secrets.OUTPUTS,
    *test_secrets.STATUS,
    *test_approving.TALES.items(),
    *test_amounts.LOOPS.items(),
]


def test_there_are_hundreds_of_rows_and_each_has_a_name_of_its_own():
    names = [row.name for row in ROWS] + [name for name, _ in OTHERS]
    assert len(names) >= 150
    assert [name for name, times in Counter(names).items() if times > 1] == []
