"""docs/options.md: every row is understood by the tools and the strict config, and has a test that shows its effect."""

import re
import shlex
from pathlib import Path

import pytest

from seg import registry
from seg.config import load_config
from seg.engine.cli import parser_for_train

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / 'configs/unet_carvana.py'
ROWS = [
    tuple(cell.strip() for cell in line.strip('|\n').split(' | ', 1))
    for line in (ROOT / 'docs/options.md').read_text(encoding='utf-8').splitlines()
    if line.startswith('| ') and not line.startswith('| what you had')
]
SPANS = [(row[0], span) for row in ROWS for span in re.findall(r'`([^`]+)`', row[1])]

TRAINING = 'tests/engine/test_training.py'
# The first words of a row: where its effect is tested.
EVIDENCE = {
    '`--epochs': f'{TRAINING}::test_what_options_do',
    '`--batch-size': f'{TRAINING}::test_two_ranks_make_one_folder_and_the_same_numbers',
    '`--learning-rate': f'{TRAINING}::test_what_options_do',
    'the rate follows': f'{TRAINING}::test_what_options_do',
    '`--load': f'{TRAINING}::test_weights_of_another_class_count_load_in_part',
    'start from (resume)': f'{TRAINING}::test_a_resumed_run_equals_the_unbroken_one',
    '`--scale': 'tests/engine/test_check.py::test_the_label_path_is_bounded_by_the_size',
    '`--validation': 'tests/datasets/test_split.py::',
    'where the data lie': 'tests/test_readme.py::test_every_command_runs_in_order',
    'a part of the data': 'tests/datasets/test_split.py::',
    'k-fold': 'tests/engine/test_folds.py::',
    'bad files': 'tests/engine/test_bad_files.py::',
    '`--amp`': f'{TRAINING}::test_mixed_precision_trains_and_is_tested_in_itself',
    'Apex': f'{TRAINING}::test_mixed_precision_trains_and_is_tested_in_itself',
    '`--bilinear`': 'tests/models/test_unet.py::',
    '`--classes': f'{TRAINING}::test_an_option_trains_and_is_resumed',
    'experiment name': f'{TRAINING}::test_a_run_leaves_what_it_should',
    'save every N': 'tests/engine/test_crash_clone.py::test_every_cut_leaves_a_whole_checkpoint',
    'save on Ctrl-C': 'tests/engine/test_stops.py::test_a_signal_to_the_launcher',
    'start again after': 'tests/engine/test_elastic.py::test_a_run_killed_three_times',
    'see what a failure': 'tests/engine/test_drills.py::test_a_killed_rank_ends_all',
    'deterministic': f'{TRAINING}::test_an_option_trains_and_is_resumed',
    '`cudnn.benchmark`': f'{TRAINING}::test_switches_of_torch',
    'drop `module.`': 'tests/models/test_weights.py::',
    'tqdm on rank 0': f'{TRAINING}::test_a_bar_on_a_terminal_only',
    'checkpoint on rank 0': f'{TRAINING}::test_two_ranks_make_one_folder_and_the_same_numbers',
    'wandb': 'tests/visualization/test_backends.py::',
    'TensorBoard, MLflow': 'tests/visualization/test_backends.py::',
    'several validations': f'{TRAINING}::test_what_options_do',
    '`DistributedSampler`': 'tests/datasets/test_sampler.py::',
    '`torch.distributed.launch`': 'tests/engine/test_launcher.py::',
    'SyncBN': 'tests/engine/test_step.py::test_ranks_equal_one_process',
    '`broadcast_buffers': f'{TRAINING}::test_ddp_options',
    '`static_graph`': f'{TRAINING}::test_ddp_options',
    'iteration-based': f'{TRAINING}::test_a_resumed_run_equals_the_unbroken_one',
    'gradient accumulation': 'tests/engine/test_step.py::test_accumulation_equals_a_larger_batch',
    'gradient clipping': 'tests/engine/test_optim.py::test_the_norm_before_clipping_is_kept',
    'EMA': 'tests/engine/test_exact_resume.py::test_stopped_after_step_17_and_resumed',
    'ReduceLROnPlateau': 'tests/engine/test_exact_resume.py::test_stopped_after_step_17_and_resumed',
    '`nn.DataParallel': 'tests/engine/test_data_parallel.py::',
    'ZeRO': 'tests/engine/test_zero.py::test_a_checkpoint_goes_over_to_ddp_and_back',
    'FSDP': 'tests/engine/test_fsdp_run.py::test_a_run_goes_over',
    'early stopping': f'{TRAINING}::test_what_options_do',
    'channels_last': f'{TRAINING}::test_an_option_trains_and_is_resumed',
    'torch.compile': f'{TRAINING}::test_the_network_is_compiled_in_place',
    'activation checkpointing': 'tests/engine/test_activation_checkpointing.py::',
    'class weights': f'{TRAINING}::test_an_option_trains_and_is_resumed',
}


@pytest.mark.parametrize(('row', 'span'), SPANS, ids=lambda text: text[:40])
def test_what_a_row_says_is_understood(row: str, span: str, tmp_path: Path) -> None:
    if span.startswith('--'):
        args = parser_for_train().parse_args([str(CONFIG), *shlex.split(span)])
        load_config(CONFIG, args.cfg_options)
    elif re.match(r'\w+ ?= ?[\[{dT]', span) and 'part' not in span:
        config = tmp_path / 'row.py'
        config.write_text(f'_base_ = [{str(CONFIG)!r}]\n{span}\n')
        load_config(config)
    else:
        kinds = [getattr(registry, name) for name in dir(registry) if name.isupper() and name != 'HOOK_FILES']
        for name in re.findall(r"type='(\w+)'", span):
            assert any(hasattr(kind, 'get') and kind.get(name) for kind in kinds), name


def test_every_row_has_its_test() -> None:
    assert len(ROWS) >= 40
    for row in ROWS:
        places = [place for words, place in EVIDENCE.items() if row[0].startswith(words)]
        assert places, f'{row[0]}: say where it is tested'
        file, name = places[0].split('::')
        assert f'def {name or "test_"}' in (ROOT / file).read_text(encoding='utf-8'), places[0]
