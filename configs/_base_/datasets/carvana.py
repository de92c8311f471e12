"""Carvana (Kaggle, 2017): 5,088 photographs of 318 cars, 1918x1280, 16 views each, masks as GIF. Split by car.

Put Kaggle's `train/` and `train_masks/` under `dataset.data_root`.
"""

scale = (959, 640)  # width, height: half of the photographs' size

train_pipeline = [
    dict(type='LoadImageFromFile', decode_for=scale),
    dict(type='LoadAnnotations'),
    dict(type='Resize', scale=scale),
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='PhotoMetricDistortion',
        brightness_delta=16,
        contrast_range=(0.75, 1.25),
        saturation_range=(0.75, 1.25),
        hue_delta=4,
    ),
    dict(type='PackSegInputs'),
]
# Masks are loaded after Resize: scores are at the mask's own size.
test_pipeline = [
    dict(type='LoadImageFromFile', decode_for=scale),
    dict(type='Resize', scale=scale),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
dataset = dict(
    type='CarvanaDataset',
    data_root='data/carvana',
    data_prefix=dict(img_path='train', seg_map_path='train_masks'),
    split=dict(val_percent=10, seed=0),
)
train_dataloader = dict(
    batch_size=4,
    num_workers=4,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(split=dict(part='train'), pipeline=train_pipeline),
)
val_dataloader = dict(
    batch_size=4,
    num_workers=4,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(split=dict(part='val'), pipeline=test_pipeline, test_mode=True),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='SegMetric')
test_evaluator = val_evaluator
