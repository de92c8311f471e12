"""Which photographs are meant, and where each one's prediction goes; told before the first one is predicted."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seg.errors import UserError

SUFFIXES = ('.bmp', '.gif', '.jpeg', '.jpg', '.png', '.tif', '.tiff', '.webp')


@dataclass(frozen=True)
class PhotoFile:
    """`stem` is where the prediction goes within the output folder, without a suffix: `folder/name`."""

    path: Path
    stem: Path

    def output(self, out_dir: Path, ending: str) -> Path:
        return out_dir / self.stem.with_name(self.stem.name + ending)


def find_photos(inputs: Sequence[str | Path], out_dir: Path) -> list[PhotoFile]:
    """Files as they are, and the images in folders and their subfolders, sorted. Each photograph once.

    Hidden files are left out, and `out_dir` where it lies in one of the folders. Raises UserError for an input that does
    not exist, and where there are no images at all.
    """
    found: dict[Path, PhotoFile] = {}
    for given in map(Path, inputs):
        if not given.exists():
            raise UserError(f'{given}: no such file or folder')
        pairs = _in_folder(given, out_dir.resolve()) if given.is_dir() else iter([(given, Path(given.name))])
        for path, relative in pairs:
            found.setdefault(path.parent.resolve() / path.name, PhotoFile(path, relative.with_name(relative.stem)))
    if not found:
        raise UserError(
            f'no images in {", ".join(map(str, inputs))} and the folders in there; looked for names in '
            f'{", ".join(SUFFIXES)} (capitals, too) that do not begin with a dot'
        )
    return list(found.values())


def check_outputs(photos: Sequence[PhotoFile], out_dir: Path, endings: Sequence[str]) -> None:
    """Raises UserError where two photographs would go to one file, or a prediction over a photograph."""
    sources = {photo.path.resolve(): photo.path for photo in photos}
    taken: dict[Path, Path] = {}
    for photo in photos:
        for ending in endings:
            target = photo.output(out_dir, ending)
            if target in taken:
                raise UserError(
                    f'{taken[target]} and {photo.path} would both be written to {target}; predict them into different '
                    'folders, or name the folder above both'
                )
            if target.resolve() in sources:
                raise UserError(
                    f'the prediction of {photo.path} would overwrite the photograph {sources[target.resolve()]}; '
                    'give another --out-dir'
                )
            taken[target] = photo.path


def _in_folder(folder: Path, excluded: Path) -> Iterator[tuple[Path, Path]]:
    """(path, path relative to `folder`) of the images, sorted by name; links to folders are followed once."""
    seen: set[str] = set()
    for root, subfolders, names in os.walk(folder, followlinks=True, onerror=_refuse):
        real = os.path.realpath(root)
        if real in seen or Path(real) == excluded:
            subfolders.clear()
            continue
        seen.add(real)
        subfolders[:] = sorted(name for name in subfolders if not name.startswith('.'))
        for name in sorted(names):
            path = Path(root, name)
            if path.suffix.lower() in SUFFIXES and not name.startswith('.'):
                yield path, path.relative_to(folder)


def _refuse(error: OSError) -> None:
    raise UserError(f'{error.filename}: cannot be listed: {error.strerror}')
