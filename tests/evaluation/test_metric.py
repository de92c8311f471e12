import json

import pytest
import torch
from mmengine.evaluator import Evaluator

from seg.errors import UserError
from seg.evaluation.confusion import SCORES
from seg.evaluation.metric import SegMetric
from tests.ranks import run_ranks

CAR = ('background', 'car')


def _sample(hits, predicted, truth, size=16):
    label, pred = torch.zeros(1, size, dtype=torch.uint8), torch.zeros(1, size, dtype=torch.uint8)
    label[0, :truth] = 1
    pred[0, :hits] = 1
    pred[0, truth : truth + predicted - hits] = 1
    return dict(pred=pred, label=label)


def _run(samples, batch_size=1, classes=CAR, **options):
    """The metric after it was evaluated over `samples` in batches."""
    metric = SegMetric(**options)
    metric.dataset_meta = dict(classes=classes)
    for start in range(0, len(samples), batch_size):
        batch = samples[start : start + batch_size]
        metas = [dict(img_path=sample.get('path', f'{start + i}.jpg')) for i, sample in enumerate(batch)]
        metric.process(dict(metas=metas), batch)
    return metric, metric.evaluate(len(samples))


# ---- three images whose mean of batch scores moves with the batch size: 0.9, 0.4, 0.667 ----

UNEVEN = [_sample(8, 8, 8), _sample(0, 2, 2), _sample(0, 0, 0)]


@pytest.mark.parametrize('batch_size', [1, 2, 3])
def test_the_score_does_not_move_with_the_batch_size(batch_size):
    metric, scores = _run(UNEVEN, batch_size)
    # Over the data set: 2 * (8+0+0) / ((8+2+0) + (8+2+0)) = 16 / 20.
    assert metric.report['per_class']['car']['Dice'] == 0.8
    # Over the images: 1 and 0; the third has neither a car nor one predicted.
    assert scores['imDice'] == 0.5 and scores['imIoU'] == 0.5


# ---- five images of 100 foreground pixels, image 0 wholly wrong ----


def _five():
    return [_sample(0 if i == 0 else 100, 100, 100, size=200) for i in range(5)]


def _share(samples, batch_size, classes):
    """This rank's scores over all: it sees every world-th image, which makes for unequal counts."""
    import torch.distributed as dist

    rank, world = dist.get_rank(), dist.get_world_size()
    metric, scores = _run(samples[rank::world], batch_size, classes)
    return scores, metric.matrix, metric.report, metric.worst_images, metric.best_images


@pytest.mark.parametrize('world', [1, 2, 3])
def test_the_score_does_not_move_with_the_number_of_ranks(world):
    for scores, _, report, *_ in run_ranks(world, _share, _five(), 2, CAR):
        # 2 * 400 / (500 + 500); a duplicate of image 0 would give 2 * 400 / (600 + 600).
        assert report['per_class']['car']['Dice'] == 0.8
        assert scores['imDice'] == pytest.approx(4 / 5, abs=1e-12)


def test_one_image_on_two_ranks_is_its_value_on_one():
    alone = _run([_sample(3, 5, 4)])[1]
    assert [scores for scores, *_ in run_ranks(2, _share, [_sample(3, 5, 4)], 1, CAR)] == [alone, alone]


def _mixed(count, seed):
    """Images of unequal sizes over 5 classes, with ignored pixels."""
    generator = torch.Generator().manual_seed(seed)
    samples = []
    for i in range(count):
        shape = (7 + 3 * i, 11 + i)
        label = torch.randint(0, 5, shape, generator=generator, dtype=torch.uint8)
        label[torch.rand(shape, generator=generator) < 0.2] = 255
        pred = torch.randint(0, 5, shape, generator=generator, dtype=torch.uint8)
        samples.append(dict(pred=pred, label=label, path=f'{i}.jpg'))
    return samples


@pytest.mark.parametrize('count', [5, 7])
def test_every_cut_gives_the_same_bits(count):
    classes = tuple('abcde')
    samples = _mixed(count, seed=count)
    metric, scores = _run(samples, 1, classes)
    expected = (scores, metric.matrix, metric.report, metric.worst_images, metric.best_images)
    for batch_size in (2, 3):
        for world in (2, 3):
            for answer in run_ranks(world, _share, samples[::-1], batch_size, classes):
                assert answer == expected


# ---- what is counted ----


def test_ignored_pixels_are_not_counted():
    sample = _sample(4, 6, 5)
    metric, _ = _run([sample])
    ignored = dict(pred=torch.ones(1, 9, dtype=torch.uint8), label=torch.full((1, 9), 255, dtype=torch.uint8))
    more, _ = _run([{key: torch.cat([sample[key], ignored[key]], dim=1) for key in sample}])
    assert more.matrix == metric.matrix == [[16 - 5 - 2, 2], [1, 4]]


def test_one_class_is_scored_as_two():
    metric, scores = _run([_sample(3, 5, 4)], classes=('car',), num_classes=1)
    assert metric.matrix == [[16 - 4 - 2, 2], [1, 3]]
    assert list(metric.report['per_class']) == ['background', 'car']
    assert scores['imDice'] == pytest.approx(6 / 9, abs=1e-12)


def test_an_image_without_a_mask_is_counted_but_not_scored():
    metric, scores = _run([dict(pred=_sample(1, 1, 1)['pred']), _sample(3, 5, 4)], batch_size=2)
    assert (metric.images, metric.unlabelled) == (1, 1)
    assert scores == _run([_sample(3, 5, 4)])[1]
    assert metric.worst_images == [(pytest.approx(6 / 9, abs=1e-12), '1.jpg')]


def test_all_pixels_ignored_has_no_scores():
    _, scores = _run([dict(pred=torch.ones(2, 2).byte(), label=torch.full((2, 2), 255).byte())])
    assert scores == dict.fromkeys(SCORES)


def test_a_class_nobody_has_is_null_in_the_report_and_not_among_the_scalars():
    metric, scores = _run([_sample(3, 5, 4)], classes=('background', 'car', 'bus'))
    assert metric.report['per_class']['bus'] == dict(IoU=None, Dice=None, Acc=None, Precision=None)
    assert {key for key in scores if '.' in key} == {'IoU.background', 'IoU.car', 'Dice.background', 'Dice.car'}


# ---- what comes out ----


def test_the_report_is_what_metrics_json_holds():
    metric, _ = _run(UNEVEN)
    names = ['aAcc', 'mIoU', 'mDice', 'mAcc', 'imDice', 'imIoU', 'per_class']
    assert list(json.loads(json.dumps(metric.report))) == names
    assert list(metric.report['per_class']['car']) == ['IoU', 'Dice', 'Acc', 'Precision']
    assert 'car' in metric.table() and 'mDice' in metric.table()


def test_the_worst_and_the_best_images_are_named_in_order():
    samples = [
        dict(_sample(hits, 4, 4), path=path) for hits, path in [(4, 'd'), (0, 'c'), (2, 'b'), (4, 'a'), (1, 'e')]
    ]
    metric, _ = _run([*samples, dict(_sample(0, 0, 0), path='empty')], batch_size=4, worst=3, best=2)
    assert metric.worst_images == [(0.0, 'c'), (0.25, 'e'), (0.5, 'b')]
    assert metric.best_images == [(1.0, 'a'), (1.0, 'd')]


def test_the_last_batch_has_its_scores_on_the_device():
    metric = SegMetric(num_classes=2)
    metric.process({}, [_sample(2, 2, 2), dict(pred=torch.zeros(1, 1).byte()), _sample(1, 2, 2)])
    assert metric.last_scores.tolist() == [2**40, 2**39]
    metric.process({}, [dict(pred=torch.zeros(1, 1).byte())])
    assert metric.last_scores is None


def test_an_evaluation_does_not_see_the_one_before():
    evaluator = Evaluator(SegMetric(prefix='big'))
    evaluator.dataset_meta = dict(classes=CAR)
    for _ in range(2):
        evaluator.process(data_samples=UNEVEN, data_batch=None)
        assert evaluator.evaluate(3)['big/imDice'] == 0.5
        assert evaluator.metrics[0].images == 3


def test_inference_tensors_are_counted_outside_inference_mode():
    with torch.inference_mode():
        sample = {key: value.clone() for key, value in _sample(3, 5, 4).items()}
    assert _run([sample, sample])[1]['imDice'] == pytest.approx(6 / 9, abs=1e-12)


def test_the_device_is_not_waited_for_while_images_come_in():
    # A tensor on 'meta' has no values: whatever would read one raises, as it would wait for a GPU.
    metric = SegMetric(num_classes=3)
    sample = {key: torch.zeros(5, 7, dtype=torch.uint8, device='meta') for key in ('pred', 'label')}
    for _ in range(2):
        metric.process(dict(metas=[{}, {}]), [sample, sample])
    assert metric.last_scores.device.type == 'meta'


# ---- what is refused ----


@pytest.mark.parametrize(
    ('samples', 'options', 'words'),
    [
        ([dict(pred=torch.zeros(1, 1).byte())], {}, 'none of 1 images has a mask'),
        ([], {}, 'none of 0 images has a mask'),
        ([dict(_sample(1, 1, 1), pred=torch.full((1, 16), 2).byte())], {}, '16 pixels .* 2 classes 0 to 1'),
        (UNEVEN, dict(num_classes=3), 'num_classes=3'),
        (UNEVEN, dict(classes=('car', 'car')), 'distinct'),
        (UNEVEN, dict(classes=()), 'distinct'),
        (UNEVEN, dict(class_scalars=['Recall']), 'Recall'),
    ],
)
def test_what_the_user_must_change_is_said(samples, options, words):
    with pytest.raises(UserError, match=words):
        _run(samples, **options)


def test_a_prediction_of_another_size_is_an_error():
    with pytest.raises(ValueError, match=r'of \(1, 3\) pixels for a mask of \(1, 16\)'):
        _run([dict(_sample(1, 1, 1), pred=torch.zeros(1, 3).byte())])
