"""UNet on electron microscopy of nerve tissue (ISBI 2012), 512x512 gray: cells are white in the masks, membranes black."""

_base_ = ['_base_/models/unet.py', '_base_/datasets/pairs.py', '_base_/schedules/adamw_cosine.py', '_base_/runtime.py']

dataset = dict(
    data_root='data/em',
    data_prefix=dict(img_path='image', seg_map_path='label'),
    img_suffix='.png',
    label_map={0: 0, 255: 1},
    metainfo=dict(classes=('membrane', 'cell'), palette=[[220, 60, 20], [0, 0, 0]]),
    split=dict(val_percent=20),
)
train_cfg = dict(max_epochs=200, val_interval=10)
