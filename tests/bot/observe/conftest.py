import threading

import pytest

SENDERS = ("Otel", "last spans")


@pytest.fixture(autouse=True)
def no_sender_outlives_its_test():
    """One that goes on beside later tests would draw random numbers under the hands of Hypothesis."""
    yield
    for thread in threading.enumerate():
        if thread.name.startswith(SENDERS):
            thread.join(15)
            assert not thread.is_alive(), thread.name
