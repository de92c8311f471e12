"""A run small enough for a test: bright boxes on dark noise, a UNet of four channels, a step in milliseconds."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from PIL import Image

CLASSES = ('background', 'box')


def make_data(root: Path, train: int = 8, val: int = 5, size: tuple[int, int] = (24, 32), seed: int = 0) -> Path:
    """`root/{train,train_masks,val,val_masks}` with PNG files; size is (height, width) in pixels."""
    rng = np.random.default_rng(seed)
    for part, count in (('train', train), ('val', val)):
        (root / part).mkdir(parents=True, exist_ok=True)
        (root / f'{part}_masks').mkdir(exist_ok=True)
        for number in range(count):
            image, mask = _scene(rng, size)
            Image.fromarray(image).save(root / part / f'{part}{number}.png')
            Image.fromarray(mask).save(root / f'{part}_masks' / f'{part}{number}.png')
    return root


def _scene(rng: np.random.Generator, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    height, width = size
    image = rng.integers(0, 90, (height, width, 3), dtype=np.uint8)
    mask = np.zeros(size, dtype=np.uint8)
    top, left = rng.integers(2, height // 2), rng.integers(2, width // 2)
    mask[top : top + height // 2, left : left + width // 2] = 1
    image[mask == 1] += 120
    return image, mask


def tiny_config(root: Path, work_dir: Path, **changes: Any) -> Config:
    """A config on `make_data`'s files, 2 epochs of 2 steps; `changes` are merged in like `--cfg-options`."""
    load, labels, pack = dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'), dict(type='PackSegInputs')

    def dataset(part: str, pipeline: list[dict]) -> dict:
        return dict(
            type='SegmentationDataset',
            data_root=str(root),
            data_prefix=dict(img_path=part, seg_map_path=f'{part}_masks'),
            img_suffix='.png',
            seg_map_suffix='.png',
            metainfo=dict(classes=CLASSES, palette=[[0, 0, 0], [255, 0, 0]]),
            pipeline=pipeline,
            serialize_data=False,  # for its sake MMEngine collects garbage, half a second at each build
        )

    val_loader = dict(batch_size=2, num_workers=0, dataset=dataset('val', [load, labels, pack]))
    config = Config(
        dict(
            work_dir=str(work_dir),
            model=dict(
                type='Segmentor',
                num_classes=2,
                data_preprocessor=dict(type='SegPreprocessor', mean=[60.0] * 3, std=[60.0] * 3),
                network=dict(type='UNet', base_channels=4, depth=2),
                losses=[dict(type='CrossEntropyLoss'), dict(type='DiceLoss')],
            ),
            train_dataloader=dict(
                batch_size=4,
                num_workers=0,
                dataset=dataset('train', [load, labels, dict(type='RandomFlip', prob=0.5), pack]),
            ),
            val_dataloader=val_loader,
            test_dataloader=val_loader,
            train_cfg=dict(by_epoch=True, max_epochs=2),
            val_cfg=dict(),
            test_cfg=dict(),
            val_evaluator=dict(type='SegMetric'),
            test_evaluator=dict(type='SegMetric'),
            optim_wrapper=dict(type='OptimWrapper', optimizer=dict(type='AdamW', lr=0.01)),
            param_scheduler=[dict(type='CosineAnnealingLR', by_epoch=False, eta_min=1e-5)],
            default_hooks=dict(logger=dict(type='LoggerHook', interval=1)),
            randomness=dict(seed=0),
        )
    )
    config.merge_from_dict(copy.deepcopy(changes))
    return config
