"""CamVid (Brostow et al., 2009), as in SegNet's tutorial: 480x360 street scenes, 11 classes, label 11 = void.

Put its `train/`, `trainannot/`, ... at `dataset.data_root`.
"""

classes = (
    'sky',
    'building',
    'pole',
    'road',
    'pavement',
    'tree',
    'sign symbol',
    'fence',
    'car',
    'pedestrian',
    'bicyclist',
)
palette = [
    [128, 128, 128], [128, 0, 0], [192, 192, 128], [128, 64, 128], [60, 40, 222], [128, 128, 0],
    [192, 128, 128], [64, 64, 128], [64, 0, 128], [64, 64, 0], [0, 128, 192],
]  # fmt: skip
crop_size = (320, 320)

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='RandomResize', scale=(480, 360), ratio_range=(0.75, 1.5), keep_ratio=True),
    dict(type='RandomCrop', crop_size=crop_size, cat_max_ratio=0.75),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='Pad', size=crop_size),
    dict(type='PackSegInputs'),
]
test_pipeline = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'), dict(type='PackSegInputs')]
dataset = dict(
    type='SegmentationDataset',
    data_root='data/camvid',
    img_suffix='.png',
    seg_map_suffix='.png',
    ignore_index=11,
    metainfo=dict(classes=classes, palette=palette),
)
train_dataloader = dict(
    batch_size=4,
    num_workers=4,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(data_prefix=dict(img_path='train', seg_map_path='trainannot'), pipeline=train_pipeline),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=4,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        data_prefix=dict(img_path='val', seg_map_path='valannot'),
        pipeline=test_pipeline,
        test_mode=True,
    ),
)
test_dataloader = dict(
    batch_size=1,
    num_workers=4,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        data_prefix=dict(img_path='test', seg_map_path='testannot'),
        pipeline=test_pipeline,
        test_mode=True,
    ),
)
val_evaluator = dict(type='SegMetric')
test_evaluator = val_evaluator
