"""What a worker has returned, as the script asks for it."""

from __future__ import annotations

import numpy as np

import launchpad as lp
from launchpad.runtime import results

DEADLINE_S = 60.0


def test_a_result_is_another_object_each_time_it_is_asked_for() -> None:
    returned = results.returned("worker-0", 1, {"rows": [1], "large": np.zeros(100_000)})

    first = results.value_of(returned)
    first["rows"].append(2)
    first["large"][:] = 1
    second = results.value_of(returned)

    assert second["rows"] == [1]
    assert not second["large"].any()


def test_running_results_gives_what_was_returned_also_after_it_was_changed() -> None:
    program = lp.Program("results")
    program.add_node(lp.PyNode(lambda: [1]), label="worker")

    with lp.launch(program, "test_mt") as running:
        running.results("worker", DEADLINE_S)[0].append(2)

        assert running.results("worker", DEADLINE_S) == [[1]]
