"""What was said once, for the tests that listen."""

from collections.abc import Iterator

import pytest

from seg.datasets import opening


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The warnings logged by `say_once` during the test."""
    messages: list[str] = []
    opening._log_once.cache_clear()
    monkeypatch.setattr(opening, 'print_log', lambda message, **_: messages.append(message))
    yield messages
    opening._log_once.cache_clear()
