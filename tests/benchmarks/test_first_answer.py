"""What the first answer after a start needs is there once it is prepared."""

import pytest

from benchmarks.first_answer import measured
from tests.unprivileged import Unreachable


def test_no_answer_imports_a_module_not_by_a_second_provider_a_server_the_sandbox_or_on_the_page():
    try:
        assert measured()["modules"] == 0
    except Unreachable as error:
        pytest.skip(str(error))
