"""The variables that torchrun would set."""

from __future__ import annotations

from launchpad.collectives.torch_environment import TorchRank, variables


def variables_of(*hosts: str, has_own_gpus: bool = False) -> list[dict[str, str]]:
    """Those of each rank, where the ranks are on these hosts."""
    places = [
        TorchRank(host, f"10.0.0.{n}", 7000 + n, has_own_gpus) for n, host in enumerate(hosts)
    ]
    return [
        variables(places, rank, run_id="run", role="trainer", generation=2, max_restarts=3)
        for rank in range(len(hosts))
    ]


def numbers(found: list[dict[str, str]]) -> list[list[int]]:
    names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
    return [[int(each[name]) for name in names] for each in found]


def test_ranks_are_counted_on_each_host_and_one_with_gpus_of_its_own_is_a_node() -> None:
    assert numbers(variables_of("a", "b", "a")) == [
        [0, 0, 2, 0, 2],
        [1, 0, 1, 1, 2],
        [2, 1, 2, 0, 2],
    ]
    assert numbers(variables_of("a", "a", has_own_gpus=True)) == [[0, 0, 1, 0, 2], [1, 0, 1, 1, 2]]


def test_the_master_is_rank_0_and_each_generation_a_restart() -> None:
    (_, found) = variables_of("a", "b")

    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("10.0.0.0", "7000")
    assert found["TORCHELASTIC_RESTART_COUNT"] == "1"
    assert (found["WORLD_SIZE"], found["ROLE_NAME"]) == ("2", "trainer")
