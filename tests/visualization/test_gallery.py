import random

import numpy as np

from seg.visualization.gallery import Gallery, Sample

SAMPLE = Sample(np.zeros((1, 1, 3)), np.zeros((1, 1)), np.zeros((1, 1)))


def test_the_worst_and_the_best_stay_whatever_the_order():
    scores = [(i / 40, f'{i:02}') for i in range(40)]
    for seed in range(5):
        gallery = Gallery(worst=2, best=3)
        for score, path in random.Random(seed).sample(scores, 40):
            if gallery.admits(score, path):
                gallery.add(score, path, SAMPLE)
            assert len(gallery.samples) <= 5
        assert set(gallery.samples) == {'00', '01', '37', '38', '39'}


def test_equal_scores_go_by_path():
    gallery = Gallery(worst=1, best=0)
    gallery.add(0.5, 'b', SAMPLE)
    assert gallery.admits(0.5, 'a') and not gallery.admits(0.5, 'c')


def test_only_what_is_here_is_picked():
    gallery = Gallery(worst=1, best=1)
    gallery.add(0.5, 'a', SAMPLE)
    assert gallery.pick([(0.1, 'elsewhere'), (0.5, 'a')]) == {'a': SAMPLE}
