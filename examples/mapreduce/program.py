"""The graph of MapReduce: mappers make pairs of key and value, and push each key to the reducer that owns it.

    coordinator ──chunks of inputs──▶ mapper × m ──values of some keys──▶ reducer × r
         └────────────────────────────your results?─────────────────────────────▲

The coordinator assigns the inputs, and collects the results at the end. In between, pairs go from mappers to
reducers without passing through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import launchpad as lp
from examples.mapreduce.text import add_up, count_words
from examples.mapreduce.workers import Coordinator, Map, Mapper, Reduce, Reducer


def make_program(
    inputs: Sequence[Any],
    mappers: int = 4,
    reducers: int = 2,
    map_function: Map = count_words,
    reduce_function: Reduce = add_up,
) -> lp.Program:
    """Return the graph: coordinator → mappers → reducers, and coordinator → reducers.

    Args:
        map_function: Makes pairs of a key and a value from one input.
        reduce_function: Makes one value of some of a key's values. It is applied to its own results, too.
    """
    program = lp.Program("mapreduce")
    with program.group("reducer", restart=lp.RestartPolicy()):
        reducer_nodes = [lp.CourierNode(Reducer, reduce_function) for _ in range(reducers)]
        reducer_handles = [program.add_node(node) for node in reducer_nodes]
    functions = map_function, reduce_function
    with program.group("mapper", restart=lp.RestartPolicy()):
        mapper_nodes = [lp.CourierNode(Mapper, reducer_handles, *functions) for _ in range(mappers)]
        mapper_handles = [program.add_node(node) for node in mapper_nodes]
    coordinator = lp.PyClassNode(Coordinator, inputs, mapper_handles, reducer_handles)
    program.add_node(coordinator, label="coordinator")
    return program
