"""The serial truth: one process does what all have done, commit by commit, in the recorded order."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import threadpoolctl

from examples._shared.data import Array
from examples.systems.dist_keras.algorithm import Centre, Commit, Replica
from examples.systems.dist_keras.training import Rule, Training


@dataclass
class Replayed:
    """The result of a replay."""

    centre: Centre
    replicas: list[Replica]
    versions: list[Array]  # of the centre: before the first commit, and after each
    moved: list[float] = field(default_factory=list)  # how far each commit moved centre + replica


def replay(training: Training, rule: Rule, record: Sequence[Commit]) -> Replayed:
    """For each commit of the record, let its worker do a round from the version that it had pulled."""
    centre = training.centre(rule)
    replicas = [training.replica(rule, worker) for worker in range(centre.workers)]
    replayed = Replayed(centre, replicas, [centre.parameters])
    sums: list[Array] = []

    def pull() -> Array:
        sums.append(replica.parameters + centre.parameters)
        return replayed.versions[seen]

    # One thread, as in the workers: with more, the bits may differ.
    with threadpoolctl.threadpool_limits(1):
        for worker, seen, _ in record:
            replica = replicas[worker]
            centre.commit(worker, replica.round(pull), seen)
            replayed.versions.append(centre.parameters)
            replayed.moved.append(
                float(np.abs(replica.parameters + centre.parameters - sums[-1]).max())
            )
    return replayed
