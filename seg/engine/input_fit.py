"""Whether a config's batches fit its data and its network, tried on blank images of the sizes that the data has."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seg.datasets.gate.findings import ERROR, WARNING, Finding, named
from seg.datasets.gate.sources import Found, Source
from seg.datasets.gate.summary import SetSummary
from seg.datasets.sampler import GlobalBatchSampler
from seg.engine.blank_run import (
    Outcome,
    Size,
    build_weightless,
    has_batchnorm,
    has_sync_batchnorm,
    try_network,
    try_pipeline,
)
from seg.errors import UserError

_DRAWS = 4  # of a pipeline that draws, for each size tried
_MAX_BLANK_PX = 50_000_000


@dataclass
class Fit:
    """outcomes: of the training pipelines. untried: what could not be found out, in words."""

    findings: list[Finding] = field(default_factory=list)
    untried: list[str] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)


def check_fit(config: Mapping[str, Any], found: Found, sets: Sequence[SetSummary], world_size: int) -> Fit:
    """Batches, classes, crops, and the network on the smallest input. Files that do not fit are not looked at here."""
    fit = Fit()
    fit.findings += _check_batches(config, found.samples.get('train', 0), world_size)
    fit.findings += _check_classes(config, found.sources)
    for source, summary in zip(found.sources, sets):
        outcomes = _try_sizes(source, summary, fit)
        if source.part == 'train':
            fit.outcomes += outcomes
            fit.findings += _check_crops(source, summary, outcomes)
    if fit.outcomes:
        _check_network(config, fit, world_size)
    return fit


def _check_batches(config: Mapping[str, Any], images: int, world_size: int) -> Iterator[Finding]:
    loader = config.get('train_dataloader') or {}
    batch, accumulate = loader.get('batch_size'), _accumulate(config)
    if not images or not isinstance(batch, int) or batch < 1 or not isinstance(accumulate, int) or accumulate < 1:
        return  # said elsewhere
    drop_last = bool(loader.get('drop_last', False))
    try:
        GlobalBatchSampler(images, batch, accumulate, drop_last=drop_last, rank=0, world_size=world_size)
    except UserError as error:
        yield named('train_dataloader', str(error))
        return
    whole = batch * world_size * accumulate
    if images < whole:
        text = (
            f'{images} images for steps of {whole} (batch_size {batch} x {world_size} processes x {accumulate} '
            'accumulated): every step repeats some'
        )
        yield Finding(WARNING, 'train_dataloader', text, advice='Make the batch smaller.')


def _accumulate(config: Mapping[str, Any]) -> Any:
    return (config.get('optim_wrapper') or {}).get('accumulative_counts', 1)


def _check_classes(config: Mapping[str, Any], sources: Sequence[Source]) -> Iterator[Finding]:
    wanted = (config.get('model') or {}).get('num_classes')
    if not isinstance(wanted, int):
        return
    for source in sources:
        given = source.rule.num_classes
        if given is not None and max(given, 2) != max(wanted, 2):
            listed = ', '.join(source.classes[:8]) + (', ...' if len(source.classes) > 8 else '')
            text = f'{given} classes in metainfo.classes ({listed}), but model.num_classes={wanted}'
            yield Finding(ERROR, source.key, text, advice='Make them equal.')


def _try_sizes(source: Source, summary: SetSummary, fit: Fit) -> list[Outcome]:
    """The pipeline on blank images of the most frequent size first, then of the smallest."""
    outcomes: list[Outcome] = []
    for size in _sizes_to_try(summary):
        try:
            outcomes += try_pipeline(source, size, _DRAWS if source.part == 'train' else 1)
        except UserError as error:
            fit.findings.append(named(f'{source.key}.pipeline', str(error)))
            break
        except Exception as error:  # noqa: BLE001, the transforms can be the user's own and expect a real image
            text = f'{source.key}.pipeline could not be tried on a blank image: {type(error).__name__}: {error}'
            fit.untried.append(text)
            break
    return outcomes


def _sizes_to_try(summary: SetSummary) -> list[Size]:
    sizes = [(height, width) for height, width, _ in summary.sizes if height * width <= _MAX_BLANK_PX]
    return list(dict.fromkeys([*sizes[:1], min(sizes, key=lambda size: size[0] * size[1])])) if sizes else []


def _check_crops(source: Source, summary: SetSummary, outcomes: Sequence[Outcome]) -> Iterator[Finding]:
    """A crop that most images are too small for: the rest of each sample is padding, which is ignored."""
    usual = [outcome for outcome in outcomes if outcome.size == outcomes[0].size]
    crops = [pair for outcome in usual for pair in outcome.crops]
    short = [pair for pair in crops if pair[0][0] < pair[1][0] or pair[0][1] < pair[1][1]]
    if len(short) * 2 <= len(crops):
        return
    (height, width), (crop_height, crop_width) = short[0]
    fitting = tuple(max(32, side // 32 * 32) for side in (min(height, crop_height), min(width, crop_width)))
    text = (
        f'crop_size {crop_height}x{crop_width} is larger than the image it is cut from, {height}x{width} '
        f'(height x width) in most draws; files are {outcomes[0].size[0]}x{outcomes[0].size[1]}'
    )
    advice = f'Each sample is padded, and what is padded is ignored. crop_size={fitting} fits.'
    yield Finding(WARNING, f'{source.key}.pipeline', text, advice=advice)


def _check_network(config: Mapping[str, Any], fit: Fit, world_size: int) -> None:
    model, loader = config.get('model') or {}, config.get('train_dataloader') or {}
    network, batch = build_weightless(model), loader.get('batch_size')
    if network is None or not isinstance(batch, int):
        return
    synchronised = bool(config.get('sync_bn')) or has_sync_batchnorm(network)
    joint = batch * (world_size if synchronised else 1)
    smallest = min(fit.outcomes, key=lambda outcome: outcome.output[0] * outcome.output[1])
    height, width = _padded(model.get('data_preprocessor') or {}, smallest.output)
    try:
        reason = try_network(network, (joint, smallest.channels, height, width))
    except NotImplementedError as error:
        fit.untried.append(f'model.network could not be tried without computing: {error}')
        return
    if reason:
        text = f'cannot train on a batch of {joint} of {height}x{width} (height x width), the smallest that comes: {reason}'
        fit.findings.append(named('model.network', text))
    elif joint == 1 and has_batchnorm(network):
        text = 'batch_size=1: BatchNorm takes its statistics from one image, which validation then does not have'
        advice = "Use a larger batch, sync_bn=True on several processes, or norm_cfg=dict(type='GN', num_groups=8)."
        fit.findings.append(Finding(WARNING, 'train_dataloader', text, advice=advice))


def _padded(preprocessor: Mapping[str, Any], size: Size) -> Size:
    """What a batch of this size is padded to."""
    if preprocessor.get('size'):
        return int(preprocessor['size'][0]), int(preprocessor['size'][1])
    divisor = preprocessor.get('size_divisor', 1)
    return -(-size[0] // divisor) * divisor, -(-size[1] // divisor) * divisor
