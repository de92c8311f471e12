"""Before a run goes on: from which checkpoint, and what the config takes over from it.

Only the first rank looks into the run's folder and reads; the others are sent what it read.
"""

from functools import partial
from pathlib import Path

from mmengine.config import Config
from mmengine.dist import get_rank, get_world_size

from seg.engine.state import checkpoint, resume
from seg.engine.state.first_rank import read_on_first
from seg.engine.state.run_folder import checkpoint_folder
from seg.engine.state.stored_run import check_counts, seg_meta
from seg.engine.wrappers import fsdp
from seg.errors import UserError

Found = tuple[Path, dict]


def prepare(config: Config, wanted: str | bool | None, trust: bool) -> Found | None:
    """Find the checkpoint that `wanted` names ('auto' or True: the newest good one of the run's folder), and write into
    the config what a run that goes on from it must have: its seed, its global batch. None starts at the beginning.

    Every rank must call it. Raises UserError where there is no such file, or the config does not fit it.
    """
    if not wanted:
        return None
    in_pieces = fsdp.is_wanted(config)
    found = read_on_first(partial(_find, checkpoint_folder(config), wanted, trust, in_pieces))
    if found is None:
        _say(f'--resume: no checkpoint in {checkpoint_folder(config)} yet, so the run starts at its beginning')
        return None
    check_counts(found[1], found[0])
    config.load_from, config.resume = str(found[0]), True
    adopt_seed(config, found[1])
    keep_global_batch(config, found[1])
    return found


def _find(folder: Path, wanted: str | bool, trust: bool, in_pieces: bool) -> Found | None:
    """Where this run is in pieces, each rank reads its own when the model is there."""
    if wanted not in (True, 'auto'):
        return Path(str(wanted)), checkpoint.load(str(wanted), trust=trust, outline=in_pieces)
    return resume.newest_good(folder, warn=_say, trust=trust, outline=in_pieces)


def adopt_seed(config: Config, state: dict) -> None:
    """A run that goes on deals the data that its first start dealt: with that start's seed."""
    saved = (state.get('meta') or {}).get('seed')
    randomness = dict(config.get('randomness') or {})
    asked = randomness.get('seed')
    if saved is None or asked == saved:
        return
    if asked is not None:
        raise UserError(f'randomness.seed is {asked}, but the run to resume was started with seed {saved}')
    config.randomness = dict(randomness, seed=saved)


def keep_global_batch(config: Config, state: dict) -> None:
    """On another number of processes each takes another share of the same global batches, whatever batch_size says.

    On the same number a changed batch_size is the user's wish, which is judged when the run is built.
    """
    saved = seg_meta(state)
    if 'global_batch' not in saved or saved.get('world_size') == get_world_size():
        return
    loader, was = config.train_dataloader, saved['global_batch']
    shares = get_world_size() * _accumulated(config)
    if loader['batch_size'] * shares == was:
        return
    if was % shares:
        raise UserError(
            f'the run to resume has a global batch of {was} images, which {_processes(shares, config)} cannot share '
            f'evenly; resume it on a number of processes that divides {was}'
        )
    _say(
        f'The run was on {saved["world_size"]} process(es): its global batch of {was} is kept on '
        f'{_processes(shares, config)} by train_dataloader.batch_size {was // shares} in the place of '
        f'{loader["batch_size"]}'
    )
    loader['batch_size'] = was // shares


def _accumulated(config: Config) -> int:
    return (config.get('optim_wrapper') or {}).get('accumulative_counts', 1)


def _processes(shares: int, config: Config) -> str:
    count = f'{get_world_size()} process(es)'
    return count if shares == get_world_size() else f'{count} x {_accumulated(config)} accumulated micro-batches'


def _say(text: str) -> None:
    if get_rank() == 0:
        print(text, flush=True)
