"""What the watchdog says of a signal, and what it leaves to the launcher."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seg.engine.cli import ERROR_DIR, over_note
from seg.engine.processes.watchdog import Watchdog


@pytest.fixture
def watchdog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watchdog]:
    monkeypatch.setenv(ERROR_DIR, str(tmp_path))
    monkeypatch.setenv('TORCHELASTIC_RESTART_COUNT', '1')
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    watchdog = Watchdog(speaks=True)
    watchdog.start()
    yield watchdog
    watchdog.stop()
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(('ended_start', 'told'), [(None, True), (0, True), (1, False)])
def test_a_signal_is_told_unless_the_launcher_ends_this_start(
    watchdog: Watchdog, capfd: pytest.CaptureFixture[str], ended_start: int | None, told: bool
) -> None:
    if ended_start is not None:
        over_note(ended_start).touch()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.5)
    assert ('SIGTERM: the run stops after the next step' in capfd.readouterr().err) == told
