"""UNet on CamVid's 11 street classes: the next experiment, in a few lines on the same bases."""

_base_ = ['_base_/models/unet.py', '_base_/datasets/camvid.py', '_base_/schedules/adamw_cosine.py', '_base_/runtime.py']

model = dict(num_classes=11)
train_cfg = dict(max_epochs=100)
