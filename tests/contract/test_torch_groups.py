"""torch.distributed among the ranks of a collective, on every backend whose workers are processes."""

from __future__ import annotations

import pytest

import launchpad as lp

pytest.importorskip("torch")
from tests.helpers import torch_nodes


def test_ranks_meet_in_gloo_and_in_the_default_group_of_torch(launch_type: str) -> None:
    if launch_type == "test_mt":
        pytest.skip("one process has one default group")
    program = lp.Program("torch")
    with program.group("rank"):
        for _ in range(2):
            program.add_node(lp.CollectiveNode(torch_nodes.meet_everywhere, backend="gloo"))

    results = lp.run(program, launch_type)["rank"]

    for rank, (total, of_default_group, variables) in enumerate(results):
        assert (total, of_default_group) == (1, 2.0)
        assert (variables["RANK"], variables["WORLD_SIZE"]) == (str(rank), "2")
        n_here = int(variables["LOCAL_WORLD_SIZE"])
        assert int(variables["LOCAL_RANK"]) == (rank if n_here == 2 else 0)
        assert variables["GLOO_SOCKET_IFNAME"]
