"""The model's number of classes against the data's names of classes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seg.config_schema import lookup
from seg.config_schema.wording import Fault, brief

LOADERS = ('train_dataloader', 'val_dataloader', 'test_dataloader')


def class_count_faults(config: Mapping[str, Any]) -> Iterator[Fault]:
    """One class and two are the same labels: 0 and 1."""
    model = config.get('model')
    count = model.get('num_classes') if isinstance(model, Mapping) else None
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        return
    said: set[int] = set()
    for key in LOADERS:
        loader = config.get(key)
        names = classes_of(loader.get('dataset')) if isinstance(loader, Mapping) else None
        if names is None or max(count, 2) == max(len(names), 2) or len(names) in said:
            continue
        said.add(len(names))
        listed = ', '.join(map(str, names[:6])) + (', ...' if len(names) > 6 else '')
        fit = '2 (or 1, a sigmoid channel)' if len(names) <= 2 else str(len(names))
        yield Fault(
            ('model', 'num_classes'),
            f'is {count}, but {key}.dataset has {len(names)} class{"es" * (len(names) > 1)} ({listed}); expected {fit}',
        )


def classes_of(dataset: Any) -> Sequence[Any] | None:
    """The names of the classes of a data set's config, in its wrappers; None where the config doesn't say."""
    for _ in range(20):  # wrappers in wrappers, but no endless ring of them
        if not isinstance(dataset, Mapping):
            return None
        inner = dataset.get('dataset', dataset.get('datasets'))
        if inner is None:
            break
        dataset = inner[0] if isinstance(inner, list | tuple) and inner else inner
    return _own_classes(dataset)


def contradiction(model: Any) -> Iterator[Fault]:
    """The network is given the model's number of classes."""
    network = model.get('network') if isinstance(model, Mapping) else None
    if not isinstance(network, Mapping) or network.get('num_classes') in (None, model.get('num_classes')):
        return
    text = f'is {brief(network["num_classes"])}, but model.num_classes={brief(model.get("num_classes"))}; leave it out'
    yield Fault(('model', 'network', 'num_classes'), text)


def _own_classes(dataset: Mapping[str, Any]) -> Sequence[Any] | None:
    metainfo = dataset.get('metainfo')
    names = metainfo.get('classes') if isinstance(metainfo, Mapping) else None
    if names is None:
        try:
            kind = lookup.find(dataset.get('type'), lookup.by_name('DATASETS'))
        except lookup.NotRegistered:
            return None
        names = (getattr(kind, 'METAINFO', None) or {}).get('classes')
    return names if isinstance(names, list | tuple) and names else None
