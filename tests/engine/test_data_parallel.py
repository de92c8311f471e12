"""DataParallel without GPUs: torch scatters as ever but for the copy to a device, and the replicas are the model itself.

What is left to a machine with GPUs: the copies themselves, torch's threads and streams.
"""

import logging
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seg.engine import step
from seg.engine.optim import OptimWrapper
from seg.engine.train import build_runner
from seg.engine.wrappers.data_parallel import DataParallel
from seg.engine.wrappers.wrapping import wrap_model
from seg.errors import UserError
from seg.models.segmentor import Segmentor
from tests.ranks import run_ranks
from tests.tiny import make_data, tiny_config

LOGGER = logging.getLogger('data parallel')
PER_SAMPLE = [dict(type='CrossEntropyLoss'), dict(type='DiceLoss', weight=2.0)]
PER_BATCH = [dict(type='DiceLoss', per='batch')]


class Chunks:
    """In the place of torch's Scatter: the same parts, left where they are."""

    @staticmethod
    def apply(gpus: list[int], sizes: None, dim: int, tensor: Tensor) -> tuple[Tensor, ...]:
        return tensor.chunk(len(gpus), dim)


def in_threads(replicas: Any, inputs: Any, kwargs: Any) -> list[Any]:
    """As torch does: autocast is switched on in each thread, in the type that the thread has by default."""
    outputs: dict[int, Any] = {}
    enabled = torch.is_autocast_enabled('cpu')

    def work(i: int) -> None:
        with torch.autocast('cpu', enabled=enabled):
            outputs[i] = replicas[i](*inputs[i], **kwargs[i])

    for number in range(len(replicas)):
        thread = threading.Thread(target=work, args=(number,))
        thread.start()
        thread.join()
    return [outputs[i] for i in range(len(replicas))]


@pytest.fixture(autouse=True)
def stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('torch.nn.parallel.scatter_gather.Scatter', Chunks)
    monkeypatch.setattr(nn.DataParallel, 'replicate', lambda self, module, gpus: [module] * len(gpus))
    monkeypatch.setattr(nn.DataParallel, 'parallel_apply', lambda self, *arguments: in_threads(*arguments))


def parallel(model: nn.Module, gpus: int) -> DataParallel:
    wrapped = DataParallel(model)
    wrapped.device_ids, wrapped.src_device_obj = list(range(gpus)), torch.device('cpu')
    wrapped.output_device, wrapped.dim = 0, 0
    return wrapped


def make_model(losses: list[dict]) -> Segmentor:
    torch.manual_seed(0)
    return Segmentor(
        num_classes=3,
        data_preprocessor=dict(type='SegPreprocessor', mean=[127.0] * 3, std=[60.0] * 3),
        network=dict(type='UNet', base_channels=4, depth=2, norm_cfg=dict(type='GN', num_groups=2)),
        losses=losses,
    ).double()


def make_batch(size: int) -> dict:
    rng = torch.Generator().manual_seed(size)
    images = torch.randint(0, 256, (size, 3, 16, 16), generator=rng, dtype=torch.uint8)
    labels = torch.randint(0, 3, (size, 16, 16), generator=rng, dtype=torch.uint8)
    for index in range(size):
        labels[index, : 3 * index] = 255  # unevenly, so that a mean of the parts' means is another number
    return dict(inputs=images, labels=labels, metas=[{}] * size)


def gradients(model: Segmentor, wrapped: nn.Module, batch: dict, accumulate: int = 1) -> tuple[dict, list[Tensor]]:
    wrapper = OptimWrapper(torch.optim.SGD(model.parameters(), lr=0.1), accumulate)
    shares = step.gradients(wrapped, batch, wrapper)
    return shares, [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize(('samples', 'gpus', 'accumulate'), [(4, 2, 1), (5, 3, 1), (5, 4, 1), (1, 2, 1), (4, 2, 2)])
def test_losses_and_gradients_are_those_of_the_whole_batch(samples: int, gpus: int, accumulate: int) -> None:
    model, same = make_model(PER_SAMPLE), make_model(PER_SAMPLE)
    one, expected = gradients(model, model, make_batch(samples), accumulate)
    several, found = gradients(same, parallel(same, gpus), make_batch(samples), accumulate)
    assert several['loss'].shape == ()
    assert {name: share.item() for name, share in several.items()} == pytest.approx(
        {name: share.item() for name, share in one.items()}, rel=1e-9
    )
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_a_loss_over_the_batch_is_the_mean_over_the_parts() -> None:
    model = make_model(PER_BATCH)
    batch = make_batch(3)
    shares, _ = gradients(model, parallel(model, 2), batch)
    data = model.data_preprocessor(batch, training=True)
    # 3 samples on 2 GPUs are parts of 2 and of 1.
    parts = [model(data['inputs'][part], data['labels'][part], mode='loss') for part in (slice(2), slice(2, 3))]
    expected = sum(part['loss_dice'].item() for part in parts) / 2
    assert shares['loss_dice'].item() == pytest.approx(expected, rel=1e-9)


class SaysItsType(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))
        self.seen: list[torch.dtype] = []

    def forward(self, inputs: Tensor, labels: Tensor, normalisers: Tensor, mode: str) -> dict[str, Tensor]:
        product = inputs @ self.weight
        self.seen.append(product.dtype)
        return {'loss': product.float().sum() / normalisers[0]}

    def normalisers(self, labels: Tensor) -> Tensor:
        return torch.tensor([len(labels)], dtype=torch.float64)


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_the_threads_compute_in_the_type_of_the_run(dtype: torch.dtype) -> None:
    model = SaysItsType()
    labels = torch.zeros(4)
    with torch.autocast('cpu', dtype=dtype):
        losses = parallel(model, 2)(torch.ones(4, 4), labels, model.normalisers(labels), mode='loss')
    assert model.seen == [dtype, dtype]
    # 4 rows of 4 products of 4: 64, over 4 samples
    assert losses['loss'].item() == 16


# ---- who gets it ----


def test_fewer_than_two_gpus_are_said_once_and_the_run_is_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 0)
    config = tiny_config(make_data(tmp_path / 'data'), tmp_path / 'run', model_wrapper_cfg=dict(type='DataParallel'))
    runner = build_runner(config)
    runner.train()
    assert type(runner.model) is Segmentor
    log = next((tmp_path / 'run').glob('*/*.log')).read_text()
    assert log.count('DataParallel needs 2 GPUs or more, and this process sees 0') == 1


def test_two_gpus_are_used(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 2)
    model = make_model(PER_SAMPLE)
    with caplog.at_level(logging.INFO, LOGGER.name):
        wrapped = wrap_model(model, dict(type='DataParallel'), dict(launcher='none', sync_bn=True), LOGGER)
    assert type(wrapped) is DataParallel
    assert step.unwrap(wrapped) is model
    (said,) = caplog.messages
    assert 'scattered over 2 GPUs' in said


@pytest.mark.parametrize(
    ('wrapper', 'config', 'words'),
    [
        ({}, dict(launcher='slurm'), "the launcher is 'slurm'"),
        ({}, dict(compile=True), 'leave out --compile'),
        (dict(static_graph=True), {}, 'takes no static_graph; choose GPUs by CUDA_VISIBLE_DEVICES'),
    ],
)
def test_what_does_not_go_with_it_is_refused(wrapper: dict, config: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        wrap_model(nn.Linear(1, 1), dict(type='DataParallel', **wrapper), config, LOGGER)


def wrap_on_a_rank() -> None:
    wrap_model(nn.Linear(1, 1), dict(type='DataParallel'), dict(launcher='pytorch'), LOGGER)


def test_a_group_of_processes_is_refused() -> None:
    with pytest.raises(UserError, match='is for one process'):
        run_ranks(2, wrap_on_a_rank)
