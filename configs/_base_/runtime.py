"""What every run shares: logging, checkpoints, loggers. Replace any part by its name."""

default_hooks = dict(
    logger=dict(type='LoggerHook', interval=20),
    checkpoint=dict(type='CheckpointHook', interval=1, max_keep_ckpts=3, save_best='mDice', rule='greater'),
    visualization=dict(type='SegVisualizationHook'),
    stop=dict(
        type='StopHook', quiet_s=60
    ),  # of several processes: seconds without a step until the log says who is missing
)
visualizer = dict(type='SegVisualizer', vis_backends=[dict(type='LocalVisBackend')])
# Add dict(type='TensorboardVisBackend'), dict(type='WandbVisBackend', init_kwargs=dict(project='seg')) or
# dict(type='MLflowVisBackend'): pip install 'seg[vis]'.

randomness = dict(seed=0, deterministic=False)
env_cfg = dict(cudnn_benchmark=False)  # True: fast mode, for inputs of one size
model_wrapper_cfg = dict(type='DistributedDataParallel')  # static_graph, gradient_as_bucket_view, gradient_compression
sync_bn = True  # BatchNorm over all processes; nothing changes for one process
auto_scale_lr = dict(enable=False, base_batch_size=16)
load_from = None
