"""A pass over the data sets in three stages, of which each takes from the cache what it can: heads, masks, photographs."""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import cv2
import PIL

from seg.datasets.gate.cache import Cache
from seg.datasets.gate.duplicates import Place, Seen
from seg.datasets.gate.looks import Job, Result, look_at_head, look_at_mask, look_at_photo
from seg.datasets.gate.parallel import Crew, Look, run_looks
from seg.datasets.gate.sources import Source
from seg.datasets.gate.stamps import Stamp, fingerprint, pair_stamp
from seg.datasets.gate.tally import Tally
from seg.datasets.pairs import Pair

VERSION = f'1 {PIL.__version__} {cv2.__version__}'  # what else a result depends on; count up when looks change
_SAVE_EVERY = 2000  # looks, so that a pass that is broken off does not begin again


@dataclass
class Pass:
    """What is known of each pair, and what it adds up to."""

    sources: Sequence[Source]
    stamps: dict[str, Stamp]
    caches: Sequence[Cache]
    crew: Crew
    tallies: list[Tally] = field(default_factory=list)
    seen: Seen = field(default_factory=Seen)
    bad_images: set[Place] = field(default_factory=set)
    bad_masks: set[Place] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.tallies = [Tally() for _ in self.sources]

    def pair(self, place: Place) -> Pair:
        return self.sources[place[0]].pairs[place[1]]

    def has_good_image(self, place: Place) -> bool:
        """As far as its head goes."""
        return place not in self.bad_images

    def has_good_mask(self, place: Place) -> bool:
        return self.pair(place).seg_map_path is not None and place not in self.bad_masks


def run_stage(work: Pass, kind: str, places: Sequence[Place], deadline: float) -> None:
    """Take what the cache knows of these pairs, and look at the others until `deadline` on `time.monotonic`."""
    stage = _STAGES[kind]
    left = _take_known(work, kind, places)
    jobs = [_job(work, place) for place in left]
    rows: list[tuple[Place, Result]] = []
    done = 0
    for job, result in run_looks(stage.look, jobs, work.crew, stage.title, stage.batch, deadline):
        stage.take(work, left[job], result)
        rows.append((left[job], result))
        done += 1
        if len(rows) == _SAVE_EVERY:
            _save(work, kind, rows)
            rows.clear()
    _save(work, kind, rows)
    if done < len(left):
        _count_left(work, kind, places)


def _take_known(work: Pass, kind: str, places: Sequence[Place]) -> list[Place]:
    """Those of `places` that the cache does not know, or knew before they changed."""
    known = [cache.looks(_cache_kind(kind, source)) for cache, source in zip(work.caches, work.sources)]
    left = []
    for place in places:
        pair = work.pair(place)
        stamp, result = known[place[0]].get(pair_key(pair), ('', ''))
        if stamp and stamp == pair_stamp(pair, work.stamps):
            _STAGES[kind].take(work, place, json.loads(result))
        else:
            left.append(place)
    return left


def _save(work: Pass, kind: str, rows: Sequence[tuple[Place, Result]]) -> None:
    for number, (cache, source) in enumerate(zip(work.caches, work.sources)):
        pairs = [(work.pair(place), result) for place, result in rows if place[0] == number]
        cache.add_looks(
            _cache_kind(kind, source), [(pair_key(p), pair_stamp(p, work.stamps), result) for p, result in pairs]
        )


def _cache_kind(kind: str, source: Source) -> str:
    """What a look depends on besides the files: another kind of pixels or labels is another look."""
    depends_on = source.rule if kind == 'mask' else ''
    return f'{kind} {fingerprint([VERSION, str(source.reading), str(depends_on)])}'


def pair_key(pair: Pair) -> str:
    """Names that are no Unicode are spelt out, because SQLite keeps Unicode."""
    return f'{pair.img_path}\n{pair.seg_map_path}'.encode(errors='backslashreplace').decode()


def _job(work: Pass, place: Place) -> Job:
    source, pair = work.sources[place[0]], work.pair(place)
    return Job(pair.img_path, pair.seg_map_path, source.reading, source.rule)


def _count_left(work: Pass, kind: str, places: Sequence[Place]) -> None:
    for number, tally in enumerate(work.tallies):
        wanted = sum(place[0] == number for place in places)
        if kind == 'mask':
            tally.masks_left = wanted - tally.masks
        else:
            tally.photos_left = wanted - tally.photos


def _take_head(work: Pass, place: Place, result: Result) -> None:
    work.tallies[place[0]].add_head(work.pair(place), result)
    kinds = {kind for kind, _ in result.get('errors', ())}
    if 'image' in kinds:
        work.bad_images.add(place)
    if 'mask' in kinds:
        work.bad_masks.add(place)
    if 'image' in result:
        work.seen.add_hashes(place, result['image'], result.get('mask'))


def _take_mask(work: Pass, place: Place, result: Result) -> None:
    work.tallies[place[0]].add_mask(work.pair(place), result)


def _take_photo(work: Pass, place: Place, result: Result) -> None:
    work.tallies[place[0]].add_photo(work.pair(place), result)
    if 'thumb' in result:
        work.seen.add_thumb(place, base64.b64decode(result['thumb']))


@dataclass(frozen=True)
class _Stage:
    """`batch`: looks that a worker does before it reports."""

    title: str
    look: Look
    take: Callable[[Pass, Place, Result], None]
    batch: int


_STAGES = {
    'head': _Stage('reading headers', look_at_head, _take_head, 64),
    'mask': _Stage('decoding masks', look_at_mask, _take_mask, 8),
    'photo': _Stage('decoding images', look_at_photo, _take_photo, 8),
}
