"""Experience replay: the tables of an `lp.ReplayNode`, and the clients that insert and sample.

    Table(name, sampler, remover, max_size, max_times_sampled, rate_limiter)
        sampler, remover    Uniform, Prioritized, Fifo, Lifo, MaxHeap, MinHeap
        rate_limiter        MinSize, SampleToInsertRatio, QueueLimiter, StackLimiter
    ReplayClient            insert, sample, batches, update_priorities; and makes writers
        writers             TrajectoryWriter, NStepWriter, SequenceWriter

Example:
    table = lp.replay.Table("all", lp.replay.Uniform(), lp.replay.Fifo(), max_size=1000)
    replay = program.add_node(lp.ReplayNode([table]), label="replay")
"""

from typing import NoReturn

from launchpad.courier.explained import no_attribute
from launchpad.replay.batches import Batches
from launchpad.replay.client import ReplayClient
from launchpad.replay.columns import ReplaySample, SampleInfo
from launchpad.replay.n_step_writer import NStepWriter, Transition
from launchpad.replay.rate_limiters import (
    MinSize,
    QueueLimiter,
    RateLimiter,
    SampleToInsertRatio,
    StackLimiter,
)
from launchpad.replay.selectors import (
    Fifo,
    Lifo,
    MaxHeap,
    MinHeap,
    Prioritized,
    Selector,
    Uniform,
)
from launchpad.replay.sequence_writer import SequenceWriter
from launchpad.replay.table import Table, TableInfo
from launchpad.replay.trajectory_writer import TrajectoryWriter

__all__ = [
    # Tables.
    "Table",
    "TableInfo",
    # Selectors, for sampling and for removal.
    "Fifo",
    "Lifo",
    "MaxHeap",
    "MinHeap",
    "Prioritized",
    "Selector",
    "Uniform",
    # Rate limiters, which make inserts and samples wait.
    "MinSize",
    "QueueLimiter",
    "RateLimiter",
    "SampleToInsertRatio",
    "StackLimiter",
    # Clients and samples.
    "Batches",
    "ReplayClient",
    "ReplaySample",
    "SampleInfo",
    # Writers of steps.
    "NStepWriter",
    "SequenceWriter",
    "TrajectoryWriter",
    "Transition",
]


def __getattr__(name: str) -> NoReturn:
    raise no_attribute("lp.replay", name, __all__, "launchpad.other_names:REPLAY")
