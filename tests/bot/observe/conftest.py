import logging
import threading

import pytest

from bot.observe.logs import Sink

SENDERS = ("Otel", "last spans")


@pytest.fixture(autouse=True)
def no_sender_outlives_its_test():
    """One that goes on beside later tests would draw random numbers under the hands of Hypothesis."""
    yield
    for thread in threading.enumerate():
        if thread.name.startswith(SENDERS):
            thread.join(15)
            assert not thread.is_alive(), thread.name


@pytest.fixture
def restored_logging():
    """Logging is configured anew by the test, and as it was after it."""
    root = logging.getLogger()
    level = root.level
    yield
    for handler in [handler for handler in root.handlers if isinstance(handler, Sink)]:
        root.removeHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(capture=False)
