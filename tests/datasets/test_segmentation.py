"""SegmentationDataset: folders described by data in the config."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mmengine.config import Config

from seg.datasets.carvana import CarvanaDataset
from seg.datasets.palette import default_palette
from seg.datasets.segmentation import SegmentationDataset
from seg.errors import UserError
from seg.registry import DATASETS
from tests.datasets.made import disc, make_carvana, make_pairs, write_image

LOAD = [{'type': 'LoadImageFromFile'}, {'type': 'LoadAnnotations'}]
FOLDERS = {'img_path': 'images', 'seg_map_path': 'masks'}
CLASSES = {'classes': ('background', 'disc')}


def data_set(root: Path, **options: Any) -> SegmentationDataset:
    settings = {'data_prefix': FOLDERS, 'metainfo': CLASSES, 'pipeline': LOAD} | options
    return SegmentationDataset(data_root=str(root), **settings)


def test_a_sample_has_what_the_pipeline_needs(tmp_path: Path) -> None:
    sample = data_set(make_pairs(tmp_path, ['b', 'a']))[1]
    assert sample['img_path'] == str(tmp_path / 'images/b.jpg')
    assert sample['seg_map_path'] == str(tmp_path / 'masks/b.png')
    assert sample['sample_idx'] == 1
    assert sample['num_classes'] == 2
    assert sample['img'].shape == (12, 16, 3)
    assert np.array_equal(sample['gt_seg_map'], disc())


def test_meaning_of_mask_values_reaches_the_reader(tmp_path: Path) -> None:
    make_pairs(tmp_path, ['a'])
    write_image(tmp_path / 'masks/a.png', disc() * 255)
    with pytest.raises(UserError, match=r'a\.png: 2 mask values'):
        data_set(tmp_path)[0]
    mapped = data_set(tmp_path, label_map={0: 0, 255: 1})
    assert np.array_equal(mapped[0]['gt_seg_map'], disc())
    assert mapped.metainfo['label_map'] == {0: 0, 255: 1}
    assert data_set(tmp_path, mask_threshold=100)[0]['gt_seg_map'].max() == 1
    void = data_set(tmp_path, metainfo={'classes': ('a', 'b', 'c')}, ignore_index=255)
    assert set(np.unique(void[0]['gt_seg_map'])) == {0, 255}


def test_it_is_built_from_a_config_file(tmp_path: Path) -> None:
    make_pairs(tmp_path / 'data', ['a', 'b'])
    (tmp_path / 'config.py').write_text(
        f"""data = dict(
    type='SegmentationDataset', data_root={str(tmp_path / 'data')!r},
    data_prefix=dict(img_path='images', seg_map_path='masks'), label_map={{0: 0, 1: 255, (2): 1}},
    metainfo=dict(classes=('a', 'b'), palette=[[0, 0, 0], [255, 0, 0]]),
    pipeline=[dict(type='LoadImageFromFile', channels=1), dict(type='LoadAnnotations')])
"""
    )
    config = Config.fromfile(tmp_path / 'config.py')
    (tmp_path / 'again.py').write_text(config.pretty_text)
    for file in ('config.py', 'again.py'):
        built = DATASETS.build(Config.fromfile(tmp_path / file).data)
        sample = built[0]
        assert sample['img'].shape == (12, 16, 1)
        assert np.array_equal(sample['gt_seg_map'], disc() * 255)
        assert type(built.metainfo['label_map']) is dict


def test_a_map_of_colours_survives_the_config(tmp_path: Path) -> None:
    make_pairs(tmp_path, ['a'])
    write_image(tmp_path / 'masks/a.png', np.stack([disc() * 200, disc() * 0, disc() * 0], axis=-1))
    (tmp_path / 'config.py').write_text('label_map = {(0, 0, 0): 0, (200, 0, 0): 1}')
    label_map = Config.fromfile(tmp_path / 'config.py').label_map
    assert np.array_equal(data_set(tmp_path, label_map=label_map)[0]['gt_seg_map'], disc())


def test_images_without_masks_are_for_testing(tmp_path: Path) -> None:
    make_pairs(tmp_path, ['a'], masks=False)
    bare = {'img_path': 'images', 'seg_map_path': None}
    sample = data_set(tmp_path, data_prefix=bare, test_mode=True)[0]
    assert sample['seg_map_path'] is None
    assert 'gt_seg_map' not in sample
    assert data_set(tmp_path, data_prefix={'img_path': 'images'}, test_mode=True)[0]['seg_map_path'] is None
    with pytest.raises(UserError, match='training needs masks'):
        data_set(tmp_path, data_prefix=bare)


def test_mmengines_options_keep_their_meaning(tmp_path: Path) -> None:
    make_pairs(tmp_path, [f'{number}' for number in range(6)])
    assert [info['name'] for info in map(data_set(tmp_path, indices=2).get_data_info, range(2))] == ['0', '1']
    assert data_set(tmp_path, indices=[4, 1]).split_record()['names'] == ['1', '4']
    assert len(data_set(tmp_path, indices=-2)) == 2
    assert len(data_set(tmp_path).get_subset([0, 3])) == 2
    plain = data_set(tmp_path, serialize_data=False)
    assert plain.get_data_info(3)['name'] == '3'
    lazy = data_set(tmp_path, lazy_init=True)
    assert lazy.metainfo['classes'] == ('background', 'disc')
    assert len(lazy.data_list) == 0
    assert lazy[-1]['sample_idx'] == 5
    assert len(pickle.loads(pickle.dumps(data_set(tmp_path)))) == 6


def test_no_sample_is_replaced_by_another(tmp_path: Path) -> None:
    make_pairs(tmp_path, ['a', 'b'])
    with pytest.raises(UserError, match=r'a\.jpg: a transform of the pipeline returned None'):
        data_set(tmp_path, pipeline=[*LOAD, lambda results: None])[0]
    (tmp_path / 'images/a.jpg').write_bytes(b'')
    with pytest.raises(UserError, match=r'a\.jpg: the file is empty'):
        data_set(tmp_path)[0]


def test_a_list_and_a_percentage_can_be_used_together(tmp_path: Path) -> None:
    make_pairs(tmp_path, [f'{number}' for number in range(12)])
    (tmp_path / 'list.txt').write_text('\n'.join(str(number) for number in range(10)))
    parts = {
        part: data_set(tmp_path, ann_file='list.txt', split={'part': part, 'val_percent': 30}).split_record()
        for part in ('train', 'val')
    }
    assert parts['train']['images'], parts['val']['images'] == (7, 3)
    assert sorted(parts['train']['names'] + parts['val']['names']) == sorted(str(number) for number in range(10))
    assert json.loads(json.dumps(parts)) == parts
    assert parts['val']['split'] == {'part': 'val', 'val_percent': 30, 'seed': 0, 'group': None}


def test_a_missing_folder_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"images: no such folder \(data_root='.*', data_prefix\.img_path; working"):
        data_set(tmp_path)


@pytest.mark.parametrize(
    ('options', 'what'),
    [
        ({'metainfo': None}, 'classes=None'),
        ({'metainfo': {'classes': 'car'}}, "classes='car'"),
        ({'metainfo': {'classes': ('a', 'a')}}, 'names a class twice'),
        ({'metainfo': {'classes': [f'{n}' for n in range(256)]}}, '256 classes'),
        ({'metainfo': {'classes': ('a', 'b'), 'palette': [[0, 0, 0]]}}, '2 colours'),
        ({'metainfo': {'classes': ('a', 'b'), 'palette': [[0, 0, 0], [0, 0, 300]]}}, '2 colours'),
        ({'data_prefix': {'img_dir': 'images', 'ann_dir': 'masks'}}, 'its keys are img_path and seg_map_path'),
        ({'split': {'val_percent': 10}}, 'part is needed'),
        ({'split': {'part': 'val', 'percent': 10}}, 'its keys are'),
        ({'indices': 0}, 'leaves no image'),
        ({'indices': []}, 'leaves no image'),
        ({'label_map': {0: 0, 255: 2}}, 'given class 2'),
        ({'reduce_zero_label': True}, 'reduce_zero_label=True ignores'),
    ],
)
def test_a_config_that_cannot_be_meant_is_refused(tmp_path: Path, options: dict, what: str) -> None:
    make_pairs(tmp_path, ['a'])
    with pytest.raises(UserError, match=what):
        data_set(tmp_path, **options)


def test_carvana_needs_its_root_alone(tmp_path: Path) -> None:
    cars = CarvanaDataset(data_root=str(make_carvana(tmp_path, cars=3, views=4)), pipeline=LOAD)
    assert len(cars) == 12
    assert cars.metainfo['classes'] == ('background', 'car')
    assert np.array_equal(cars[0]['gt_seg_map'], disc())


def test_carvana_splits_by_car(tmp_path: Path) -> None:
    make_carvana(tmp_path, cars=4, views=3)
    train, val = (
        CarvanaDataset(data_root=str(tmp_path), split={'part': part, 'val_percent': 25}).split_record()['names']
        for part in ('train', 'val')
    )
    assert (len(train), len(val)) == (9, 3)
    assert not {name.rsplit('_', 1)[0] for name in train} & {name.rsplit('_', 1)[0] for name in val}
    by_image = CarvanaDataset(data_root=str(tmp_path), split={'part': 'val', 'val_percent': 25, 'group': None})
    assert len({name.rsplit('_', 1)[0] for name in by_image.split_record()['names']}) > 1


def test_missing_carvana_is_explained(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r'train: no such folder .*kaggle competitions download -c carvana'):
        CarvanaDataset(data_root=str(tmp_path))


def test_colours_for_classes_without_a_palette() -> None:
    # VOC: class 1 sets red's top bit, 2 green's, 4 blue's, 8 red's second
    assert default_palette(9) == [
        *([0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0], [0, 0, 128]),
        *([128, 0, 128], [0, 128, 128], [128, 128, 128], [64, 0, 0]),
    ]
    assert len({tuple(colour) for colour in default_palette(255)}) == 255
