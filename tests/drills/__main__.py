"""`python -m tests.drills [--kills 30] [--seed N]`: see `tests.drills.elastic`."""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.drills import elastic, marks
from tests.drills.run import start_real


def main() -> int:
    parser = argparse.ArgumentParser(description=elastic.__doc__)
    parser.add_argument('--kills', type=int, default=30)
    parser.add_argument('--seed', type=int, default=random.randrange(10**6))
    parser.add_argument('--keep', metavar='DIR', help='work there, in a folder that does not exist, and keep it')
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix='drill-') as temporary:
        folder = Path(args.keep or Path(temporary) / 'drill')
        folder.mkdir()
        return drill(folder.resolve(), args.kills, args.seed)


def drill(folder: Path, kills: int, seed: int) -> int:
    print(f'{kills} kills, --seed {seed}; the run that nobody kills comes first', flush=True)
    began_s = time.monotonic()
    quiet = folder / 'marks of the whole'
    quiet.mkdir()
    config = elastic.write_config(folder, 'whole', elastic.steps_for(kills))
    whole = start_real([str(config), '2'], {marks.FOLDER: str(quiet)}, folder / 'whole.txt')
    if whole.wait() != 0:
        print((folder / 'whole.txt').read_text())
        return 1
    killed = elastic.Drill(folder, elastic.plan(kills, seed), elastic.steps_for(kills))
    code = killed.run()
    found = elastic.faults(folder / 'whole', folder / 'killed')
    found += [f'{killed.restarts} restarts for {kills} kills'] * (killed.restarts != kills)
    steps = len(dict(elastic.losses(folder / 'whole')))
    found = [f'the run ended with exit code {code}'] * bool(code) + found
    for fault in found:
        print(f'FAULT: {fault}')
    verdict = f'{len(found)} faults' if found else 'weights, optimizer, generators, hooks and all losses are bit-equal'
    print(f'{kills} kills over {steps} steps in {time.monotonic() - began_s:.0f} s, --seed {seed}: {verdict}')
    return bool(found)


if __name__ == '__main__':
    sys.exit(main())
