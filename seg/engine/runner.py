"""The run: MMEngine's Runner, with the parts replaced that are wrong on today's torch (D3, D5, D7, D9, D11, D19).

Each override is short and hands over to the file that is named for the technique.
"""

import copy
import time
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import broadcast_object_list, get_dist_info
from mmengine.runner import Runner
from torch import Tensor, nn

from seg.engine import nonfinite, randomness, schedules, step
from seg.engine.dataloader import shut_down_workers
from seg.engine.hooks.logger_hook import LoggerHook
from seg.engine.hooks.stop_hook import StopHook
from seg.engine.optim import OptimWrapper
from seg.engine.state import checkpoint, pretrained, resume
from seg.engine.wrappers import compiling, fsdp, wrapping
from seg.engine.wrappers.sharded_state import gathered
from seg.registry import RUNNERS

# What a run has without being asked. A config's `default_hooks` replaces them by name; None drops one.
_DEFAULT_HOOKS = dict(
    sampler_seed=dict(type='DistSamplerSeedHook'),
    logger=dict(type='LoggerHook'),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(type='CheckpointHook', interval=1),
    record=dict(type='RecordHook'),
    bad_files=dict(type='BadFilesHook'),
    stop=dict(type='StopHook'),
    progress=dict(type='ProgressBarHook'),
)
# MMEngine's hooks whose work LoggerHook does (E5); OpenMMLab configs list them.
_DONE_BY_LOGGER = {'IterTimerHook', 'RuntimeInfoHook'}
# MMEngine keeps loggers and message hubs by the run's name; two runs of one process must not share one.
_used_stamps: set[str] = set()


@RUNNERS.register_module()
class SegRunner(Runner):
    """MMEngine's Runner on which a step is a function of the global batch.

    `trust_checkpoint` allows `load_from` and `resume` to unpickle any Python object.
    """

    _has_loaded: bool
    _train_loop: Any
    _val_loop: Any
    optim_wrapper: Any
    param_schedulers: Any

    def __init__(self, *args: Any, trust_checkpoint: bool = False, **kwargs: Any) -> None:
        self.trust_checkpoint = trust_checkpoint
        self.training_started = False
        self.stop_signal = 0
        self.loaded_precision = 'fp32'
        self.last_metrics: dict[str, Any] = {}
        self.preloaded: dict[str, dict] = {}  # a checkpoint that was read to find it need not be read again
        self.resolved_config = copy.deepcopy(kwargs.get('cfg'))
        if 'default_scope' not in (kwargs.get('cfg') or {}):
            kwargs['default_scope'] = 'seg'  # upstream's from_cfg fills in its own
        super().__init__(*args, **kwargs)

    # -- what the run is ------------------------------------------------------------------------------------------

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one optimizer step, on each rank."""
        if isinstance(self.optim_wrapper, OptimWrapper):
            return self.optim_wrapper.micro_batches
        return (self.optim_wrapper or {}).get('accumulative_counts', 1)

    @property
    def global_batch(self) -> int:
        """Images of one optimizer step: per process x processes x accumulation."""
        loader = self._train_dataloader if isinstance(self._train_dataloader, dict) else self._train_dataloader_config
        return loader['batch_size'] * self.world_size * self.micro_batches

    @property
    def precision(self) -> str:
        """'fp32', 'bf16' or 'fp16': what training, validation and test compute in."""
        if isinstance(self.optim_wrapper, OptimWrapper):
            return self.optim_wrapper.precision
        return self.loaded_precision

    @property
    def by_epoch(self) -> bool:
        """Whether progress is counted in epochs."""
        return isinstance(self.train_loop, self._epoch_loop_type())

    # -- building -------------------------------------------------------------------------------------------------

    def setup_env(self, env_cfg: dict) -> None:
        """What is left of it: `seg.engine.processes.launch` sets up the process group and the threads before the Runner."""
        torch.backends.cudnn.benchmark = bool(env_cfg.get('cudnn_benchmark', False))
        self._rank, self._world_size = get_dist_info()
        self._distributed = self._world_size > 1
        self._timestamp = _agreed_timestamp(self.work_dir)

    def set_randomness(self, seed: int | None, diff_rank_seed: bool = False, deterministic: bool = False) -> None:
        self._deterministic = deterministic
        self._seed = randomness.seed_everything(seed, diff_rank_seed=diff_rank_seed, deterministic=deterministic)

    def wrap_model(self, model_wrapper_cfg: dict | None, model: nn.Module) -> nn.Module:
        with pretrained.read_by_us(self.trust_checkpoint):  # FSDP's weights are made here
            wrapped = wrapping.wrap_model(model, model_wrapper_cfg, self.cfg, self.logger)
        self.cfg.pop('activation_checkpointing', None)  # done; upstream's train() would do it again (D15)
        return wrapped

    def _init_model_weights(self) -> None:
        if not fsdp.is_fully_sharded(self.model):  # it has been done before the weights were cut
            with pretrained.read_by_us(self.trust_checkpoint):
                super()._init_model_weights()

    def build_train_loop(self, loop: Any) -> Any:
        config = dict(loop)
        by_epoch = config.pop('by_epoch', 'max_epochs' in config)
        config.setdefault('type', 'EpochBasedTrainLoop' if by_epoch else 'IterBasedTrainLoop')
        self._train_dataloader_config = self._train_dataloader
        built = super().build_train_loop(config)
        self._log_batches(built)
        return built

    def build_val_loop(self, loop: Any) -> Any:
        return super().build_val_loop({'type': 'ValLoop', **loop} if isinstance(loop, dict) else loop)

    def build_test_loop(self, loop: Any) -> Any:
        return super().build_test_loop({'type': 'TestLoop', **loop} if isinstance(loop, dict) else loop)

    def register_default_hooks(self, hooks: dict | None = None) -> None:
        chosen = {**copy.deepcopy(_DEFAULT_HOOKS), **(hooks or {})}
        for name, hook in chosen.items():
            if isinstance(hook, dict) and hook.get('type') in _DONE_BY_LOGGER:
                self.logger.info(f'default_hooks.{name}: {hook["type"]} is not needed, LoggerHook logs what it did')
            elif hook is not None:
                self.register_hook(hook)

    def build_param_scheduler(self, scheduler: Any) -> Any:
        configs = [scheduler] if isinstance(scheduler, dict) else scheduler
        if all(isinstance(config, dict) for config in configs):
            configs = schedules.shorten_warmup([dict(config) for config in configs], self.max_iters, self.logger)
        return super().build_param_scheduler(configs)

    def scale_lr(self, optim_wrapper: Any, auto_scale_lr: dict | None = None) -> None:
        """`auto_scale_lr=dict(enable=True, base_batch_size=N)`: the rate grows with the global batch, linearly."""
        if not auto_scale_lr or not auto_scale_lr.get('enable', False):
            return
        ratio = self.global_batch / auto_scale_lr['base_batch_size']
        for group in optim_wrapper.optimizer.param_groups:
            group['lr'] *= ratio
        self.logger.info(f'Learning rate x {ratio:g}: global batch {self.global_batch}, base {auto_scale_lr}')

    # -- running --------------------------------------------------------------------------------------------------

    def train(self) -> nn.Module:
        self.training_started = True
        return super().train()

    def close(self) -> None:
        """Let go of what outlives a run, ended or failed: loader workers, signal handlers."""
        for loop in (self._train_loop, self._val_loop, self._test_loop):
            shut_down_workers(getattr(loop, 'dataloader', None))
        for hook in self.hooks:
            if isinstance(hook, StopHook):
                hook.put_back()

    def prepare(self) -> None:
        """Build what `train` builds, without running it: for `--check`."""
        self.training_started = True
        self._train_loop = self.build_train_loop(self._train_loop)
        self.optim_wrapper = self.build_optim_wrapper(self.optim_wrapper)
        self.scale_lr(self.optim_wrapper, self.auto_scale_lr)
        if self.param_schedulers is not None:
            self.param_schedulers = self.build_param_scheduler(self.param_schedulers)
        if self._val_loop is not None:
            self._val_loop = self.build_val_loop(self._val_loop)
        self.call_hook('before_run')
        self._init_model_weights()
        self.load_or_resume()
        self._maybe_compile('train_step')

    def train_step(self, batch: dict) -> dict[str, Tensor]:
        """One optimizer step on this rank's part of a global batch (`seg.engine.step`)."""
        if self.optim_wrapper.skip_nonfinite:
            return nonfinite.train_step(self, batch)
        return step.train_step(self.model, batch, self.optim_wrapper)

    def agree(self, verdict: bool) -> bool:
        """The first rank's verdict, on all ranks; over gloo, so that the device is not waited for."""
        if self.world_size == 1:
            return verdict
        answer = torch.tensor([int(verdict)])
        torch.distributed.broadcast(answer, src=0)
        return bool(answer)

    def check_finite(self) -> None:
        """Raise RuntimeError if a loss since the last log line is not finite: such weights must not be written."""
        for hook in self.hooks:
            if isinstance(hook, LoggerHook):
                hook.check_finite(self)

    def metric_tables(self) -> list[str]:
        """What the metrics of the loop that just ran have to say at length, as text."""
        loop = self._val_loop if self.training_started else self._test_loop
        metrics = getattr(getattr(loop, 'evaluator', None), 'metrics', [])
        return [metric.table() for metric in metrics if hasattr(metric, 'table')]

    def _maybe_compile(self, target: str) -> None:
        compiling.compile_network(self.model, self.cfg.get('compile'), self.logger)

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def load_or_resume(self) -> None:
        if not self._has_loaded:
            resume.load_or_resume(self, self._load_from, self._resume)
            self._has_loaded = True

    def load_checkpoint(self, filename: str, map_location: Any = 'cpu', **kwargs: Any) -> dict:
        """Load the weights in `filename`, as far as their keys fit; to the CPU first, whatever the device (D19)."""
        return resume.load_weights_from(self, filename)

    def resume(self, filename: str, *args: Any, **kwargs: Any) -> None:
        """Go on from `filename`: weights, optimizer, schedules, place in the data, counts of the hooks."""
        resume.resume_from(self, filename)

    def take_preloaded(self, filename: str) -> dict | None:
        return self.preloaded.pop(filename, None)

    def state(self, save_optimizer: bool = True, save_param_scheduler: bool = True, in_pieces: bool = False) -> dict:
        """What a checkpoint of this moment holds. Every rank must call it, at a save point.

        Of a model under FSDP the first rank has it whole, in host memory, or with `in_pieces` each rank its own.
        """
        state = resume.run_state(self, save_optimizer, save_param_scheduler)
        return gathered(state) if fsdp.is_fully_sharded(self.model) and not in_pieces else state

    def save_checkpoint(self, out_dir: str, filename: str, **kwargs: Any) -> None:
        """Write the run's state to `out_dir/filename` now. Every rank must call it; the first writes."""
        state = self.state()
        if self.rank == 0:
            checkpoint.save(state, Path(out_dir) / filename)

    # -- helpers --------------------------------------------------------------------------------------------------

    def get_hooks_info(self) -> str:
        return ', '.join(type(hook).__name__ for hook in self.hooks)

    def _log_env(self, env_cfg: dict) -> None:
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else 'CPU'
        self.logger.info(
            f'torch {torch.__version__}, {device}, {self.world_size} process(es), '
            f'{torch.get_num_threads()} thread(s) each, seed {self.seed}, run folder {self.work_dir}'
        )

    def _log_batches(self, loop: Any) -> None:
        size = self._train_dataloader_config['batch_size']
        self.logger.info(
            f'Global batch {self.global_batch} = {size} per process x {self.world_size} process(es) x '
            f'{self.micro_batches} accumulated; {len(loop.dataloader)} steps an epoch, {loop.max_iters} in all'
        )

    @staticmethod
    def _epoch_loop_type() -> type:
        from seg.engine.loops import EpochBasedTrainLoop

        return EpochBasedTrainLoop


def _agreed_timestamp(work_dir: str) -> str:
    """A name for this start of the run, the same on all ranks, that no earlier start in `work_dir` has."""
    stamp = time.strftime('%Y%m%d_%H%M%S')
    number = 2
    name = stamp
    while name in _used_stamps or (Path(work_dir) / name).exists():
        name = f'{stamp}-{number}'
        number += 1
    names = [name]
    broadcast_object_list(names)
    _used_stamps.add(names[0])
    return names[0]
