"""UNet (Ronneberger et al., 2015, arXiv:1505.04597) as in Pytorch-UNet: its public checkpoints load (`load_from`)."""

model = dict(
    type='Segmentor',
    num_classes=2,
    # ImageNet's mean and standard deviation, RGB, in 0..255.
    data_preprocessor=dict(type='SegPreprocessor', mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375]),
    network=dict(type='UNet', in_channels=3, base_channels=64, depth=4, upsample='transposed'),
    losses=[dict(type='CrossEntropyLoss'), dict(type='DiceLoss', per='batch')],
)
