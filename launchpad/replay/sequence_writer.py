"""SequenceWriter: sequences of a fixed length, like those of Acme's SequenceAdder. Needs numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from launchpad.courier.checks import is_whole
from launchpad.courier.trees import unflatten
from launchpad.replay import columns
from launchpad.replay.episode_writer import EpisodeWriter

if TYPE_CHECKING:
    from launchpad.replay.item_sender import ItemServer


class SequenceWriter(EpisodeWriter):
    """A writer of sequences of `length` steps. A new sequence starts every `period` steps.

        length=4, period=2     s0 s1 s2 s3 s4 s5 s6 ┃ end of the episode
                              └─────────┘
                                    └─────────┘
                                          └────────0┘      padded with zeros

    It is meant for recurrent networks. If the period is less than the length, sequences overlap, and steps
    that they have in common are sent once. (Kapturowski et al., "Recurrent Experience Replay in Distributed
    Reinforcement Learning", ICLR 2019.)

    Example:
        with replay.sequence_writer("sequences", length=80, period=40) as writer:
          for step in episode:
            writer.append({"observation": step.observation, "reward": step.reward, "mask": 1.0})
          writer.end_episode()        # "mask" is 0 where there is padding

    Not thread-safe.

    Args:
        client: The client of the node.
        table: The table to insert into.
        length: The number of steps in each sequence.
        period: The number of steps from the start of one sequence to the start of the next.
        pad: If True, the last sequence of an episode is padded with zeros. If False, a sequence that would
            need padding is dropped.
        priority: The priority of each new sequence.
        items_per_call: The number of items to collect before they are sent.

    Raises:
        ValueError: `length` or `period` is less than 1.
    """

    def __init__(
        self,
        client: ItemServer,
        table: str,
        length: int,
        period: int,
        *,
        pad: bool = True,
        priority: float = 1.0,
        items_per_call: int = 1,
    ) -> None:
        if not (is_whole(length, at_least=1) and is_whole(period, at_least=1)):
            raise ValueError(
                f"length and period are whole numbers of 1 or more, not {length!r} and {period!r}"
            )
        super().__init__(client, length, items_per_call)
        self._table = table
        self._length = length
        self._period = period
        self._pads = pad
        self._priority = priority
        self._zeros: Any = None
        # The number of steps that the next sequence still needs.
        self._missing = length

    def append(self, step: Any) -> None:
        """Append a step, a structure of arrays and numbers. If this completes a sequence, insert it."""
        self._append(step)
        self._writer._raise_refusal()

    def _append(self, step: Any) -> None:
        """Append a step as `append` does, without raising errors of earlier sequences."""
        if self._zeros is None and self._pads:
            import numpy as np

            arrays, structure = columns.arrays_of(step)
            self._zeros = unflatten(structure, (np.zeros_like(array) for array in arrays))
        self._writer.append(step)
        self._missing -= 1
        if not self._missing:
            self._missing = self._period
            self._writer._make_item(self._table, self._priority, num_steps=self._length)

    def end_episode(self) -> None:
        """End the episode, and pad its last sequence. No sequence contains steps of two episodes."""
        steps = self._writer.episode_steps
        missing = self._missing
        if steps >= self._length:
            # The remainder is 0 if the last step completed a sequence.
            missing %= self._period
        # With `missing == length`, the sequence would contain only padding.
        if self._pads and steps and missing < self._length:
            for _ in range(missing):
                self._append(self._zeros)
        self._missing = self._length
        self._writer.end_episode()
