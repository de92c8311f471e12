"""Which image goes with which mask: the same name, image suffix and mask suffix apart, in the same subfolder."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple, NoReturn

from seg.datasets.split_file import normal, pick_names, read_names, some
from seg.errors import UserError

IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.png', '.tif', '.tiff', '.webp', '.gif', '.bmp')
Suffixes = str | Sequence[str]


class Pair(NamedTuple):
    """`name` is the image's path inside its folder without the suffix, with `/` on every system."""

    name: str
    img_path: str
    seg_map_path: str | None


def find_pairs(
    img_dir: str | Path,
    mask_dir: str | Path | None = None,
    img_suffix: Suffixes = IMAGE_SUFFIXES,
    seg_map_suffix: Suffixes = '.png',
    ann_file: str | Path = '',
) -> list[Pair]:
    """All pairs, or those listed in `ann_file`, sorted by name; `mask_dir` None: every mask is None.

    Folders are searched to the bottom, without hidden files and folders. The whole stem counts: 1.jpg goes with
    1_mask.gif, never with 10_mask.gif. A suffix is any end of a file name; its letters may be big or small. Raises
    UserError, with folder, suffix, counts and first names, for a missing folder, no image at all, an image without a
    mask, a mask without an image (unless names are listed), two files for one name, a listed name that is not there.
    """
    known, search = _searches.get(), repr((img_dir, mask_dir, img_suffix, seg_map_suffix, ann_file))
    if known is not None and search in known:
        return known[search]
    pairs = _search(img_dir, mask_dir, img_suffix, seg_map_suffix, ann_file)
    if known is not None:
        known[search] = pairs
    return pairs


def _search(
    img_dir: str | Path,
    mask_dir: str | Path | None,
    img_suffix: Suffixes,
    seg_map_suffix: Suffixes,
    ann_file: str | Path,
) -> list[Pair]:
    images = find_images(img_dir, mask_dir, img_suffix, seg_map_suffix)
    if ann_file:
        images = {name: images[name] for name in pick_names(read_names(ann_file), images, img_dir, ann_file)}
    if mask_dir is None:
        return [Pair(name, path, None) for name, path in sorted(images.items())]
    masks = _find(mask_dir, seg_map_suffix, 'mask', skip=img_dir)
    if ann_file:
        masks = {name: path for name, path in masks.items() if name in images}
    searched = (
        f'{len(images)} images of {img_dir} by img_suffix {_spell(img_suffix)}, {len(masks)} masks of {mask_dir} by '
        f'seg_map_suffix {_spell(seg_map_suffix)}'
    )
    _check_complete(images, masks, searched, _MaskHint(mask_dir, seg_map_suffix))
    return [Pair(name, path, masks[name]) for name, path in sorted(images.items())]


_searches: ContextVar[dict[str, list[Pair]] | None] = ContextVar('searches', default=None)


@contextmanager
def search_once() -> Iterator[None]:
    """Within it, a search that was made is not made again: training and validation often divide one folder's pairs."""
    token = _searches.set({})
    try:
        yield
    finally:
        _searches.reset(token)


def find_images(
    img_dir: str | Path,
    mask_dir: str | Path | None = None,
    img_suffix: Suffixes = IMAGE_SUFFIXES,
    seg_map_suffix: Suffixes = '.png',
) -> dict[str, str]:
    """{name: path}. Where masks lie in the same folder, what ends in their suffix is no image."""
    shared = mask_dir is not None and os.path.realpath(img_dir) == os.path.realpath(mask_dir)
    images = _find(img_dir, img_suffix, 'image', skip=mask_dir, but_not=seg_map_suffix if shared else ())
    if not images:
        raise UserError(
            f'{img_dir}: 0 images, none ends in {_spell(img_suffix)}; the folder holds {_suffixes_in(img_dir)}. '
            'Check data_root, data_prefix.img_path and img_suffix'
        )
    return images


def _find(
    folder: str | Path, suffixes: Suffixes, what: str, skip: str | Path | None, but_not: Suffixes = ()
) -> dict[str, str]:
    found: dict[str, str] = {}
    ends = sorted(map(str.lower, _as_tuple(suffixes)), key=len, reverse=True)
    foreign = [end.lower() for end in _as_tuple(but_not) if end.lower() not in ends]
    prefix = str(Path(folder, '_'))[:-1]  # text, for a Path for each of 100,000 files takes a second
    for inside in _walk(folder, skip):
        name = _strip(inside, ends)
        if name is None or (foreign and _strip(inside, foreign) is not None):
            continue
        path = prefix + inside
        if name in found:
            raise UserError(
                f'{what} {name!r} is ambiguous: {found[name]} and {path} both fit {_spell(suffixes)}; remove one, or '
                f'give one suffix as {"img_suffix" if what == "image" else "seg_map_suffix"}'
            )
        found[name] = path
    return found


class _MaskHint(NamedTuple):
    """Finds the suffix that a mask folder really has, from what follows the images' names in it."""

    mask_dir: str | Path
    seg_map_suffix: Suffixes

    def text(self, names: Sequence[str]) -> str:
        inside = list(_walk(self.mask_dir, None))
        ends = Counter(file[len(name) :] for name in names[:20] for file in inside if file.startswith(name))
        known = {suffix.lower() for suffix in _as_tuple(self.seg_map_suffix)}
        likely = [end for end, _ in ends.most_common() if end.lower() not in known]
        if likely:
            return f'{self.mask_dir} holds names that go on with {likely[0]!r}: is that the seg_map_suffix?'
        return f'{self.mask_dir} holds {_suffixes_in(self.mask_dir)}'


def _check_complete(images: dict[str, str], masks: dict[str, str], searched: str, hint: _MaskHint) -> None:
    """Raises UserError with all that is missing on either side."""
    without_mask, without_image = sorted(images.keys() - masks.keys()), sorted(masks.keys() - images.keys())
    same = sorted(name for name in images if images[name] == masks.get(name))
    faults = []
    if without_mask:
        faults.append(
            f'{len(without_mask)} images have no mask ({searched}): {some(without_mask)}. {hint.text(without_mask)}'
        )
    if without_image:
        faults.append(
            f'{len(without_image)} masks have no image ({searched}): {some(without_image)}. Remove them, or list the '
            'names to use in a file and give it as ann_file'
        )
    if same:
        faults.append(f'{len(same)} images would be their own masks ({searched}): {some(same)}')
    if faults:
        raise UserError('\n'.join(faults))


def _as_tuple(suffixes: Suffixes) -> tuple[str, ...]:
    suffixes = (suffixes,) if isinstance(suffixes, str) else tuple(suffixes)
    if '' in suffixes:
        raise UserError("an empty img_suffix or seg_map_suffix fits every file; give the end of the names, as '.png'")
    return suffixes


def _spell(suffixes: Suffixes) -> str:
    return ' or '.join(repr(suffix) for suffix in _as_tuple(suffixes))


def _strip(inside: str, ends: Sequence[str]) -> str | None:
    """The name without the first end that fits, in small letters; None where none does or nothing is left."""
    lower = inside.lower()
    for end in ends:
        if lower.endswith(end):
            name = inside[: -len(end)]
            return None if name == '' or name.endswith('/') else normal(name)
    return None


def _walk(folder: str | Path, skip: str | Path | None) -> Iterator[str]:
    """Paths of the files below a folder, as a/b.jpg, hidden ones left out; linked folders are entered, once each."""
    if not Path(folder).is_dir():
        raise UserError(f'{folder}: no such folder. Check data_root and data_prefix')
    entered = {os.path.realpath(folder)} | ({os.path.realpath(skip)} if skip is not None else set())
    for here, folders, files in os.walk(folder, followlinks=True, onerror=_refuse_folder):
        below = {name: os.path.realpath(Path(here, name)) for name in sorted(folders) if name[0] != '.'}
        folders[:] = [name for name, real in below.items() if real not in entered]
        entered.update(below.values())
        prefix = (Path(here).relative_to(folder) / '_').as_posix()[:-1]
        yield from (prefix + name for name in sorted(files) if name[0] != '.')


def _refuse_folder(error: OSError) -> NoReturn:
    raise UserError(f'{error.filename}: the folder cannot be read: {error.strerror}') from error


def _suffixes_in(folder: str | Path) -> str:
    counts = Counter(Path(inside).suffix or 'without suffix' for inside in _walk(folder, None))
    listed = ', '.join(f'{count} {suffix}' for suffix, count in counts.most_common(5))
    return f'{listed} files' if counts else 'no files'
