"""What one look at one pair finds out, as plain data: it travels out of a worker and into the cache.

A result has 'errors' and 'said' where there is something to say: lists of [kind, message]. Kinds name what is wrong, the
message names the file.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import cv2
import numpy as np

from seg.datasets.gate.ends import is_whole
from seg.datasets.gate.sources import Reading
from seg.datasets.io import decode_image, decode_mask, raw_mask
from seg.datasets.label_rule import LabelRule
from seg.datasets.loading import check_pair
from seg.datasets.opening import OpenedImage, open_image, overhear
from seg.datasets.pixels import decode_pixels
from seg.errors import UserError

THUMB = (8, 9)  # h, w in pixels of the picture by which near-identical photographs are found
_LISTED_VALUES = 32  # of a mask whose values have no class
_SMOOTH = 8  # more unknown values than this come from smoothing or compression, not from forgotten classes
_EXACT_FLOAT32 = 2**24  # OpenCV counts in float32

Result = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """A pair, and how its data set reads it."""

    img_path: str
    seg_map_path: str | None
    reading: Reading
    rule: LabelRule


def look_at_head(job: Job) -> Result:
    """Headers and end marks: sizes, orientation, a hash of each file's bytes; nothing is decoded that seems whole."""
    errors: list[list[str]] = []
    with overhear() as said:
        image = _head(job.img_path, job.reading.max_pixels, 'image', errors)
        mask = _head(job.seg_map_path, job.reading.mask_max_pixels, 'mask', errors)
        if image is not None and mask is not None:
            _attempt(lambda: _check_sizes(job, image, mask), 'size', errors)
    if mask is not None and mask.has_frames:
        errors.append(['mask', f'{mask.path}: a mask of several pictures (animation or pages); a mask is one picture'])
    result: Result = {'errors': errors, 'said': [['turned', message] for message in said]}
    if image is not None:
        result |= {
            'size': image.shown_size(job.reading.apply_exif),
            'image': _hash(image),
            'mask': mask and _hash(mask),
        }
        if image.has_frames:
            result['said'].append(['frames', f'{image.path}: holds several pictures; the first one is used'])
    return _short(result)


def look_at_mask(job: Job) -> Result:
    """'labels': [[label, pixels], ...] of a decoded mask; of one whose values have no class 'values', likewise."""
    assert job.seg_map_path is not None
    with overhear():
        try:
            opened = open_image(job.seg_map_path, job.reading.mask_max_pixels)
            has_frames = opened.has_frames
        except UserError as error:
            return {'errors': [['mask', str(error)]]}
        try:
            labels = decode_mask(opened, job.rule, job.reading.apply_exif)
        except UserError as error:
            message = str(error)
            return {'errors': [['mask', message]]} if has_frames else _look_at_values(opened, job.rule, message)
    return {'labels': _counts(labels)}


def look_at_photo(job: Job) -> Result:
    """'thumb': a tiny gray picture, in base64. The image is decoded as training reads it, at most 8 times coarser."""
    errors: list[list[str]] = []
    result: Result = {'errors': errors}
    with overhear() as said:
        opened = _attempt(lambda: open_image(job.img_path, job.reading.max_pixels), 'image', errors)
        if opened is None:
            return result
        pixels = _attempt(lambda: read_small(opened, job.reading), 'image', errors)
    if pixels is not None:
        result['said'] = [['pixels', message] for message in said if not opened.has_frames]
        result['thumb'] = base64.b64encode(shrink_to_gray(pixels, THUMB).tobytes()).decode()
    return _short(result)


def read_small(opened: OpenedImage, reading: Reading) -> np.ndarray:
    """HWC uint8 as the pipeline would read it; a JPEG is decoded coarser, down to 64 pixels."""
    return decode_image(
        opened, reading.channels, decode_for=(64, 64), value_range=reading.value_range, apply_exif=reading.apply_exif
    )


def shrink_to_gray(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """HWC uint8 -> HW uint8 of (h, w) = size, each pixel the mean of what it covers."""
    gray = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY) if pixels.shape[2] == 3 else np.ascontiguousarray(pixels[..., 0])
    return cv2.resize(gray, size[::-1], interpolation=cv2.INTER_AREA)


def _head(path: str | None, max_pixels: int, kind: str, errors: list[list[str]]) -> OpenedImage | None:
    """Opened and, where its end seems to be missing, decoded, for the decoder to say what is wrong."""
    if path is None:
        return None
    opened = _attempt(lambda: open_image(path, max_pixels), kind, errors)
    if opened is None or _attempt(lambda: opened.has_frames, kind, errors) is None:
        return None
    if is_whole(opened) or _attempt(lambda: decode_pixels(opened), kind, errors) is not None:
        return opened
    return None


def _check_sizes(job: Job, image: OpenedImage, mask: OpenedImage) -> None:
    as_shown = job.reading.apply_exif
    check_pair(mask, job.img_path, image.shown_size(as_shown), image.orientation, as_shown)


def _attempt(action: Callable[[], Any], kind: str, errors: list[list[str]]) -> Any:
    try:
        return action()
    except UserError as error:
        errors.append([kind, str(error)])
        return None


def _hash(opened: OpenedImage) -> str:
    return f'{len(opened.data):x}.{blake2b(opened.data, digest_size=12).hexdigest()}'


def _look_at_values(opened: OpenedImage, rule: LabelRule, message: str) -> Result:
    """Why a mask was refused, in numbers that can be added up over masks."""
    try:
        raw = raw_mask(opened, rule)
    except UserError as error:
        return {'errors': [['mask', str(error)]]}
    if raw.values.ndim == 3:
        return {'errors': [['colours', message]]}
    counts = _counts(raw.values)
    unknown = rule.classes_of([value for value, _ in counts]).count(None)
    kind = 'lossy' if raw.is_lossy or unknown > _SMOOTH else 'values' if unknown else 'mask'
    if kind == 'lossy':
        message = f'{opened.path}: {len(counts)} values'
    if kind != 'values' or len(counts) > _LISTED_VALUES:
        return {'errors': [[kind, message]]}
    listed = ', '.join(f'{value} ({number} px)' for value, number in counts)
    return {'errors': [[kind, f'{opened.path}: {listed}']], 'values': counts}


def _counts(values: np.ndarray) -> list[list[int]]:
    """[[value, pixels], ...] of an HW array of whole numbers, ascending."""
    if values.dtype == np.uint8 and values.size < _EXACT_FLOAT32:
        counts = cv2.calcHist([values], [0], None, [256], [0, 256]).ravel()  # ten times as fast as np.unique
        return [[int(value), int(counts[value])] for value in np.flatnonzero(counts)]
    found, numbers = np.unique(values, return_counts=True)
    return [[int(value), int(number)] for value, number in zip(found, numbers)]


def _short(result: Result) -> Result:
    return {key: value for key, value in result.items() if value not in (None, [])}
