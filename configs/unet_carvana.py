"""UNet on Carvana at half size, split by car. `tools/dist_train.sh configs/unet_carvana.py 4`."""

_base_ = [
    '_base_/models/unet.py',
    '_base_/datasets/carvana.py',
    '_base_/schedules/adamw_cosine.py',
    '_base_/runtime.py',
]
