"""One process that does what all have done, commit by commit, in the recorded order."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import threadpoolctl

from examples._shared.digits import Array
from examples.systems.dist_keras.algorithm import Centre, Commit, Replica
from examples.systems.dist_keras.training import Rule, Training


@dataclass
class Replayed:
    """What comes of it."""

    centre: Centre
    replicas: list[Replica]
    versions: list[Array]  # of the centre: before the first commit, and after each
    moved: list[float] = field(default_factory=list)  # by each, the sum of centre and replica


def replay(training: Training, rule: Rule, record: Sequence[Commit]) -> Replayed:
    """Let the recorded worker do a round, from the version that it had pulled, and commit it."""
    centre = training.centre(rule)
    replicas = [training.replica(rule, worker) for worker in range(centre.workers)]
    done = Replayed(centre, replicas, [centre.parameters])
    sums: list[Array] = []

    def pull() -> Array:
        sums.append(replica.parameters + centre.parameters)
        return done.versions[seen]

    with threadpoolctl.threadpool_limits(
        1
    ):  # as in the workers: with more, other bits are possible
        for worker, seen, _ in record:
            replica = replicas[worker]
            centre.commit(worker, replica.round(pull), seen)
            done.versions.append(centre.parameters)
            done.moved.append(
                float(np.abs(replica.parameters + centre.parameters - sums[-1]).max())
            )
    return done
