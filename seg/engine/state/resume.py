"""A run's state: what goes into a checkpoint, and how a run goes on from one."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import mmengine

from seg.config import to_plain
from seg.engine import schedules
from seg.engine.state import bucket_order, checkpoint, rng, sharded_checkpoint
from seg.engine.state.first_rank import read_on_first
from seg.engine.state.stored_run import check_counts, explained, hub_info, precision_of, seg_meta
from seg.engine.step import unwrap
from seg.engine.wrappers import fsdp
from seg.errors import UserError
from seg.models.weights import load_weights

STATE_VERSION = 1


def run_state(runner: Any, save_optimizer: bool = True, save_param_scheduler: bool = True) -> dict:
    """Everything that the run is, in plain types, at a save point."""
    state = dict(
        meta=_meta(runner),
        state_dict=dict(unwrap(runner.model).state_dict()),
        message_hub=_hub_state(runner),
        rng=rng.all_states(),
    )
    if save_optimizer:
        state['optimizer'] = runner.optim_wrapper.state_dict()
    if save_param_scheduler:
        state['param_schedulers'] = [_scheduler_state(scheduler) for scheduler in runner.param_schedulers or []]
    runner.call_hook('before_save_checkpoint', checkpoint=state)
    return state


def _meta(runner: Any) -> dict:
    metainfo = checkpoint.plain(dict(runner.train_dataloader.dataset.metainfo), 'dataset.metainfo')
    seg = dict(
        version=STATE_VERSION,
        config=to_plain(runner.resolved_config),
        precision=runner.precision,
        dataset_meta=metainfo,
        world_size=runner.world_size,
        global_batch=runner.global_batch,
        steps_per_epoch=len(runner.train_dataloader),
        images=len(runner.train_dataloader.dataset),
        max_iters=runner.max_iters,
        seed=runner.seed,
        epoch=runner.epoch,
        iter=runner.iter,
    )
    return dict(
        epoch=runner.epoch,
        iter=runner.iter,
        seed=runner.seed,
        experiment_name=runner.experiment_name,
        time=time.strftime('%Y%m%d_%H%M%S'),
        mmengine_version=mmengine.__version__,
        dataset_meta=metainfo,
        seg=seg,
    )


def _hub_state(runner: Any) -> dict:
    """The hooks' notes (best scores, patience). Averages of logged values are not state: they begin anew."""
    return dict(log_scalars={}, runtime_info=dict(runner.message_hub.runtime_info), resumed_keys={})


def _scheduler_state(scheduler: Any) -> dict:
    # OneCycle keeps a function in its state (E12); building the scheduler anew brings it back.
    return {key: value for key, value in scheduler.state_dict().items() if not callable(value)}


# -- going on ---------------------------------------------------------------------------------------------------------


def newest_good(
    work_dir: str | Path, warn: Any, trust: bool = False, outline: bool = False
) -> tuple[Path, dict] | None:
    """The newest whole checkpoint of a run and its content; each damaged one that was passed over is told to `warn`.

    With `outline`, without the numbers of what is in pieces.
    """
    passed_over = 0
    for path in checkpoint.by_age(work_dir):
        try:
            return path, checkpoint.load(path, trust=trust, outline=outline)
        except UserError as error:
            passed_over += 1
            warn(f'{error}; going back to the checkpoint before it')
    if passed_over:
        raise UserError(
            f'none of the {passed_over} checkpoints in {work_dir} can be read; start anew in another folder'
        )
    return None


def load_or_resume(runner: Any, load_from: str | None, resume: bool) -> None:
    if load_from is None:
        return
    if resume:
        resume_from(runner, load_from)
    else:
        load_weights_from(runner, load_from)


def load_weights_from(runner: Any, filename: str) -> dict:
    """Load what fits of the weights in a file, ours or another's; log what did not. Returns the file's content."""
    state = read_on_first(partial(checkpoint.load, filename, trust=runner.trust_checkpoint))
    state.setdefault('state_dict', state if 'meta' not in state else {})
    with explained(filename):
        runner.call_hook('after_load_checkpoint', checkpoint=state)
        report = load_weights(unwrap(runner.model), state['state_dict'])
    runner.logger.info(f'Weights from {filename}: {report}')
    runner.loaded_precision = precision_of(state, filename)
    return state


def resume_from(runner: Any, filename: str) -> None:
    in_pieces = fsdp.is_fully_sharded(runner.model)
    state = runner.take_preloaded(filename) or read_on_first(
        partial(checkpoint.load, filename, trust=runner.trust_checkpoint, outline=in_pieces)
    )
    with explained(filename):
        _check_same_run(runner, state, filename)
        if sharded_checkpoint.is_outline(state):
            state = sharded_checkpoint.fill(state, Path(filename), runner.model.mesh)
        _put_back(runner, state)
    runner.logger.info(f'Resumed from {filename}: epoch {runner.epoch}, step {runner.iter} of {runner.max_iters}')


def _put_back(runner: Any, state: dict) -> None:
    bucket_order.settle(runner.model)
    runner.call_hook('after_load_checkpoint', checkpoint=state)
    unwrap(runner.model).load_state_dict(state['state_dict'])
    runner.train_loop._epoch = state['meta']['epoch']
    runner.train_loop._iter = state['meta']['iter']
    for key, value in hub_info(state).items():
        runner.message_hub.update_info(key, value)
    _load_schedules(runner, state)
    if not rng.restore(state.get('rng', [])):
        runner.logger.info('The checkpoint is of another number of processes: dropout draws anew, samples do not')


def _load_schedules(runner: Any, state: dict) -> None:
    """The optimizer and the schedules, as saved; in a run of another length the schedules are planned anew."""
    saved, planned = state.get('param_schedulers', []), seg_meta(state).get('max_iters', runner.max_iters)
    if planned == runner.max_iters:
        runner.optim_wrapper.load_state_dict(state['optimizer'])
        for scheduler, values in zip(runner.param_schedulers or [], saved):
            scheduler.load_state_dict(values)
        return
    rates = schedules.replay(runner, saved)
    runner.optim_wrapper.load_state_dict(state['optimizer'])
    for group, rate in zip(runner.optim_wrapper.optimizer.param_groups, rates):
        group['lr'] = rate
    runner.logger.info(
        f'The run now has {runner.max_iters} steps, where {planned} were planned: the schedules go on as if it had been '
        f'planned so from the start, at learning rate {rates[0]:.3e}'
    )


def _check_same_run(runner: Any, state: dict, filename: str) -> None:
    for key in ('state_dict', 'optimizer', 'meta'):
        if key not in state:
            raise UserError(
                f'{filename} has no {key!r}: it holds weights, not a run. Use load_from=... to start from it'
            )
    check_counts(state, filename)
    different = sorted(_shapes(unwrap(runner.model).state_dict()) ^ _shapes(state['state_dict']))
    if different:
        raise UserError(
            f'{filename} is of another model: {len({key for key, _ in different})} weights differ, the first '
            f'{different[0][0]!r}. Resume with the config and the --cfg-options it was made with (the run folder holds the '
            'resolved config), or start from its weights with load_from=...'
        )
    _check_same_data(runner, seg_meta(state), filename)
    schedulers, saved = len(runner.param_schedulers or []), len(state.get('param_schedulers', []))
    if schedulers != saved:
        raise UserError(f'{filename} holds {saved} parameter schedulers, the config has {schedulers}')


def _check_same_data(runner: Any, saved: dict, filename: str) -> None:
    """The same place must hold the same images."""
    was, now = saved.get('global_batch'), runner.global_batch
    if was is not None and was != now:
        raise UserError(
            f'{filename} was made with a global batch of {was}, this run has {now} '
            f'({runner.world_size} process(es)). Set train_dataloader.batch_size so that they agree'
        )
    loader = runner.train_dataloader
    for key, now, what in (
        ('images', len(loader.dataset), 'training images'),
        ('steps_per_epoch', len(loader), 'steps an epoch'),
    ):
        was = saved.get(key, now)
        if was != now:
            raise UserError(
                f'{filename} was made with {was} {what}, this run has {now}: it could not go on where it was. Bring back '
                'the data and drop_last as they were, or start from its weights with load_from=...'
            )


def _shapes(weights: dict) -> set[tuple[str, tuple[int, ...]]]:
    return {(key, tuple(value.shape)) for key, value in weights.items()}
