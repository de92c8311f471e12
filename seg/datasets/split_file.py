"""A split file: the names of the images to use, one a line."""

import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from seg.errors import UserError

_SHOWN = 5  # names in a message


def some(names: Sequence[str]) -> str:
    """The first names of many."""
    more = f' and {len(names) - _SHOWN} more' if len(names) > _SHOWN else ''
    return ', '.join(repr(name) for name in names[:_SHOWN]) + more


def normal(name: str) -> str:
    """One spelling of letters with marks: macOS writes them in two pieces, so that equal names differ in bytes."""
    return unicodedata.normalize('NFC', name)


def read_names(ann_file: str | Path) -> list[str]:
    """Names of images, one a line, from a text file in UTF-8; empty lines are skipped.

    Raises UserError for a missing or empty file, a name twice, and a name that leads out of the image folder.
    """
    try:
        lines = Path(ann_file).read_text(encoding='utf-8-sig').splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f'{ann_file}: the split file (ann_file) cannot be read: {error}') from error
    names = [normal(line.strip()) for line in lines if line.strip()]
    if not names:
        raise UserError(f'{ann_file}: the split file (ann_file) lists no names')
    for name in names:
        if PurePosixPath(name).is_absolute() or '..' in PurePosixPath(name).parts:
            raise UserError(f'{ann_file}: {name!r} leads out of the image folder; names are relative to it')
    return names


def pick_names(
    listed: Sequence[str], images: Mapping[str, str], img_dir: str | Path, ann_file: str | Path
) -> list[str]:
    """Listed names, with or without suffix, -> the names of the images found.

    Raises UserError for names that are not there and for one image listed twice.
    """
    by_file = {normal(Path(path).relative_to(img_dir).as_posix()): name for name, path in images.items()}
    picked: list[str] = []
    missing: list[str] = []
    for entry in listed:
        entry = PurePosixPath(entry).as_posix()
        name = entry if entry in images else by_file.get(entry)
        (missing if name is None else picked).append(name or entry)
    if missing:
        raise UserError(
            f'{ann_file}: {len(missing)} of {len(listed)} listed names are not among the {len(images)} images: '
            f'{some(missing)}. The images are called {some(sorted(images))}'
        )
    if len(set(picked)) < len(picked):
        twice = sorted({name for name in picked if picked.count(name) > 1})
        raise UserError(f'{ann_file}: {len(twice)} names are listed twice: {some(twice)}')
    return picked
