"""From a config to a finished run: what `tools/train.py` and `seg.train` do."""

import argparse
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.dist import get_rank

from seg.config import load_for_training
from seg.engine import gate
from seg.engine.check import check_run
from seg.engine.class_weight import fill_class_weights
from seg.engine.folds import apply_fold
from seg.engine.hooks.inject_hook import parse_fault
from seg.engine.precision import DTYPES, default_amp
from seg.engine.processes.launch import leave_together, setup_process
from seg.engine.report import write_report
from seg.engine.runner import SegRunner
from seg.engine.state import continuation, restart, run_folder


@dataclass
class TrainResult:
    """Where a run ended. `metrics` are the last validation's, in 0..1."""

    work_dir: Path
    metrics: dict[str, Any] = field(default_factory=dict)
    last_checkpoint: Path | None = None
    best_checkpoint: Path | None = None
    stop_signal: int = 0


def train(
    config: str | Path | Config,
    *,
    work_dir: str | Path | None = None,
    resume: str | bool | None = None,
    amp: str | None = None,
    compile: bool = False,
    fold: str | None = None,
    launcher: str = 'none',
    cfg_options: dict | None = None,
    trust_checkpoint: bool = False,
    inject: str | None = None,
) -> TrainResult:
    """Train as `config` says; the arguments are the flags of `tools/train.py`.

    Raises UserError for whatever the user must change.
    """
    run = _resolved(config, cfg_options, launcher, work_dir=work_dir, amp=amp, compile=compile, fold=fold)
    checkpoints = run_folder.checkpoint_folder(run)
    if restart.restarted():
        resume = restart.source(resume, checkpoints)
    elif inject:
        parse_fault(inject)
        run.custom_hooks = [*(run.get('custom_hooks') or []), dict(type='InjectHook', fault=inject)]
    run_folder.claim(run.work_dir, bool(resume), checkpoints)
    try:
        found = continuation.prepare(run, resume, trust_checkpoint)
        gate.require(run)
        runner = build_runner(run, launcher, trust_checkpoint, found)
        with closing(runner):
            runner.train()
            return _result(runner)
    finally:
        run_folder.release()


def check(
    config: str | Path | Config, *, launcher: str = 'none', cfg_options: dict | None = None, **flags: Any
) -> None:
    """`tools/train.py CONFIG --check`: look at the data, build everything, try a few steps; print what was found.

    Raises UserError for whatever the user must change. Nothing is left behind.
    """
    run = _resolved(config, cfg_options, launcher, **flags)
    gate.require(run)
    run.launcher = launcher
    fill_class_weights(run)
    lines = check_run(run)
    if get_rank() == 0:
        print('\n'.join([*lines, 'ready']), flush=True)


def _resolved(
    config: str | Path | Config, cfg_options: Any, launcher: str, fold: str | None = None, **flags: Any
) -> Config:
    run = load_for_training(config, cfg_options)
    setup_process(launcher, (run.get('env_cfg') or {}).get('dist_cfg'))
    apply_flags(run, **flags)
    if fold:
        apply_fold(run, fold)
    return run


def run_training(args: argparse.Namespace) -> int:
    """`tools/train.py`; returns its exit code."""
    flags = dict(
        work_dir=args.work_dir,
        amp=args.amp,
        compile=args.compile,
        fold=args.fold,
        launcher=args.launcher,
        cfg_options=args.cfg_options,
    )
    if args.check:
        check(args.config, **flags)
        return 0
    result = train(args.config, **flags, resume=args.resume, trust_checkpoint=args.trust_checkpoint, inject=args.inject)
    if not result.stop_signal:
        return 0
    leave_together()
    return 128 + result.stop_signal


def apply_flags(
    config: Config, *, work_dir: str | Path | None = None, amp: str | None = None, compile: bool = False
) -> None:
    """Write what the command line asks for into the config, so that the run's record holds it."""
    stem = Path(config.filename).stem if config.filename else 'run'
    config.work_dir = str(work_dir or config.get('work_dir') or Path('work_dirs') / stem)
    if compile:
        config.compile = True
    if amp:
        precision = default_amp() if amp == 'auto' else amp
        options = dict(config.get('optim_wrapper') or {})
        options.update(type='AmpOptimWrapper', dtype=str(DTYPES[precision]).removeprefix('torch.'))
        config.optim_wrapper = options


def build_runner(
    config: Config, launcher: str = 'none', trust: bool = False, found: continuation.Found | None = None
) -> SegRunner:
    """A runner whose config holds what was found out: the class weights, the checkpoint to go on from."""
    config.launcher = launcher
    fill_class_weights(config)
    runner = SegRunner.from_cfg(config)
    runner.trust_checkpoint = trust
    if found is not None:
        runner.preloaded[str(found[0])] = found[1]
    return runner


def _result(runner: SegRunner) -> TrainResult:
    info = runner.message_hub.runtime_info
    folder, checkpoints = Path(runner.work_dir), run_folder.checkpoint_folder(runner.cfg)
    best = next((value for key, value in info.items() if key.startswith('best_ckpt_')), None)
    result = TrainResult(
        work_dir=folder,
        metrics=runner.last_metrics,
        last_checkpoint=checkpoints / info['last_ckpt'] if 'last_ckpt' in info else None,
        best_checkpoint=checkpoints / best if best else None,
        stop_signal=runner.stop_signal,
    )
    if get_rank() == 0:
        write_report(runner, result)
    return result
