"""UNet on DRIVE's retina photographs (Staal et al., 2004), 565x584, masks as black and white GIF.

Put DRIVE's `training/`, with `images/` and `1st_manual/`, at `data/drive`.
"""

_base_ = ['_base_/models/unet.py', '_base_/datasets/pairs.py', '_base_/schedules/adamw_cosine.py', '_base_/runtime.py']

dataset = dict(
    data_root='data/drive',
    data_prefix=dict(img_path='images', seg_map_path='1st_manual'),
    img_suffix='_training.tif',
    seg_map_suffix='_manual1.gif',
    label_map={0: 0, 255: 1},
    metainfo=dict(classes=('background', 'vessel'), palette=[[0, 0, 0], [0, 200, 80]]),
    split=dict(val_percent=20),
)
train_cfg = dict(max_epochs=200, val_interval=10)
