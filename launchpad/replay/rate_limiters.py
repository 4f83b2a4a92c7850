"""Rate limiters: when a table may be inserted into and sampled from.

With `diff = inserts · samples_per_insert - samples`, and `size = inserts - deletes`:

    insert   while size stays ≤ min_size_to_sample, and else if diff stays ≤ max_diff
    sample   while size ≥ min_size_to_sample, and diff stays ≥ min_diff

Pure: they count and decide; what waits, and for how long, is the server's. (Cassirer et al., "Reverb: A
Framework for Experience Replay", arXiv 2102.04736, section 3.3.)
"""

from __future__ import annotations

import math
from fractions import Fraction

from launchpad.courier.checks import is_whole
from launchpad.errors import DefinitionError


class RateLimiter:
    """Decides by these bounds; one usually wants MinSize, SampleToInsertRatio, or a `Table.queue`.

    Example:
        lp.replay.RateLimiter(samples_per_insert=4, min_size_to_sample=100, min_diff=300, max_diff=500)

    Args:
        samples_per_insert: How often an item is sampled on average.
        min_size_to_sample: How many items must be there to be sampled from.
        min_diff: The lower bound of `diff`, for samples.
        max_diff: Its upper bound, for inserts.

    Attributes:
        lowest_diff, highest_diff: Of all moments at which there were `min_size_to_sample` items, after each
            insert and each sample.

    Raises:
        DefinitionError: with these bounds everything would wait for ever.
    """

    def __init__(
        self, samples_per_insert: float, min_size_to_sample: int, min_diff: float, max_diff: float
    ) -> None:
        # Numbers of numpy would count in their own type, in which small integers overflow.
        samples_per_insert = float(samples_per_insert)
        min_size_to_sample = math.ceil(min_size_to_sample)
        min_diff = float(min_diff)
        max_diff = float(max_diff)
        if not 0 < samples_per_insert < math.inf:
            raise DefinitionError(
                f"samples_per_insert is positive and finite, not {samples_per_insert!r}"
            )
        if min_size_to_sample < 1:
            raise DefinitionError(f"min_size_to_sample is 1 or more, not {min_size_to_sample!r}")
        if not min_diff <= max_diff:
            raise DefinitionError(
                f"min_diff is at most max_diff, not {min_diff!r} and {max_diff!r}"
            )
        least = _least_max_diff(samples_per_insert, min_diff)
        if max_diff < least:
            raise DefinitionError(
                f"min_diff={min_diff:g} and max_diff={max_diff:g} with"
                f" samples_per_insert={samples_per_insert:g} would let inserts and samples wait for each"
                f" other for ever: expected max_diff >= {least:g}"
            )
        self.samples_per_insert = samples_per_insert
        self.min_size_to_sample = min_size_to_sample
        self.min_diff, self.max_diff = min_diff, max_diff
        self.reset()

    @property
    def diff(self) -> float:
        """How many more samples the inserts so far are good for than there have been."""
        return self.inserts * self.samples_per_insert - self.samples

    def can_insert(self) -> bool:
        """Whether one more insert is within the bounds."""
        if self.inserts + 1 - self.deletes <= self.min_size_to_sample:
            return True
        return self.diff + self.samples_per_insert <= self.max_diff

    def can_sample(self) -> bool:
        """Whether one more sample is."""
        if self.inserts - self.deletes < self.min_size_to_sample:
            return False
        return self.diff - 1 >= self.min_diff

    def insert(self) -> None:
        """An item has been inserted."""
        self.inserts += 1
        self._note_diff()

    def sample(self) -> None:
        """One has been sampled."""
        self.samples += 1
        self._note_diff()

    def delete(self) -> None:
        """One has been deleted, by whom or what ever."""
        self.deletes += 1

    def reset(self) -> None:
        """Nothing has happened so far."""
        self.inserts = self.samples = self.deletes = 0
        self.lowest_diff, self.highest_diff = math.inf, -math.inf

    def _note_diff(self) -> None:
        if self.inserts - self.deletes >= self.min_size_to_sample:
            diff = self.diff
            self.lowest_diff = min(self.lowest_diff, diff)
            self.highest_diff = max(self.highest_diff, diff)


def _least_max_diff(samples_per_insert: float, min_diff: float) -> float:
    """Return the smallest `max_diff` that lets an insert through whenever no sample is.

    A sample waits while `diff < min_diff + 1`. Of the values that `diff` can have, which are multiples of
    1/denominator, the greatest below that must leave room for one insert.
    """
    if math.isinf(min_diff):
        return min_diff
    ratio = Fraction(samples_per_insert)
    greatest = Fraction(
        math.ceil((Fraction(min_diff) + 1) * ratio.denominator) - 1, ratio.denominator
    )
    return float(greatest + ratio)


class MinSize(RateLimiter):
    """Samples wait until there are so many items; inserts never wait.

    Example:
        lp.replay.Table(
            "warm", lp.replay.Uniform(), lp.replay.Fifo(), 1000, rate_limiter=lp.replay.MinSize(100)
        )
    """

    def __init__(self, min_size_to_sample: int) -> None:
        super().__init__(1.0, min_size_to_sample, -math.inf, math.inf)

    def __repr__(self) -> str:
        return f"MinSize({self.min_size_to_sample})"


class SampleToInsertRatio(RateLimiter):
    """Keeps samples and inserts at a ratio: what runs ahead waits for the other.

    Up to `min_size_to_sample` items it is as MinSize. From then on
    `(inserts - min_size_to_sample) · samples_per_insert - samples` stays within ±error_buffer.

    Example:
        lp.replay.SampleToInsertRatio(samples_per_insert=8, min_size_to_sample=1000, error_buffer=800)

    Args:
        samples_per_insert: How often each item is sampled on average, in all.
        min_size_to_sample: How many items must be there to be sampled from.
        error_buffer: By how much the samples may run ahead or lag behind; or a pair, min_diff and max_diff.

    Raises:
        DefinitionError: a buffer that is so small, or lies so, that everything would wait for ever.
    """

    def __init__(
        self,
        samples_per_insert: float,
        min_size_to_sample: int,
        error_buffer: float | tuple[float, float],
    ) -> None:
        samples_per_insert = float(samples_per_insert)
        offset = samples_per_insert * math.ceil(min_size_to_sample)
        if isinstance(error_buffer, tuple):
            min_diff, max_diff = map(float, error_buffer)
        else:
            min_diff, max_diff = offset - error_buffer, offset + error_buffer
        least = 2 * max(1.0, samples_per_insert)
        if not max_diff - min_diff >= least:
            raise DefinitionError(
                f"SampleToInsertRatio(error_buffer={error_buffer!r}) would let inserts and samples wait for"
                f" each other for ever: expected max_diff - min_diff >= {least:g}, that is a buffer of"
                f" {least / 2:g} or more"
            )
        if min_diff > offset:
            raise DefinitionError(
                f"SampleToInsertRatio(error_buffer={error_buffer!r}): min_diff is above samples_per_insert"
                f" · min_size_to_sample = {offset:g}: nothing could ever be sampled"
            )
        super().__init__(samples_per_insert, min_size_to_sample, min_diff, max_diff)

    def __repr__(self) -> str:
        bounds = f"min_diff={self.min_diff:g}, max_diff={self.max_diff:g}"
        return (
            f"SampleToInsertRatio({self.samples_per_insert:g}, {self.min_size_to_sample}, {bounds})"
        )


class QueueLimiter(RateLimiter):
    """Each item is sampled once, and inserts wait while `size` of them have not been: `Table.queue`.

    Example:
        lp.replay.Table.queue("rows", max_size=100)     # has one

    Raises:
        DefinitionError: the size is less than 1.
    """

    def __init__(self, size: int) -> None:
        if not is_whole(size, at_least=1):
            raise DefinitionError(
                f"{type(self).__name__} has a size, a whole number of 1 or more, not {size!r}"
            )
        super().__init__(1.0, 1, 0.0, float(size))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.max_diff:g})"


class StackLimiter(QueueLimiter):
    """The same for a table of which the newest is taken first: `Table.stack`.

    Example:
        lp.replay.Table.stack("newest", max_size=100)   # has one
    """
