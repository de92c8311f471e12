"""What the sums over a data set's masks mean: values without a class, classes without a pixel, too much that is ignored."""

from collections.abc import Iterator, Sequence

from seg.datasets.gate.findings import ERROR, WARNING, Finding
from seg.datasets.gate.sources import Source
from seg.datasets.gate.tally import Tally
from seg.datasets.label_rule import IGNORE_INDEX, LabelRule

_LISTED = 8  # values or classes in a message
_MUCH_IGNORED = 0.5


def label_findings(source: Source, tally: Tally) -> Iterator[Finding]:
    """What is wrong with the labels of one data set."""
    if not tally.masks:
        return
    yield from _refused_masks(source, tally)
    if not any(tally.count(kind) for kind in ('values', 'lossy', 'colours', 'mask')):
        yield from _missing_classes(source, tally)
        yield from _ignored(source, tally)


def class_names(source: Source) -> list[str]:
    """One for each label from 0, two at least: one class means that and the rest."""
    names = source.classes or [str(label) for label in range(source.rule.num_classes or 0)]
    return names if len(names) != 1 else [f'not {names[0]}', names[0]]


def ignored_share(tally: Tally) -> float:
    """In 0..1, of all pixels decoded."""
    return float(tally.pixels[IGNORE_INDEX] / max(1, tally.pixels.sum()))


def propose(values: Sequence[int], rule: LabelRule) -> str:
    """What to write in the config for masks that hold these values, where `rule` has no class for some of them."""
    found, limit = sorted(set(values)), rule.limit
    unknown = [value for value, label in zip(found, rule.classes_of(found)) if label is None]
    if rule.label_map is not None:
        return f'Name {_listed(unknown)} in label_map: a class, or 255 to ignore it'
    if rule.is_doubtful(found):
        return (
            'If 255 is the foreground, set label_map={0: 0, 255: 1}; if it is to be ignored, '
            'label_map={0: 0, 1: 1, 255: 255}'
        )
    if not unknown:
        return (
            'Other masks hold 1. If 255 is the same, set label_map={0: 0, 1: 1, 255: 1}; if it is to be ignored, '
            'label_map={0: 0, 1: 1, 255: 255}'
        )
    if len(found) == limit and not rule.reduce_zero_label:
        pairs = ', '.join(f'{value}: {label}' for label, value in enumerate(found))
        return f'If these are the classes, in the order of metainfo.classes, set label_map={{{pairs}}}'
    if unknown == [limit] and not rule.reduce_zero_label:
        return _one_too_many(limit, rule)
    if len(unknown) == 1:
        return f'To ignore {unknown[0]}, set ignore_index={unknown[0]}; else give it a class by label_map'
    return 'Set label_map={value: class, ...} that names them all; class 255 ignores a value'


def _one_too_many(limit: int, rule: LabelRule) -> str:
    """Values 0 to C for C classes: either 0 or C stands for what nobody labelled."""
    zero = 'reduce_zero_label=True'
    if rule.is_binary:
        zero = 'label_map={0: 255, 1: 0, 2: 1} (reduce_zero_label is not for two classes)'
    return (
        f'If 0 is what nobody labelled, set {zero}; if {limit} is, set ignore_index={limit}; if all are classes, name '
        'one more in metainfo.classes'
    )


def _in_config(advice: str, source: Source) -> str:
    return f'{advice}: in `dataset` for all data sets, or in {source.key} alone.'


def _refused_masks(source: Source, tally: Tally) -> Iterator[Finding]:
    if tally.count('lossy'):
        text = f'lossy or smoothly resized masks, whose values are no classes: {tally.count("lossy")} of {tally.masks}'
        advice = 'Make them again as PNG, with nearest resampling.'
        if source.rule.is_binary:
            advice = _in_config(f'{advice[:-1]}, or set mask_threshold=128', source)
        yield tally.groups['lossy'].finding(ERROR, source.key, text, advice)
    if tally.count('values'):
        advice = _in_config(propose(_all_values(source, tally), source.rule), source)
        yield tally.groups['values'].finding(ERROR, source.key, _values_text(source, tally), advice)


def _values_text(source: Source, tally: Tally) -> str:
    """The values of the refused masks, with how much of them each takes."""
    shares = [
        f'{value} ({100 * pixels / tally.value_total:.3g} %, in {tally.value_masks[value]})'
        for value, pixels in sorted(tally.value_pixels.items())[:_LISTED]
    ]
    more = len(tally.value_pixels) - len(shares)
    listed = ', '.join(shares) + (f' and {more} more' if more else '')
    text = f'masks with values that have no class: {tally.count("values")} of {tally.masks}, which hold {listed}; '
    if source.rule.is_doubtful(list(tally.value_pixels)):
        ignored = 100 * tally.value_pixels[IGNORE_INDEX] / tally.value_total
        return text + (
            f'255 means ignore where nothing else is said: class 1 ({class_names(source)[1]!r}) would never occur, and '
            f'{ignored:.3g} % of their pixels would be ignored'
        )
    return text + f'allowed are {source.rule.allowed()}'


def _all_values(source: Source, tally: Tally) -> list[int]:
    """Of the refused masks and, where labels are the values themselves, of the accepted ones."""
    values = set(tally.value_pixels)
    if source.rule.label_map is None and not source.rule.reduce_zero_label:
        labels = [label for label in range(IGNORE_INDEX) if tally.pixels[label]]
        values.update(labels, [source.rule.ignore_index] if tally.pixels[IGNORE_INDEX] else [])
    return sorted(values)


def _missing_classes(source: Source, tally: Tally) -> Iterator[Finding]:
    """A class that was not met may be in masks that there was no time for: that is no error yet."""
    names = class_names(source)
    missing = [label for label in range(len(names)) if not tally.in_masks[label]]
    if not missing:
        return
    which = ', '.join(f'{label} ({names[label]!r})' for label in missing[:_LISTED])
    which += f' and {len(missing) - _LISTED} more' if len(missing) > _LISTED else ''
    text = f'class {which} never occurs in the {tally.masks} masks decoded'
    if len(names) - len(missing) > 1:
        yield Finding(WARNING, source.key, text)
        return
    level = ERROR if source.part == 'train' and not tally.masks_left else WARNING
    text += f'; {100 * ignored_share(tally):.3g} % of their pixels are ignored, the rest is one class'
    yield Finding(level, source.key, text, advice=_advise_one_class(source, tally))


def _advise_one_class(source: Source, tally: Tally) -> str:
    if tally.pixels[IGNORE_INDEX] and source.rule.label_map is None and source.rule.is_binary:
        value = source.rule.ignore_index
        return _in_config(f'If {value} is the foreground, set label_map={{0: 0, {value}: 1}}', source)
    ignored = f'Value {source.rule.ignore_index} is read as ignore. ' if tally.pixels[IGNORE_INDEX] else ''
    return f'{ignored}With one class there is nothing to learn: check label_map, ignore_index and metainfo.classes.'


def _ignored(source: Source, tally: Tally) -> Iterator[Finding]:
    share = ignored_share(tally)
    if share > _MUCH_IGNORED and (tally.in_masks[:IGNORE_INDEX] > 0).sum() > 1:
        text = f'{100 * share:.3g} % of the pixels of the {tally.masks} masks decoded are ignored'
        yield Finding(WARNING, source.key, text, advice='Check that ignore_index and label_map say what you mean.')
    if tally.count('blank') and share < 1:
        text = f'masks in which every pixel is ignored: {tally.count("blank")} of {tally.masks}'
        yield tally.groups['blank'].finding(WARNING, source.key, text)


def _listed(values: Sequence[int]) -> str:
    return ', '.join(map(str, values[:_LISTED])) + (', ...' if len(values) > _LISTED else '')
