"""Files that go bad while a run reads them: the run stops, or the next sample takes their place, N times."""

from collections.abc import Callable
from typing import Any

from seg.errors import BadFileError, UserError

REPLACED = 'replaced'  # the key of a sample's metas that lists what was wrong with the files it stands in for


def allowed_bad_files(dataset: Any) -> int:
    """`max_bad_files` of a data set, or of those that it wraps, together."""
    if hasattr(dataset, 'max_bad_files'):
        return dataset.max_bad_files
    if hasattr(dataset, 'datasets'):
        return sum(map(allowed_bad_files, dataset.datasets))
    return allowed_bad_files(dataset.dataset) if hasattr(dataset, 'dataset') else 0


class BadFiles:
    """The distinct bad files met so far, by what was said of each."""

    def __init__(self, allowed: int) -> None:
        self.allowed = allowed
        self.seen: dict[str, None] = {}  # a set in order of arrival

    def add(self, message: str) -> bool:
        """Whether it is a new one. Raises UserError, each time, where more have been met than are allowed."""
        is_new = message not in self.seen
        self.seen[message] = None
        if not self.allowed:
            raise UserError(
                f'{message}. Put a good file in its place and go on with --resume; or let training replace up to N '
                'such files by others: max_bad_files=N of its data set'
            )
        if len(self.seen) > self.allowed:
            listed = '\n'.join(f'  {text}' for text in self.seen)
            raise UserError(
                f'{len(self.seen)} files cannot be read, max_bad_files={self.allowed} are allowed:\n{listed}'
            )
        return is_new

    def first_good(self, load: Callable[[int], Any], index: int, size: int) -> Any:
        """`load(index)`, or the next index's sample that can be read, marked as a replacement."""
        messages: list[str] = []
        for step in range(size):
            try:
                sample = load((index + step) % size)
            except BadFileError as error:
                self.add(str(error))
                messages.append(str(error))
                continue
            return _marked(sample, messages) if messages else sample
        raise UserError('no file of the data set can be read:\n' + '\n'.join(f'  {text}' for text in self.seen))


def _marked(sample: Any, messages: list[str]) -> Any:
    if not isinstance(sample, dict) or not isinstance(sample.get('metas'), dict):
        raise UserError(
            f'{messages[0]}. max_bad_files cannot replace it: the pipeline must end in PackSegInputs, whose metas '
            'tell the log what was replaced'
        )
    sample['metas'][REPLACED] = messages
    return sample
