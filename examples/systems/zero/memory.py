"""What a rank keeps, counted."""

from typing import NamedTuple

from examples.systems.zero.algorithm import Stage0
from examples.systems.zero.transient import elements


class Memory(NamedTuple):
    """Elements on one rank: kept from step to step; and of whole layers, for a moment, the most."""

    parameters: int
    gradients: int
    moments: int
    gathered: int
    unscattered: int


def memory_of(store: Stage0) -> Memory:
    """Count what is there between two steps."""
    kept = store.parameters, store.gradients, [store.adam.mean, store.adam.square]
    return Memory._make([*map(elements, kept), store.gathered.most, store.unscattered.most])
