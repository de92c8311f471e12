"""What the gate has to say: findings, grouped by kind, bounded in number."""

from bisect import insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

ERROR, WARNING = 'error', 'warning'
SHOWN = 5  # files that a finding names


@dataclass
class Finding:
    """One fault of one data set, however many files have it.

    where: the config's key. details: a line for each of the first files, which names it. files: those files, for pictures.
    """

    level: str
    where: str
    text: str
    details: list[str] = field(default_factory=list)
    advice: str = ''
    files: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """As text: the fault, its files, what to do."""
        yield f'{self.where}: {self.text}'
        yield from (f'    {line}' for detail in self.details for line in detail.splitlines())
        if self.advice:
            yield f'    -> {self.advice}'


class Group:
    """How many files have a fault, and the first few of them by name, in whatever order they come."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[tuple[str, str]] = []

    def add(self, path: str, message: str) -> None:
        self.count += 1
        insort(self._first, (path, message))
        del self._first[SHOWN:]

    def finding(self, level: str, where: str, text: str, advice: str = '') -> Finding:
        more = [f'... and {self.count - len(self._first)} more'] if self.count > len(self._first) else []
        details = [message for _, message in self._first] + more
        return Finding(level, where, text, details, advice, [path for path, _ in self._first])


def named(where: str, message: str, level: str = ERROR) -> Finding:
    """A message that says everything by itself."""
    return Finding(level, where, message)


def of_level(findings: Iterable[Finding], level: str) -> list[Finding]:
    return [finding for finding in findings if finding.level == level]
