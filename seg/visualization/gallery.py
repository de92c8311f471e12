"""The few worst and best pictures of a data set, kept while it goes by."""

from typing import NamedTuple

from numpy.typing import NDArray

from seg.evaluation.metric import ImageScore, highest, lowest


class Sample(NamedTuple):
    """A small image (HWC), its truth and its prediction (HW) at the size to draw them at; the image may be smaller."""

    image: NDArray
    truth: NDArray | None
    prediction: NDArray


class Gallery:
    """Keeps at most `worst` + `best` samples: those of the lowest and the highest scores, equal ones by path."""

    def __init__(self, worst: int, best: int) -> None:
        self.worst, self.best = worst, best
        self.samples: dict[str, Sample] = {}
        self._scores: list[ImageScore] = []

    def admits(self, score: float, path: str) -> bool:
        """Whether the image is among the worst or the best so far."""
        return (score, path) in self._best_and_worst((score, path))

    def add(self, score: float, path: str, sample: Sample) -> None:
        """Keep the sample if it is admitted, and drop what no longer is."""
        kept = self._best_and_worst((score, path))
        self.samples[path] = sample
        self._scores = sorted(kept)
        self.samples = {path: self.samples[path] for _, path in self._scores}

    def _best_and_worst(self, new: ImageScore) -> set[ImageScore]:
        images = [*self._scores, new]
        return {*lowest(images, self.worst), *highest(images, self.best)}

    def pick(self, images: list[ImageScore]) -> dict[str, Sample]:
        """Those of `images` that are here."""
        return {path: self.samples[path] for _, path in images if path in self.samples}
