"""Samples of an epoch as pictures: what `tools/browse_dataset.py` does.

The loader is built as a run builds it, so data set, seed and order are training's; no batch is drawn from it.
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from torch.utils.data import DataLoader

from seg.config import load_config
from seg.datasets.bad_files import REPLACED
from seg.engine.dataloader import build_eval_dataloader, build_train_dataloader
from seg.errors import UserError
from seg.visualization.overlay import (
    Picture,
    contact_sheet,
    fit_size,
    overlay,
    palette_of,
    resize_image,
    save_png,
    to_rgb,
    with_caption,
)

_SIDE_PX, _LEAST_PX, _SHEET_PX = 320, 64, 4000  # of a picture on the contact sheet, and of the sheet


@dataclass(frozen=True)
class Dealt:
    """A sample and its place in the epoch's order, from 0. The seed, the epoch and `index` made it."""

    place: int
    index: int
    sample: dict[str, Any]


def run_browse(args: argparse.Namespace) -> None:
    """`tools/browse_dataset.py`: write the pictures and say where they are."""
    config = load_config(args.config, args.cfg_options)
    files, sheet = browse(config, args.out_dir, part=args.part, epoch=args.epoch, number=args.number)
    of_epoch = f' of epoch {args.epoch}' if args.part == 'train' else ''
    print(f'{len(files)} {args.part} samples{of_epoch} in {args.out_dir}; all of them: {sheet}')


def browse(
    config: Config, out_dir: str | Path, *, part: str = 'train', epoch: int = 1, number: int = 16
) -> tuple[list[Path], Path]:
    """Draw the first `number` samples of `epoch`, counted from 1 as in the log: (a file for each, the contact sheet)."""
    if number < 1 or epoch < 1 or (part != 'train' and epoch != 1):
        raise UserError(
            f'--number {number} --epoch {epoch} --part {part}: both count from 1, and an evaluation sees the same '
            'samples in every epoch, so that --epoch goes with --part train'
        )
    loader = build_loader(config, part)
    palette = palette_of(getattr(loader.dataset, 'metainfo', None))
    prefix = f'train_epoch{epoch}' if part == 'train' else part
    side_px = max(_LEAST_PX, min(_SIDE_PX, _SHEET_PX // math.ceil(math.sqrt(number))))
    files, small = [], []
    for dealt in deal(loader, epoch - 1, number):
        name, picture = name_of(dealt), draw(dealt.sample, palette)
        files.append(Path(out_dir) / f'{prefix}_{name}.png')
        save_png(files[-1], picture)
        shrunk = resize_image(picture, fit_size(picture.shape[:2], side_px))
        small.append(with_caption(shrunk, name))
    sheet = Path(out_dir) / f'{prefix}_sheet.png'
    save_png(sheet, contact_sheet(small))
    return files, sheet


def build_loader(config: Config, part: str) -> DataLoader:
    """The loader of one part as a run on one process builds it, without workers."""
    key = f'{part}_dataloader'
    if not config.get(key):
        raise UserError(f'the config has no {key}; --part train, val or test names one that it has')
    options = dict(config[key], num_workers=0)
    seed = (config.get('randomness') or {}).get('seed')
    if seed is None:
        print('the config has no randomness.seed, so that each run draws its own; these are the samples of seed 0')
    if part != 'train':
        return build_eval_dataloader(options, seed=seed or 0)
    accumulate = (config.get('optim_wrapper') or {}).get('accumulative_counts', 1)
    return build_train_dataloader(options, seed=seed or 0, accumulate=accumulate, endless=False)


def deal(loader: DataLoader, epoch: int, number: int) -> Iterator[Dealt]:
    """The first `number` samples of an epoch, counted from 0, in the order in which a run deals them."""
    sampler = loader.batch_sampler
    order = sampler.order(epoch) if hasattr(sampler, 'order') else np.arange(len(loader.dataset))  # type: ignore[arg-type, union-attr]
    for place, index in enumerate(order[:number].tolist()):
        yield Dealt(place, index, loader.dataset[epoch, index])


def name_of(dealt: Dealt) -> str:
    """'0007_car_03': the place in the epoch and the image's own name."""
    metas = dealt.sample.get('metas', {})
    stem = Path(str(metas.get('img_path', 'sample'))).stem
    replaces = '_replaces_a_bad_file' if REPLACED in metas else ''
    return f'{dealt.place:04d}_{stem}{replaces}'


def draw(sample: dict[str, Any], palette: Any) -> Picture:
    """The image at its own size, its labels painted over it where it has some."""
    image = to_rgb(sample['inputs'].permute(1, 2, 0).numpy())
    return image if 'labels' not in sample else overlay(image, sample['labels'].numpy(), palette)
