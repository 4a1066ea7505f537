"""What tests with several ranks share."""

import signal

import pytest


@pytest.fixture
def deadline():
    """Ranks that wait for each other are the usual failure."""

    def late(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(600)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
