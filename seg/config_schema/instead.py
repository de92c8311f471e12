"""What configs of OpenMMLab say that has another name here, or no use."""

CALLED_HERE = {
    'ADE20KDataset': 'SegmentationDataset',
    'BaseSegDataset': 'SegmentationDataset',
    'CityscapesDataset': 'SegmentationDataset',
    'EncoderDecoder': 'Segmentor',
    'IoUMetric': 'SegMetric',
    'SegDataPreProcessor': 'SegPreprocessor',
    'SegLocalVisualizer': 'SegVisualizer',
}
_SAMPLER = "say sampler=dict(type='DefaultSampler', shuffle=True)"
_SAME_PRECISION = 'leave it out, validation computes in the precision of training'
_INSTEAD = {
    ('a dataloader', 'shuffle'): _SAMPLER,
    ('a dataloader', 'batch_sampler'): f'{_SAMPLER} and batch_size',
    ('a dataloader', 'worker_init_fn'): 'leave it out, a sample is seeded by itself whatever its worker',
    ('a dataloader', 'num_batch_per_epoch'): 'say indices=... in the data set to see less of it',
    ('LoggerHook', 'log_metric_by_epoch'): 'leave it out, scores are logged by step',
    ('LoggerHook', 'ignore_last'): 'leave it out, the last step is always logged',
    ('ValLoop', 'fp16'): _SAME_PRECISION,
    ('TestLoop', 'fp16'): _SAME_PRECISION,
    ('Segmentor', 'backbone'): 'a network is one: network=dict(type=...)',
    ('Segmentor', 'decode_head'): 'a network is one: network=dict(type=...), and losses=[...]',
    ('Segmentor', 'train_cfg'): 'leave it out',
    ('Segmentor', 'test_cfg'): 'leave it out',
}


def instead(owner: str, argument: object) -> str:
    """'; ...' with what to write in the place of an argument that there isn't, or nothing."""
    text = _INSTEAD.get((owner, str(argument)))
    return f'; {text}' if text else ''
