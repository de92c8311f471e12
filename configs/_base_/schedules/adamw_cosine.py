"""AdamW, a short linear warm-up by steps, then a cosine down to `eta_min` at the run's last step, whatever its length."""

max_epochs = 20
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=3e-4, weight_decay=1e-2),
    clip_grad=dict(max_norm=1.0),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.04, by_epoch=False, begin=0, end=20),
    dict(type='CosineAnnealingLR', eta_min=3e-6, by_epoch=False, begin=20),
]
train_cfg = dict(by_epoch=True, max_epochs=max_epochs, val_interval=1)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
