"""What the check says about a config made in Python."""

from pathlib import Path
from typing import Any

from seg.config_check import content_faults, lines, notices
from seg.config_origin import Origin
from tests.tiny import tiny_config


def faults(**changes: Any) -> list[str]:
    """Of the tests' tiny config with `changes`, merged in like `--cfg-options`."""
    config = tiny_config(Path('data'), Path('work_dir'), **changes)
    return lines(content_faults(config._cfg_dict), Origin())


def notes(**changes: Any) -> list[str]:
    config = tiny_config(Path('data'), Path('work_dir'), **changes)
    return lines(notices(config._cfg_dict), Origin())
