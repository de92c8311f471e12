import pytest
import torch

from seg.evaluation.confusion import (
    FIXED_ONE,
    UNDEFINED,
    count_by_scatter,
    count_pairs,
    image_scores,
    mean_from_sum,
    scores_from_matrix,
    sum_fixed,
)


def _labels(*rows):
    return torch.tensor(rows, dtype=torch.uint8)


def _image(hits, predicted, truth, size=16):
    """(pred, label) of one row with that many foreground pixels, of which `hits` coincide."""
    label, pred = torch.zeros(1, size, dtype=torch.uint8), torch.zeros(1, size, dtype=torch.uint8)
    label[0, :truth] = 1
    pred[0, :hits] = 1
    pred[0, truth : truth + predicted - hits] = 1
    return pred, label


def test_pairs_are_counted_row_by_truth():
    label, pred = _labels([0, 1, 1, 2, 255, 255]), _labels([0, 1, 2, 0, 1, 2])
    # (0,0), (1,1), (1,2), (2,0) once each; two ignored pixels; none without a class.
    assert count_pairs(pred, label, 3).tolist() == [1, 0, 0, 0, 1, 1, 1, 0, 0, 2, 0]


def test_a_class_that_does_not_exist_is_counted_apart():
    label, pred = _labels([0, 3, 7, 255]), _labels([3, 0, 1, 200])
    # A wrong prediction, two wrong truths; what is predicted on an ignored pixel does not matter.
    assert count_pairs(pred, label, 3).tolist() == [0] * 9 + [1, 3]


def test_254_classes_fit():
    label, pred = _labels([253, 253]), _labels([253, 0])
    counts = count_pairs(pred, label, 254)
    assert counts[253 * 254 + 253] == 1 and counts[253 * 254] == 1 and counts.sum() == 2


def test_a_gpu_counts_as_the_cpu_does():
    assert count_by_scatter(torch.tensor([3, 0, 3, 1], dtype=torch.int32), 5).tolist() == [1, 1, 0, 2, 0]


def test_scores_are_those_worked_out_by_hand():
    #            predicted: sky car
    matrix = [[6, 2], [1, 3]]  # truth sky: 8, truth car: 4; predicted sky: 7, car: 5
    scores = scores_from_matrix(matrix, ['sky', 'car'])
    sky = dict(IoU=6 / (8 + 7 - 6), Dice=12 / (8 + 7), Acc=6 / 8, Precision=6 / 7)
    car = dict(IoU=3 / (4 + 5 - 3), Dice=6 / (4 + 5), Acc=3 / 4, Precision=3 / 5)
    assert scores['per_class'] == {'sky': sky, 'car': car}
    assert scores['aAcc'] == (6 + 3) / 12
    assert scores['mIoU'] == pytest.approx((6 / 9 + 3 / 6) / 2, abs=1e-15)
    assert scores['mDice'] == pytest.approx((12 / 15 + 6 / 9) / 2, abs=1e-15)
    assert scores['mAcc'] == (0.75 + 0.75) / 2


def test_a_score_without_a_denominator_is_none_and_means_skip_it():
    matrix = [[4, 0, 1], [0, 0, 0], [0, 0, 0]]  # class 1 is nowhere; class 2 is predicted once, never true
    scores = scores_from_matrix(matrix, ['a', 'b', 'c'])
    assert scores['per_class']['b'] == dict(IoU=None, Dice=None, Acc=None, Precision=None)
    assert scores['per_class']['c'] == dict(IoU=0.0, Dice=0.0, Acc=None, Precision=0.0)
    assert scores['mIoU'] == (4 / 5 + 0) / 2
    assert scores['mAcc'] == 4 / 5  # of class a alone


def test_an_empty_matrix_has_no_scores():
    scores = scores_from_matrix([[0, 0], [0, 0]], ['a', 'b'])
    assert [scores[key] for key in ('aAcc', 'mIoU', 'mDice', 'mAcc')] == [None] * 4


def _own_scores(images, num_classes):
    counts = torch.stack([count_pairs(*image, num_classes) for image in images])
    return image_scores(counts[:, :-2].unflatten(1, (num_classes, num_classes)))


def test_two_classes_score_an_image_by_its_foreground():
    dice, iou = _own_scores([_image(8, 8, 8), _image(2, 4, 2), _image(0, 2, 2), _image(0, 0, 0)], 2)
    # 2*2 / (4 + 2) and 2 / 4; the last has neither truth nor prediction.
    assert dice.tolist() == [FIXED_ONE, round(4 / 6 * FIXED_ONE), 0, UNDEFINED]
    assert iou.tolist() == [FIXED_ONE, FIXED_ONE // 2, 0, UNDEFINED]
    assert sum_fixed(iou).tolist() == [FIXED_ONE + FIXED_ONE // 2, 3]
    assert mean_from_sum(*sum_fixed(iou).tolist()) == 0.5


def test_more_classes_score_an_image_by_the_mean_over_those_it_has():
    label, pred = _labels([0, 0, 2, 2]), _labels([0, 0, 2, 0])
    # Class 0: Dice 4/5, IoU 2/3; class 2: Dice 2/3, IoU 1/2; classes 1 and 3 are not in this image.
    dice, iou = _own_scores([(pred, label)], 4)
    assert dice.item() / FIXED_ONE == pytest.approx((4 / 5 + 2 / 3) / 2, abs=1e-12)
    assert iou.item() / FIXED_ONE == pytest.approx((2 / 3 + 1 / 2) / 2, abs=1e-12)


def test_a_mean_over_no_images_is_none():
    assert mean_from_sum(0, 0) is None
