"""Batches, crops and networks that do not fit the data, found without reading a file or computing a step."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from seg.datasets.gate.sources import find_sources
from seg.datasets.gate.summary import SetSummary
from seg.engine.blank_run import Outcome, build_weightless, try_network, try_pipeline
from seg.engine.gate_advice import advise
from seg.engine.input_fit import Fit, check_fit
from seg.registry import MODELS
from tests.datasets.gate_made import texts
from tests.tiny import make_data, tiny_config

LOAD, LABELS, PACK = {'type': 'LoadImageFromFile'}, {'type': 'LoadAnnotations'}, {'type': 'PackSegInputs'}


def fit(root: Path, world_size: int = 1, size: tuple[int, int] = (24, 32), **changes: Any) -> Fit:
    """What does not fit in `tiny_config(...)` on 8 images of `size`."""
    config = tiny_config(make_data(root, size=size), root / 'run', **changes)
    found = find_sources(config)
    sets = [
        SetSummary(one.key, one.part, len(one.pairs), True, sizes=[[*size, len(one.pairs)]]) for one in found.sources
    ]
    return check_fit(config, found, sets, world_size)


def pipeline(*steps: Mapping[str, Any]) -> dict[str, Any]:
    return {'train_dataloader.dataset.pipeline': [LOAD, LABELS, *steps, PACK]}


def test_a_config_that_fits(tmp_path: Path) -> None:
    found = fit(tmp_path)
    assert found.findings == found.untried == []
    assert {(outcome.output, outcome.channels) for outcome in found.outcomes} == {((24, 32), 3)}


@pytest.mark.parametrize(
    ('batch', 'world_size', 'accumulate', 'is_empty'),
    [(8, 1, 1, False), (4, 2, 1, False), (4, 1, 3, True), (3, 3, 1, True)],
)
def test_drop_last_that_leaves_no_batch(
    tmp_path: Path, batch: int, world_size: int, accumulate: int, is_empty: bool
) -> None:
    loader = {'train_dataloader.batch_size': batch, 'train_dataloader.drop_last': True}
    found = fit(tmp_path, world_size, **loader, **{'optim_wrapper.accumulative_counts': accumulate})
    assert ('drop_last=True leaves no step: 8 images' in texts(found.findings)) == is_empty
    kept = fit(
        tmp_path,
        world_size,
        **{**loader, 'train_dataloader.drop_last': False},
        **{'optim_wrapper.accumulative_counts': accumulate},
    )
    assert texts(kept.findings) == ''
    assert (f'8 images for steps of {batch * world_size * accumulate}' in texts(kept.findings, 'warning')) == is_empty


def test_other_numbers_of_classes(tmp_path: Path) -> None:
    told = texts(fit(tmp_path, **{'model.num_classes': 5}).findings)
    assert 'train_dataloader.dataset: 2 classes in metainfo.classes (background, box), but model.num_classes=5' in told
    one_channel = {'model.num_classes': 1, 'model.losses': [{'type': 'BinaryCrossEntropyLoss'}]}
    assert fit(tmp_path, **one_channel).findings == []


def test_a_crop_larger_than_the_images(tmp_path: Path) -> None:
    told = texts(fit(tmp_path, **pipeline({'type': 'RandomCrop', 'crop_size': (64, 32)})).findings, 'warning')
    assert 'crop_size 64x32 is larger than the image it is cut from, 24x32 (height x width)' in told
    assert texts(fit(tmp_path, **pipeline({'type': 'RandomCrop', 'crop_size': (24, 32)})).findings, 'warning') == ''
    grown = pipeline({'type': 'Resize', 'scale': (64, 64)}, {'type': 'RandomCrop', 'crop_size': (64, 32)})
    assert fit(tmp_path, **grown).findings == []


def test_a_pipeline_in_the_wrong_order_is_refused(tmp_path: Path) -> None:
    steps = [LOAD, {'type': 'Resize', 'scale': (16, 16)}, LABELS, {'type': 'RandomCrop', 'crop_size': 8}, PACK]
    told = texts(fit(tmp_path, **{'train_dataloader.dataset.pipeline': steps}).findings)
    assert 'train_dataloader.dataset.pipeline: ' in told
    assert 'Load the annotations before the first transform that resizes' in told


def test_a_transform_that_needs_a_real_image_leaves_a_remark(tmp_path: Path) -> None:
    config = tiny_config(make_data(tmp_path), tmp_path / 'run')
    found = find_sources(config)
    found.sources[0].transforms = [lambda results: results['nothing']]
    sets = [SetSummary(one.key, one.part, 1, True, sizes=[[24, 32, 1]]) for one in found.sources]
    (remark,) = check_fit(config, found, sets, 1).untried
    assert "train_dataloader.dataset.pipeline could not be tried on a blank image: KeyError: 'nothing'" in remark


@pytest.mark.parametrize(
    ('depth', 'batch', 'world_size', 'sync_bn', 'refused'),
    [
        (4, 1, 1, False, True),  # 16 x 16 halved four times: one value a channel
        (4, 2, 1, False, False),
        (3, 1, 1, False, False),
        (4, 1, 2, False, True),
        (4, 1, 2, True, False),
    ],
)
def test_a_depth_that_leaves_one_value(
    tmp_path: Path, depth: int, batch: int, world_size: int, sync_bn: bool, refused: bool
) -> None:
    changes = {'model.network.depth': depth, 'train_dataloader.batch_size': batch, 'sync_bn': sync_bn}
    found = fit(tmp_path, world_size, size=(16, 16), **changes)
    assert ('model.network: cannot train on a batch of 1 of 16x16' in texts(found.findings)) == refused
    lonely = batch * (world_size if sync_bn else 1) == 1 and not refused
    assert ('batch_size=1: BatchNorm takes its statistics' in texts(found.findings, 'warning')) == lonely


def test_other_norms_need_no_batch(tmp_path: Path) -> None:
    changes = {'model.network.norm_cfg': {'type': 'GN', 'num_groups': 2}, 'train_dataloader.batch_size': 1}
    assert fit(tmp_path, size=(16, 16), **changes, **{'model.network.depth': 4}).findings == []


def test_a_batch_is_padded_as_the_preprocessor_does(tmp_path: Path) -> None:
    changes = {'model.network.depth': 4, 'train_dataloader.batch_size': 1, 'model.data_preprocessor.size_divisor': 32}
    assert texts(fit(tmp_path, size=(16, 16), **changes).findings) == ''
    changes = {'model.network.depth': 4, 'train_dataloader.batch_size': 1, 'model.data_preprocessor.size': (32, 16)}
    assert texts(fit(tmp_path, size=(16, 16), **changes).findings) == ''


class Halves(nn.Module):
    """Needs even sides; `looks` at its values."""

    def __init__(self, num_classes: int, looks: bool = False) -> None:
        super().__init__()
        self.conv, self.looks = nn.Conv2d(3, num_classes, 1), looks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.looks and x.sum().item() > 0:
            return x
        return self.conv(x) + nn.functional.interpolate(self.conv(x)[..., ::2, ::2], scale_factor=2)


@pytest.fixture
def own_network() -> Any:
    MODELS.register_module(name='HalvesForTest')(Halves)
    yield
    MODELS.module_dict.pop('HalvesForTest')


@pytest.mark.usefixtures('own_network')
def test_any_network_is_tried_by_its_shapes() -> None:
    network = build_weightless({'type': 'Segmentor', 'num_classes': 2, 'network': {'type': 'HalvesForTest'}})
    assert network is not None
    assert next(network.parameters()).is_meta
    assert try_network(network, (1, 3, 8, 8)) == ''
    assert 'broadcast' in try_network(network, (1, 3, 9, 8))
    looking = {'type': 'Segmentor', 'num_classes': 2, 'network': {'type': 'HalvesForTest', 'looks': True}}
    network = build_weightless(looking)
    assert network is not None
    with pytest.raises(NotImplementedError):
        try_network(network, (1, 3, 8, 8))
    assert build_weightless({'type': 'Segmentor', 'network': {'type': 'NoSuchNetwork'}}) is None


def test_draws_of_a_pipeline_differ_and_are_repeated_alike(tmp_path: Path) -> None:
    steps = pipeline({'type': 'RandomResize', 'scale': (64, 48), 'ratio_range': (0.5, 2.0)})
    source = find_sources(tiny_config(make_data(tmp_path), tmp_path / 'run', **steps)).sources[0]
    outcomes = try_pipeline(source, (24, 32), 6)
    assert len({outcome.output for outcome in outcomes}) > 1
    assert outcomes == try_pipeline(source, (24, 32), 6)
    assert {outcome.size for outcome in outcomes} == {(24, 32)}


# ---- proposals ----


def training(pixels: list[int]) -> SetSummary:
    names = [f'c{n}' for n in range(len(pixels))]
    return SetSummary('train_dataloader.dataset', 'train', 4, True, 4, classes=names, class_pixels=pixels)


def losses(**options: Any) -> dict[str, Any]:
    return {'model': {'losses': [{'type': 'DiceLoss'}, {'type': 'CrossEntropyLoss', **options}]}}


def test_class_weights_are_proposed_for_uneven_classes() -> None:
    # balanced: 1000 / (2 * 980) = 0.510, 1000 / (2 * 20) = 25
    (proposal,) = advise(losses(), [training([980, 20])], [])
    assert "'c1' has 2 % of the labelled pixels, 'c0' 98 %" in proposal
    assert "model.losses.1.class_weight=[0.51, 25.0], or 'auto'" in proposal
    assert advise(losses(), [training([600, 400])], []) == []
    assert advise(losses(class_weight=[1, 2]), [training([980, 20])], []) == []
    assert advise({'model': {'losses': [{'type': 'DiceLoss'}]}}, [training([980, 20])], []) == []
    assert advise(losses(), [training([1000, 0])], []) == []


def test_a_crop_is_proposed_for_large_inputs_and_for_mixed_sizes() -> None:
    def proposals(*sizes: tuple[int, int], batch: int = 4) -> list[str]:
        outcomes = [Outcome(size, 3, size) for size in sizes]
        return advise({'train_dataloader': {'batch_size': batch}}, [training([1, 1])], outcomes)

    assert proposals((640, 960)) == []
    (large,) = proposals((1280, 1918))
    assert 'crop_size=(512, 512)' in large
    (mixed,) = proposals((300, 500), (400, 230))
    assert 'inputs differ in size' in mixed
    assert 'crop_size=(288, 224)' in mixed
    assert proposals((300, 500), (400, 230), batch=1) == []
    assert proposals((300, 500), (90, 90)) == []
    cropped = Outcome((2000, 2000), 3, (2000, 2000), [((2000, 2000), (2000, 2000))])
    assert advise({}, [training([1, 1])], [cropped]) == []
