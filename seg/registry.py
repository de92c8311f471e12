"""The registries: children of MMEngine's, which import the modules at `locations` when a name is first looked up.

A name that is registered here and upstream means ours. A registry that only forwards to its parent is here too,
because MMEngine warns about a scope without one (E18).
"""

from mmengine import registry as upstream
from mmengine.registry import Registry


def _child(name: str, parent: Registry, *locations: str) -> Registry:
    return Registry(name, parent=parent, scope='seg', locations=[f'seg.{place}' for place in locations])


DATASETS = _child('dataset', upstream.DATASETS, 'datasets.segmentation', 'datasets.carvana', 'datasets.concat')
TRANSFORM_FILES = ('affine', 'colour', 'crop', 'flip', 'pack', 'pad', 'resize')
TRANSFORMS = _child(
    'transform',
    upstream.TRANSFORMS,
    'datasets.loading',
    *(f'datasets.transforms.{transform}' for transform in TRANSFORM_FILES),
)
DATA_SAMPLERS = _child('data sampler', upstream.DATA_SAMPLERS, 'datasets.sampler')
FUNCTIONS = _child('function', upstream.FUNCTIONS, 'datasets.collate')

LOSSES = ('cross_entropy', 'binary_cross_entropy', 'dice', 'focal', 'tversky')
MODELS = _child(
    'model',
    upstream.MODELS,
    *('models.segmentor', 'models.unet', 'models.preprocessor', 'models.norm'),
    *(f'models.losses.{loss}' for loss in LOSSES),
)
WRAPPERS = ('ddp', 'data_parallel', 'fsdp')
MODEL_WRAPPERS = _child('model_wrapper', upstream.MODEL_WRAPPERS, *(f'engine.wrappers.{kind}' for kind in WRAPPERS))
WEIGHT_INITIALIZERS = _child('weight initializer', upstream.WEIGHT_INITIALIZERS)

OPTIMIZERS = _child('optimizer', upstream.OPTIMIZERS)
OPTIM_WRAPPERS = _child('optimizer wrapper', upstream.OPTIM_WRAPPERS, 'engine.optim')
OPTIM_WRAPPER_CONSTRUCTORS = _child('optimizer wrapper constructor', upstream.OPTIM_WRAPPER_CONSTRUCTORS)
PARAM_SCHEDULERS = _child('parameter scheduler', upstream.PARAM_SCHEDULERS)

METRICS = _child('metric', upstream.METRICS, 'evaluation.metric')
EVALUATOR = _child('evaluator', upstream.EVALUATOR)

RUNNERS = _child('runner', upstream.RUNNERS, 'engine.runner')
LOOPS = _child('loop', upstream.LOOPS, 'engine.loops')
HOOK_FILES = (
    *('bad_files', 'checkpoint', 'early_stopping', 'ema', 'histogram', 'inject', 'logger', 'prediction'),
    *('progress', 'record', 'stop', 'verify', 'visualization'),
)
HOOKS = _child('hook', upstream.HOOKS, *(f'engine.hooks.{hook}_hook' for hook in HOOK_FILES))
LOG_PROCESSORS = _child('log processor', upstream.LOG_PROCESSORS)
VISUALIZERS = _child('visualizer', upstream.VISUALIZERS, 'visualization.visualizer')
VISBACKENDS = _child('vis backend', upstream.VISBACKENDS, 'visualization.backends', 'visualization.mlflow_backend')
