"""What each top-level key of a config is. The keys themselves are in `seg.config_check.TOP_LEVEL`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from seg.config_schema import lookup
from seg.config_schema.arguments import Argument, Arguments, arguments_of
from seg.config_schema.nested import DATASET, MODEL
from seg.config_schema.nodes import Anything, ByName, Fields, Loose, Many, Name, Node, Pick, Typed, Value, fields

_CONSTRUCTOR = 'DefaultOptimWrapperConstructor'
_LEVELS = Literal['CRITICAL', 'FATAL', 'ERROR', 'WARNING', 'WARN', 'INFO', 'DEBUG', 'NOTSET']
# What the trainer gives torch's DataLoader itself, or has a key of its own for.
_OF_THE_TRAINER = ('dataset', 'sampler', 'batch_sampler', 'shuffle', 'worker_init_fn', 'generator', 'collate_fn')

HOOK = Typed('HOOKS', parts={'priority': Value(int | str)})
SCHEDULER = Typed(
    'PARAM_SCHEDULERS',
    supplied=frozenset({'optimizer'}),
    parts={'convert_to_iter_based': Value(bool)},
)
METRIC = Typed('METRICS')
_LOOP_GIVEN = frozenset({'runner', 'dataloader', 'evaluator'})


def sections(config: Mapping[str, Any]) -> dict[str, Node]:
    """Top-level key -> what stands there in `config`."""
    loader = _dataloader()
    evaluator = Pick(_evaluator)
    return {
        'model': replace(MODEL, filled=_filled_model(config)),
        'data_preprocessor': MODEL,
        'train_dataloader': loader,
        'val_dataloader': loader,
        'test_dataloader': loader,
        'val_evaluator': evaluator,
        'test_evaluator': evaluator,
        **_loops(),
        'optim_wrapper': Pick(_optim_wrapper),
        'param_scheduler': Pick(_param_scheduler),
        'auto_scale_lr': Pick(_auto_scale_lr),
        'default_hooks': ByName(HOOK),
        'custom_hooks': Many(HOOK),
        'visualizer': Typed('VISUALIZERS'),
        'log_processor': Typed('LOG_PROCESSORS', default='LogProcessor'),
        **_environment(),
        **_model_treatment(),
    }


def train_loop(config: Mapping[str, Any]) -> str:
    """The type of training loop that `train_cfg` means."""
    by_epoch = config.get('by_epoch', 'max_epochs' in config)
    return config.get('type') or ('EpochBasedTrainLoop' if by_epoch else 'IterBasedTrainLoop')


def _filled_model(config: Mapping[str, Any]) -> frozenset[str]:
    return frozenset({'data_preprocessor'} if config.get('data_preprocessor') is not None else ())


def _loops() -> dict[str, Node]:
    return {
        'train_cfg': Typed('LOOPS', train_loop, supplied=_LOOP_GIVEN, parts={'by_epoch': Value(bool)}),
        'val_cfg': Typed('LOOPS', 'ValLoop', supplied=_LOOP_GIVEN),
        'test_cfg': Typed('LOOPS', 'TestLoop', supplied=_LOOP_GIVEN),
    }


def _environment() -> dict[str, Node]:
    randomness = fields('randomness', seed=int | None, diff_rank_seed=bool, deterministic=bool | Literal['warn'])
    env_cfg = fields('env_cfg', cudnn_benchmark=bool, mp_cfg=dict | None, dist_cfg=dict | None, resource_limit=int)
    inside = {
        'mp_cfg': fields('mp_cfg', mp_start_method=str, opencv_num_threads=int),
        'dist_cfg': fields('dist_cfg', backend=str, timeout=float | None),
    }
    return {
        'work_dir': Value(str | None),
        'load_from': Value(str | None),
        'resume': Value(bool),
        'launcher': Value(Literal['none', 'pytorch', 'slurm', 'mpi']),
        'log_level': Value(int | _LEVELS),
        'experiment_name': Value(str | None),
        'default_scope': Value(Literal[tuple(lookup.scopes())]),
        'runner_type': Name('RUNNERS'),
        'custom_imports': Anything(),  # has been looked at when it was done
        'check_data': Pick(_check_data),
        'randomness': randomness,
        'env_cfg': replace(env_cfg, parts=inside),
    }


def _model_treatment() -> dict[str, Node]:
    return {
        'model_wrapper_cfg': Typed('MODEL_WRAPPERS', 'DistributedDataParallel', supplied=frozenset({'module'})),
        'sync_bn': Value(bool | Literal['torch', 'mmcv'] | None),
        'find_unused_parameters': Value(bool),
        'activation_checkpointing': Value(str | Sequence[str] | None),
        'efficient_conv_bn_eval': Value(bool | str | Sequence[str] | None),
        'compile': Pick(_compile),
    }


def _auto_scale_lr(value: Any) -> Node:
    enabled = isinstance(value, Mapping) and bool(value.get('enable'))
    base = Argument(int) if enabled else Argument(int, None)
    return Fields('auto_scale_lr', Arguments({'enable': Argument(bool, False), 'base_batch_size': base}))


def _check_data(value: Any) -> Node:
    return fields('check_data', max_seconds=float, full=bool) if isinstance(value, Mapping) else Value(bool | dict)


def _compile(value: Any) -> Node:
    import torch

    if isinstance(value, Mapping):
        return Fields('torch.compile', arguments_of(torch.compile).without('model'))
    return Value(bool | dict)


def _dataloader() -> Node:
    from torch.utils.data import DataLoader

    arguments = arguments_of(DataLoader).without(*_OF_THE_TRAINER)
    own = {
        'dataset': Argument(),
        'batch_size': Argument(int),
        'num_workers': Argument(int, 0),
        'drop_last': Argument(bool, False),
        'sampler': Argument(default=None),
        'collate_fn': Argument(default=None),
    }
    sampler = Typed('DATA_SAMPLERS', 'DefaultSampler', supplied=frozenset({'dataset'}))
    parts = {'dataset': DATASET, 'sampler': sampler, 'collate_fn': Typed('FUNCTIONS', partial=True)}
    return Fields('a dataloader', replace(arguments, by_name={**arguments.by_name, **own}), parts)


def _evaluator(value: Any) -> Node:
    if isinstance(value, Mapping) and 'metrics' in value:
        return Typed('EVALUATOR', 'Evaluator', parts={'metrics': Many(METRIC, alone=True)})
    return Many(METRIC, alone=True)


def _param_scheduler(value: Any) -> Node:
    schedules = Many(SCHEDULER, alone=True)
    return ByName(schedules) if isinstance(value, Mapping) and 'type' not in value else schedules


def _optim_wrapper(value: Any) -> Node:
    given = value.get('constructor') if isinstance(value, Mapping) else None
    if given not in (None, _CONSTRUCTOR):  # it makes of the other keys what it likes
        return Pick(lambda _: ByName(Loose(Typed('OPTIM_WRAPPERS', guess=True, partial=True))))
    optimizer = Typed('OPTIMIZERS', supplied=frozenset({'params'}))
    parts: dict[str, Node] = {
        'optimizer': optimizer,
        'constructor': Name('OPTIM_WRAPPER_CONSTRUCTORS'),
        'paramwise_cfg': _paramwise(),
        'clip_grad': Pick(_clip_grad),
    }
    return Typed('OPTIM_WRAPPERS', 'OptimWrapper', parts=parts)


def _paramwise() -> Node:
    multipliers = ('bias_lr_mult', 'bias_decay_mult', 'norm_decay_mult', 'flat_decay_mult', 'dwconv_decay_mult')
    node = fields(
        'paramwise_cfg',
        **dict.fromkeys((*multipliers, 'dcn_offset_lr_mult'), float),
        bypass_duplicate=bool,
        custom_keys=dict,
    )
    return replace(node, parts={'custom_keys': ByName(fields('custom_keys', lr_mult=float, decay_mult=float))})


def _clip_grad(value: Any) -> Node:
    from torch.nn.utils import clip_grad_norm_, clip_grad_value_

    by_value = isinstance(value, Mapping) and value.get('type') == 'value'
    arguments = arguments_of(clip_grad_value_ if by_value else clip_grad_norm_).without('parameters')
    return Fields('clip_grad', arguments, {'type': Value(Literal['norm', 'value'])})
