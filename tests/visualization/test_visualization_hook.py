"""The hook as a run calls it, on made images whose scores are known."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from seg.engine.hooks import visualization_hook
from seg.engine.hooks.visualization_hook import SegVisualizationHook
from seg.evaluation.metric import SegMetric
from seg.registry import HOOKS
from tests.ranks import run_ranks

METAINFO = dict(classes=('background', 'car'), palette=[[0, 0, 0], [200, 100, 0]])


class _Loader(list):
    dataset = SimpleNamespace(metainfo=METAINFO)


class _Logger:
    """A visualizer that keeps what it is shown."""

    def __init__(self):
        self.images = []

    def add_image(self, name, image, step):
        self.images.append((name, image, step))


def _runner(folder, batches, worst=4, best=4):
    metric = SegMetric(worst=worst, best=best)
    metric.dataset_meta = METAINFO
    return SimpleNamespace(
        log_dir=str(folder),
        iter=12,
        visualizer=_Logger(),
        logger=logging.getLogger('test'),
        train_dataloader=_Loader(),
        val_dataloader=_Loader(batches),
        val_loop=SimpleNamespace(evaluator=SimpleNamespace(metrics=[metric])),
    )


def _item(number, correct, size=(20, 20)):
    """(sample, output) of an image whose truth is 10 car pixels, of which `correct` are found: Dice 2c / (c + 10)."""
    label = torch.zeros(size, dtype=torch.uint8)
    label[0, :10] = 1
    pred = torch.zeros(size, dtype=torch.uint8)
    pred[0, :correct] = 1
    image = torch.full((3, 10, 10), number, dtype=torch.uint8)
    return dict(inputs=image, metas=dict(img_path=f'/data/{number}.jpg')), dict(pred=pred, label=label)


def _validate(runner, hook, batches):
    metric = runner.val_loop.evaluator.metrics[0]
    hook.before_val_epoch(runner)
    for idx, items in enumerate(batches):
        samples, outputs = zip(*items)
        batch = dict(inputs=[s['inputs'] for s in samples], metas=[s['metas'] for s in samples])
        metric.process(batch, outputs)
        hook.after_val_iter(runner, idx, batch, list(outputs))
    hook.after_val_epoch(runner, metric.evaluate(0))


def test_the_first_batch_is_drawn_once(tmp_path):
    runner, hook = _runner(tmp_path, []), SegVisualizationHook()
    inputs, labels = torch.full((5, 3, 30, 40), 100, dtype=torch.uint8), torch.ones(5, 30, 40, dtype=torch.uint8)
    hook.before_train_iter(runner, 0, dict(inputs=inputs, labels=labels))
    with Image.open(tmp_path / 'vis' / 'first_batch.png') as image:
        sheet = np.asarray(image)
    assert sheet.shape == (2 * 34 - 4, 3 * 44 - 4, 3)  # 5 images in 3 columns
    assert sheet[15, 20].tolist() == [150, 100, 50] and sheet[50, 110].tolist() == [255, 255, 255]
    (tmp_path / 'vis' / 'first_batch.png').unlink()
    hook.before_train_iter(runner, 1, dict(inputs=inputs, labels=labels))
    assert not (tmp_path / 'vis' / 'first_batch.png').exists()


def test_unequal_images_and_missing_labels_are_drawn_too(tmp_path):
    runner = _runner(tmp_path, [])
    SegVisualizationHook().before_train_iter(
        runner, 0, dict(inputs=[torch.zeros(1, 900, 30).byte(), torch.zeros(5, 9, 9).byte()])
    )
    with Image.open(tmp_path / 'vis' / 'first_batch.png') as image:
        assert image.size == (2 * (13 + 4) - 4, 384)  # 30 x 900 shrinks to 13 x 384


def test_the_worst_and_best_of_the_last_validation_are_drawn_after_training(tmp_path):
    batches = [[_item(1, 5), _item(2, 10)], [_item(3, 0), _item(4, 9)], [_item(5, 7)]]
    runner, hook = _runner(tmp_path, batches, worst=2), SegVisualizationHook(worst=2, best=1)
    _validate(runner, hook, [[_item(number, 10) for number in range(1, 6)]])
    _validate(runner, hook, batches)
    hook.after_train(runner)
    names = sorted(path.name for path in (tmp_path / 'vis').iterdir())
    assert names == ['best_1_2.png', 'worst_1_3.png', 'worst_2_1.png']
    with Image.open(tmp_path / 'vis' / 'worst_1_3.png') as image:
        picture = np.asarray(image)
    # Three panels as wide as the mask, under a line for the scores and one for the panels' names.
    assert picture.shape == (20 + 2 * 18, 3 * 20 + 2 * 4, 3)
    assert picture[36 + 15, 10].tolist() == [3, 3, 3]  # the photo, grown to the mask's size


def test_scores_are_read_for_many_images_at_once(tmp_path, monkeypatch):
    reads = []
    monkeypatch.setattr(visualization_hook, '_FLUSH_AT', 4)
    real = SegVisualizationHook._flush
    monkeypatch.setattr(SegVisualizationHook, '_flush', lambda hook: (reads.append(len(hook._pending)), real(hook)))
    batches = [[_item(2 * i, 1), _item(2 * i + 1, 9)] for i in range(5)]
    _validate(_runner(tmp_path, batches), SegVisualizationHook(samples=0), batches)
    assert reads == [4, 4, 2]


def test_pictures_do_not_hold_on_to_batches():
    batch = torch.zeros(64, 3, 10, 10, dtype=torch.uint8)
    label = torch.zeros(20, 20, dtype=torch.uint8)
    image, truth, pred = visualization_hook._small(dict(inputs=batch), [dict(pred=label, label=label)], 0)
    assert image.untyped_storage().nbytes() == 300
    assert truth.data_ptr() != label.data_ptr() and pred.data_ptr() != label.data_ptr()
    large = torch.zeros(1920, 1280, dtype=torch.uint8)
    image, truth, _ = visualization_hook._small(
        dict(inputs=[batch[0].repeat(1, 100, 50)]), [dict(pred=large, label=large)], 0
    )
    assert image.shape == (3, 384, 192) and truth.shape == (384, 256)


def test_the_same_images_are_shown_at_each_validation(tmp_path):
    batches = [[_item(10 * i, 5), _item(10 * i + 1, 5)] for i in range(9)]
    runner, hook = _runner(tmp_path, batches), SegVisualizationHook(samples=3, worst=0, best=0, interval=2)
    for _ in range(3):
        _validate(runner, hook, batches)
    # The first image of batches 0, 3, 6; at the first and the third validation.
    assert [name for name, _, _ in runner.visualizer.images] == ['val/1_0', 'val/2_30', 'val/3_60'] * 2
    assert all(step == 12 and image.shape == (38, 68, 3) for _, image, step in runner.visualizer.images)


def test_few_batches_give_several_images_each_and_unlabelled_ones_have_no_truth(tmp_path):
    items = [_item(i, 5) for i in range(3)]
    items[1][1].pop('label')
    runner, hook = _runner(tmp_path, [items]), SegVisualizationHook(samples=4)
    _validate(runner, hook, [items])
    assert [image.shape[1] for _, image, _ in runner.visualizer.images] == [68, 44, 68]
    hook.after_train(runner)
    assert not list((tmp_path / 'vis').glob('*_1.png'))  # image 1 has no score


def test_another_metric_has_no_worst_images(tmp_path):
    runner, hook = _runner(tmp_path, [[]]), SegVisualizationHook()
    runner.val_loop.evaluator.metrics = []
    hook.before_val_epoch(runner)
    sample, output = _item(1, 5)
    hook.after_val_iter(runner, 0, dict(inputs=[sample['inputs']], metas=[sample['metas']]), [output])
    hook.after_val_epoch(runner)
    hook.after_train(runner)
    assert not (tmp_path / 'vis').exists()


def test_a_full_disk_does_not_stop_the_run_here(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(
        visualization_hook, 'save_png', lambda path, picture: (_ for _ in ()).throw(OSError('disk full'))
    )
    SegVisualizationHook().before_train_iter(_runner(tmp_path, []), 0, dict(inputs=torch.zeros(1, 3, 8, 8).byte()))
    assert 'first_batch.png was not written: disk full' in caplog.text


def _extremes_of_a_rank(folder, items):
    import torch.distributed as dist

    rank, world = dist.get_rank(), dist.get_world_size()
    batches = [[item] for item in items[rank::world]]
    runner, hook = (
        _runner(f'{folder}/{rank}', batches, worst=2, best=1),
        SegVisualizationHook(worst=2, best=1, samples=1),
    )
    _validate(runner, hook, batches)
    hook.after_train(runner)
    return len(runner.visualizer.images)


@pytest.mark.parametrize('world', [2, 3])
def test_rank_0_draws_what_other_ranks_saw(world, tmp_path):
    # With 3 ranks the last one has no image at all.
    items = [_item(1, 9), _item(2, 0)] if world == 3 else [_item(1, 9), _item(2, 0), _item(3, 10), _item(4, 1)]
    assert run_ranks(world, _extremes_of_a_rank, str(tmp_path), items) == [1] + [0] * (world - 1)
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob('*.png'))
    if world == 3:
        assert names == ['0/vis/best_1_1.png', '0/vis/worst_1_2.png', '0/vis/worst_2_1.png']
    else:
        assert names == ['0/vis/best_1_3.png', '0/vis/worst_1_2.png', '0/vis/worst_2_4.png']


def test_the_hook_is_found_by_its_name():
    assert HOOKS.get('SegVisualizationHook') is SegVisualizationHook
