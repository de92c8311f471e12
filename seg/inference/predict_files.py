"""Photographs in, prediction files out: what `tools/predict.py` does."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

from seg.errors import UserError
from seg.inference.masks import write_label_map, write_overlay, write_probs
from seg.inference.photos import PhotoFile, check_outputs, find_photos
from seg.inference.predictor import Prediction, Predictor
from seg.inference.rle import RleWriter

_SHOWN_FAILURES = 20
_Item = TypeVar('_Item')


def run_prediction(args: argparse.Namespace) -> int:
    """`tools/predict.py`; returns its exit code. Raises UserError, at the end where single photographs failed."""
    out_dir = Path(args.out_dir)
    photos = find_photos(args.inputs, out_dir)
    predictor = Predictor(args.checkpoint, args.config, args.device, args.trust_checkpoint)
    check_outputs(photos, out_dir, _endings(args, predictor))
    if args.rle:
        _check_rle(photos, predictor)
    rows: AbstractContextManager[RleWriter | None] = RleWriter(args.rle) if args.rle else nullcontext()
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        with rows as writer:
            failures = _predict_all(predictor, photos, args, writer)
    except OSError as error:  # those of reading are UserErrors by now
        raise UserError(f'{error.filename or out_dir}: cannot be written: {error.strerror or error}') from error
    _report(len(photos), failures, out_dir, args.rle)
    return 0


def _endings(args: argparse.Namespace, predictor: Predictor) -> list[str]:
    """Of the files that each photograph gets; the first is the label map."""
    overlay = ['_overlay.png'] if args.overlay else []
    return ['.png', *overlay, *(_prob_endings(predictor.num_classes).values() if args.probs else [])]


def _prob_endings(num_classes: int) -> dict[int, str]:
    """Of the foreground alone for one or two classes, of each class for more."""
    if num_classes <= 2:
        return {1: '_probs.png'}
    return {label: f'_probs_{label}.png' for label in range(num_classes)}


def _check_rle(photos: list[PhotoFile], predictor: Predictor) -> None:
    if predictor.num_classes > 2:
        raise UserError(
            f'--rle: the submission format holds one class against the rest; this model has {predictor.num_classes}'
        )
    name, count = Counter(photo.path.name for photo in photos).most_common(1)[0]
    if count > 1:
        raise UserError(f'--rle: {count} photographs are named {name}, and a row knows its photograph by that name')


def _predict_all(
    predictor: Predictor, photos: list[PhotoFile], args: argparse.Namespace, rows: RleWriter | None
) -> list[str]:
    """Returns what was wrong with the photographs that could not be predicted."""
    failures = []
    outcomes = predictor.each(photo.path for photo in photos)
    # Outcomes first: zip asks its first argument once more at the end, and the progress has its last word to say.
    for (_, outcome), photo in zip(_with_progress(outcomes, len(photos)), photos):
        try:
            if isinstance(outcome, UserError):
                raise outcome
            _write(predictor, photo, outcome, args)
        except UserError as error:
            failures.append(str(error))
            continue
        if rows is not None:
            rows.add(photo.path.name, outcome.labels)
    return failures


def _write(predictor: Predictor, photo: PhotoFile, prediction: Prediction, args: argparse.Namespace) -> None:
    """The label map comes last, so that where it is, the rest is."""
    out_dir = Path(args.out_dir)
    if args.overlay:
        picture = predictor.pipeline.read(photo.path)
        write_overlay(picture, prediction.labels, photo.output(out_dir, '_overlay.png'), predictor.palette)
    if args.probs:
        for label, ending in _prob_endings(predictor.num_classes).items():
            write_probs(prediction.prob(label), photo.output(out_dir, ending))
    write_label_map(prediction.labels, photo.output(out_dir, '.png'), predictor.palette)


def _with_progress(items: Iterable[_Item], total: int) -> Iterator[_Item]:
    """A bar on a terminal; in a file a line at each tenth of the way."""
    if sys.stderr.isatty():
        yield from tqdm(items, total=total, unit='photo', dynamic_ncols=True)
        return
    for number, item in enumerate(items, start=1):
        yield item
        if number * 10 // total > (number - 1) * 10 // total:
            print(f'{number} of {total} photographs', file=sys.stderr, flush=True)


def _report(total: int, failures: list[str], out_dir: Path, rle: str | None) -> None:
    print(f'{total - len(failures)} of {total} predictions: {out_dir}' + (f'; run lengths: {rle}' if rle else ''))
    if failures:
        more = len(failures) - _SHOWN_FAILURES
        lines = failures[:_SHOWN_FAILURES] + ([f'and {more} more'] if more > 0 else [])
        raise UserError('\n  '.join([f'{len(failures)} of {total} photographs could not be predicted:', *lines]))
