"""Many small looks in worker processes, with a progress bar and a deadline.

The workers are those of a DataLoader, which training uses anyway: they end with this process whatever ends it, and work
with every way of starting processes.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from seg.datasets.gate.looks import Job, Result

Look = Callable[[Job], Result]


@dataclass(frozen=True)
class Crew:
    """Who looks, and who is told meanwhile.

    workers: processes at most. start_worker: a DataLoader's `worker_init_fn`. show: a progress bar on stderr.
    beat: called every few looks, for a parent that must be told that this one lives.
    """

    workers: int = 0
    start_worker: Callable[[int], None] | None = None
    show: bool = False
    beat: Callable[[], None] | None = None


class _Looks(Dataset):
    def __init__(self, look: Look, jobs: Sequence[Job]) -> None:
        self.look, self.jobs = look, jobs

    def __len__(self) -> int:
        return len(self.jobs)

    def __getitem__(self, index: int) -> tuple[int, Result]:
        return index, self.look(self.jobs[index])


def run_looks(
    look: Look, jobs: Sequence[Job], crew: Crew, title: str, batch: int, deadline: float = float('inf')
) -> Iterator[tuple[int, Result]]:
    """(number of the job, result) as they come, until `deadline` on `time.monotonic`; what was not reached never comes.

    batch: looks that a worker does before it reports; fewer than four batches are not worth a worker.
    """
    workers = min(crew.workers, len(jobs) // (4 * batch))
    options: dict[str, Any] = {'in_order': False, 'worker_init_fn': crew.start_worker} if workers > 1 else {}
    options['generator'] = torch.Generator()  # it draws a seed that nobody needs, and not from the run's own
    loader = DataLoader(
        _Looks(look, jobs), batch_size=batch, num_workers=workers if workers > 1 else 0, collate_fn=list, **options
    )
    with tqdm(total=len(jobs), desc=title, unit='pair', disable=not crew.show or not jobs, leave=False) as bar:
        for results in loader if time.monotonic() < deadline else ():
            yield from results
            bar.update(len(results))
            if crew.beat is not None:
                crew.beat()
            if time.monotonic() >= deadline:
                return
