"""Rate limiters: rules that decide when a table accepts inserts and samples.

With `diff = inserts · samples_per_insert - samples`, and `size = inserts - deletes`:

    insert   if size stays ≤ min_size_to_sample, or diff stays ≤ max_diff
    sample   if size is ≥ min_size_to_sample, and diff stays ≥ min_diff

A limiter is pure: it counts and decides, and the server makes calls wait. (Cassirer et al., "Reverb: A
Framework for Experience Replay", arXiv 2102.04736, section 3.3.)
"""

from __future__ import annotations

import math
from fractions import Fraction

from launchpad.courier.checks import is_whole
from launchpad.errors import DefinitionError


class RateLimiter:
    """A rate limiter with explicit bounds. Most tables need MinSize, SampleToInsertRatio or `Table.queue`.

    Example:
        lp.replay.RateLimiter(samples_per_insert=4, min_size_to_sample=100, min_diff=300, max_diff=500)

    Args:
        samples_per_insert: The average number of samples of each item.
        min_size_to_sample: The number of items that a table needs before it can be sampled.
        min_diff: The lower bound of `diff`. A sample waits if `diff` would go below this bound.
        max_diff: The upper bound of `diff`. An insert waits if `diff` would go above this bound.

    Attributes:
        lowest_diff, highest_diff: The lowest and the highest `diff` after an insert or a sample, while the
            table had at least `min_size_to_sample` items.

    Raises:
        DefinitionError: with these bounds, inserts and samples would wait for each other indefinitely, or a
            bound is out of range.
    """

    def __init__(
        self, samples_per_insert: float, min_size_to_sample: int, min_diff: float, max_diff: float
    ) -> None:
        # Convert numpy's numbers, because sums of its small integers would keep their type, and overflow.
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
                f" other forever: expected max_diff >= {least:g}"
            )
        self.samples_per_insert = samples_per_insert
        self.min_size_to_sample = min_size_to_sample
        self.min_diff = min_diff
        self.max_diff = max_diff
        self.reset()

    @property
    def diff(self) -> float:
        """The number of samples that the inserts so far allow, minus the number of samples so far."""
        return self.inserts * self.samples_per_insert - self.samples

    def can_insert(self) -> bool:
        """Return True if one more insert stays within the bounds."""
        if self.inserts + 1 - self.deletes <= self.min_size_to_sample:
            return True
        return self.diff + self.samples_per_insert <= self.max_diff

    def can_sample(self) -> bool:
        """Return True if one more sample stays within the bounds."""
        if self.inserts - self.deletes < self.min_size_to_sample:
            return False
        return self.diff - 1 >= self.min_diff

    def insert(self) -> None:
        """Count an inserted item."""
        self.inserts += 1
        self._note_diff()

    def sample(self) -> None:
        """Count a sample."""
        self.samples += 1
        self._note_diff()

    def delete(self) -> None:
        """Count a deleted item, no matter why it was deleted."""
        self.deletes += 1

    def reset(self) -> None:
        """Set all counts back to the start."""
        self.inserts = 0
        self.samples = 0
        self.deletes = 0
        self.lowest_diff = math.inf
        self.highest_diff = -math.inf

    def _note_diff(self) -> None:
        if self.inserts - self.deletes >= self.min_size_to_sample:
            diff = self.diff
            self.lowest_diff = min(self.lowest_diff, diff)
            self.highest_diff = max(self.highest_diff, diff)


def _least_max_diff(samples_per_insert: float, min_diff: float) -> float:
    """Return the smallest `max_diff` that allows an insert whenever no sample is allowed.

    A sample waits while `diff < min_diff + 1`. The values of `diff` are multiples of 1/denominator. The
    greatest multiple below `min_diff + 1` must leave room for one insert.
    """
    if math.isinf(min_diff):
        return min_diff
    ratio = Fraction(samples_per_insert)
    greatest = Fraction(
        math.ceil((Fraction(min_diff) + 1) * ratio.denominator) - 1, ratio.denominator
    )
    return float(greatest + ratio)


class MinSize(RateLimiter):
    """A limiter whose samples wait until the table has enough items. Inserts never wait.

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
    """A limiter that keeps samples and inserts at a ratio: whichever of them runs ahead waits.

    Up to `min_size_to_sample` items, it behaves like MinSize. From then on, it keeps
    `(inserts - min_size_to_sample) · samples_per_insert - samples` within ±error_buffer.

    Example:
        lp.replay.SampleToInsertRatio(samples_per_insert=8, min_size_to_sample=1000, error_buffer=800)

    Args:
        samples_per_insert: The average number of samples of each item, over its whole time in the table.
        min_size_to_sample: The number of items that the table needs before it can be sampled.
        error_buffer: The number of samples by which sampling may run ahead or fall behind; or a pair
            `(min_diff, max_diff)`.

    Raises:
        DefinitionError: the buffer is too small, or nothing could ever be sampled with it.
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
            min_diff = offset - error_buffer
            max_diff = offset + error_buffer
        least = 2 * max(1.0, samples_per_insert)
        if not max_diff - min_diff >= least:
            raise DefinitionError(
                f"SampleToInsertRatio(error_buffer={error_buffer!r}) would let inserts and samples wait for"
                f" each other forever: expected max_diff - min_diff >= {least:g}, that is a buffer of"
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
    """The limiter of `Table.queue`: each item is sampled once, and inserts wait while there are `size` items.

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
    """The limiter of `Table.stack`. It has the rules of QueueLimiter; the table gives the newest item first.

    Example:
        lp.replay.Table.stack("newest", max_size=100)   # has one
    """
