"""The memory of a rank, in elements."""

from typing import NamedTuple

from examples.systems.zero.algorithm import Stage0
from examples.systems.zero.transient import elements


class Memory(NamedTuple):
    """Elements on one rank: those kept from step to step, and the most of whole layers at any moment."""

    parameters: int
    gradients: int
    moments: int
    gathered: int
    unscattered: int


def memory_of(store: Stage0) -> Memory:
    """Count the elements that are there between two steps."""
    groups = store.parameters, store.gradients, [store.adam.mean, store.adam.square]
    return Memory._make([*map(elements, groups), store.gathered.most, store.unscattered.most])
