"""Any data set of images and masks. A config describes it as `dataset`, once: docs/data.md shows how for each kind.

A tenth of the images is held out. Crops of one size are trained on, whole images are scored.
"""

dataset = dict(
    type='SegmentationDataset',
    data_prefix=dict(img_path='images', seg_map_path='masks'),
    split=dict(val_percent=10, seed=0),
)
train_dataloader = dict(
    batch_size=4,
    num_workers=4,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        split=dict(part='train'),
        pipeline=[
            dict(type='LoadImageFromFile'),
            dict(type='LoadAnnotations'),
            dict(type='RandomCrop', crop_size=(512, 512)),
            dict(type='RandomFlip', prob=0.5),
            dict(type='PhotoMetricDistortion'),
            dict(type='PackSegInputs'),
        ],
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=4,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        split=dict(part='val'),
        test_mode=True,
        pipeline=[dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'), dict(type='PackSegInputs')],
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='SegMetric')
test_evaluator = val_evaluator
