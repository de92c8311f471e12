"""From a config and a checkpoint to numbers: what `tools/test.py` does. The walk is validation's, so the numbers are."""

import argparse
import json
from contextlib import closing
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.dist import get_rank

from seg.config import load_config
from seg.engine.class_weight import fill_from_checkpoint
from seg.engine.processes.launch import setup_process
from seg.engine.runner import SegRunner
from seg.engine.state import checkpoint
from seg.errors import UserError

_TRAINING_KEYS = (
    'train_dataloader', 'train_cfg', 'optim_wrapper', 'param_scheduler', 'auto_scale_lr',
    'val_dataloader', 'val_cfg', 'val_evaluator', 'custom_hooks',
)  # fmt: skip


def run_test(args: argparse.Namespace) -> int:
    """`tools/test.py`; returns its exit code."""
    config = load_config(args.config, args.cfg_options)
    setup_process(args.launcher, (config.get('env_cfg') or {}).get('dist_cfg'))
    report = evaluate(
        config, args.checkpoint, out_dir=args.out, show_dir=args.show_dir, launcher=args.launcher,
        work_dir=args.work_dir, trust_checkpoint=args.trust_checkpoint,
    )  # fmt: skip
    if args.json and get_rank() == 0:
        checkpoint.write_text(json.dumps(report, indent=1, ensure_ascii=False) + '\n', args.json)
        print(f'Metrics: {args.json}')
    return 0


def evaluate(
    config: Config,
    checkpoint_path: str | Path,
    *,
    out_dir: str | Path | None = None,
    show_dir: str | Path | None = None,
    work_dir: str | None = None,
    launcher: str = 'none',
    trust_checkpoint: bool = False,
) -> dict[str, Any]:
    """The scores of a checkpoint on the config's test data, as `metrics.json` has them."""
    _need_test_data(config)
    fill_from_checkpoint(config, checkpoint_path, trust_checkpoint)
    for key in _TRAINING_KEYS:
        config.pop(key, None)
    config.launcher, config.load_from, config.resume = launcher, str(checkpoint_path), False
    config.work_dir = (
        work_dir or config.get('work_dir') or str(Path('work_dirs') / f'{Path(config.filename).stem}_test')
    )
    config.default_hooks = dict(config.get('default_hooks') or {}, checkpoint=None, stop=None)
    if out_dir or show_dir:
        config.custom_hooks = [
            dict(type='SavePredictionsHook', out_dir=out_dir and str(out_dir), show_dir=show_dir and str(show_dir))
        ]
    runner = SegRunner.from_cfg(config)
    runner.trust_checkpoint = trust_checkpoint
    with closing(runner):
        return _report(runner, runner.test())


def _need_test_data(config: Config) -> None:
    missing = [key for key in ('test_dataloader', 'test_evaluator') if not config.get(key)]
    if missing:
        raise UserError(
            f'the config has no {" and no ".join(missing)}; most configs say test_dataloader = val_dataloader'
        )
    if config.get('test_cfg') is None:
        config.test_cfg = dict(type='TestLoop')


def _report(runner: SegRunner, scores: dict) -> dict[str, Any]:
    reports = [metric.report for metric in runner.test_loop.evaluator.metrics if hasattr(metric, 'report')]
    return reports[0] if reports else scores
