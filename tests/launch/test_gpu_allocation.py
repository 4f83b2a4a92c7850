"""Which worker gets which GPUs: the rules, tried on random hosts and programs against all possible ways."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launchpad.launch.devices.allocation import UNIT, GpuRequest, allocate
from launchpad.launch.devices.device import Device, listed

NAMES = ["NVIDIA A100-SXM4", "NVIDIA H100", "MIG 1g.5gb"]


def a_device(number: int, name: str = "A100") -> Device:
    return Device(number, f"GPU-{number}", name, whole="GPU-cut" if "MIG" in name else "")


def requests(*gpus: float, accelerator: str | None = None) -> list[GpuRequest]:
    return [GpuRequest(f"w-{i}", "w", n, accelerator) for i, n in enumerate(gpus)]


def given_to(devices: Sequence[Device], *gpus: float) -> list[list[int]] | None:
    """The numbers that requests for so many get, in their order."""
    found = allocate(devices, requests(*gpus))
    return None if found is None else [[d.index for d in given] for given in found.values()]


hosts = st.lists(st.sampled_from(NAMES), max_size=4).map(
    lambda names: [a_device(i, name) for i, name in enumerate(names)]
)
amounts = st.sampled_from([0, 0.1, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.9, 1, 2, 3])
programs = st.lists(
    st.tuples(amounts, st.sampled_from([None, "a100", "H100", "NVIDIA"])), max_size=6
).map(lambda asked: [GpuRequest(f"w-{i}", "w", n, kind) for i, (n, kind) in enumerate(asked)])
shares_of_others = st.lists(st.sampled_from([0, 0, 2500, 5000, 10_000]), min_size=4, max_size=4)


def taken_of(devices: Sequence[Device], shares: Sequence[int]) -> dict[str, int]:
    return {d.uuid: share for d, share in zip(devices, shares, strict=False)}


def is_possible(
    devices: Sequence[Device], asked: Sequence[GpuRequest], free: dict[str, int]
) -> bool:
    """Tries everything."""
    if not asked:
        return True
    first, *others = asked
    fits = [d for d in devices if first.matches(d) and free[d.uuid] >= first.units]
    for chosen in itertools.combinations(fits, first.count if first.gpus else 0):
        left = dict(free)
        for device in chosen:
            left[device.uuid] -= first.units
        if is_possible(devices, others, left):
            return True
    return False


@settings(max_examples=400)
@given(hosts, programs, shares_of_others)
def test_each_gets_what_it_asked_for_and_is_free_and_all_are_refused_exactly_when_that_is_impossible(
    devices: list[Device], asked: list[GpuRequest], shares: list[int]
) -> None:
    taken = taken_of(devices, shares)
    free = {d.uuid: UNIT - taken[d.uuid] for d in devices}

    found = allocate(devices, asked, taken)

    assert (found is not None) == is_possible(devices, asked, free)
    assert allocate(list(devices), list(asked), taken) == found
    used = dict(taken)
    for request in asked if found is not None else ():
        assert found is not None
        mine = found[request.worker]
        assert len(set(mine)) == len(mine) == (request.count if request.gpus else 0)
        for device in mine:
            assert request.matches(device)
            used[device.uuid] += request.units
    assert all(units <= UNIT for units in used.values())


@pytest.mark.parametrize(
    ("names", "gpus", "given"),
    [
        (["A100"] * 4, (0.5, 1, 2, 0.5), [[3], [0], [1, 2], [3]]),
        (["A100"], (1 / 3,) * 3, [[0]] * 3),
        (["A100"], (1 / 6,) * 6, [[0]] * 6),
        (["A100"], (0.1,) * 10, [[0]] * 10),
    ],
    ids=["whole ones first", "thirds", "sixths", "tenths"],
)
def test_whole_ones_come_in_plan_order_and_shares_behind_them_up_to_a_whole_one(
    names: list[str], gpus: tuple[float, ...], given: list[list[int]] | None
) -> None:
    devices = [a_device(i, name) for i, name in enumerate(names)]

    assert given_to(devices, *gpus) == given


def test_shares_that_a_first_fit_would_strand_are_placed() -> None:
    assert given_to([a_device(0), a_device(1)], 0.4, 0.4, 0.3, 0.3, 0.3, 0.3) is not None


def test_a_gpu_of_which_others_have_a_share_is_taken_before_an_empty_one() -> None:
    devices = [a_device(0), a_device(1)]

    found = allocate(devices, requests(0.5), {"GPU-1": 5000})

    assert found == {"w-0": (devices[1],)}


def test_gpus_of_one_name_are_preferred_to_a_mixture() -> None:
    devices = [a_device(0, "H100"), a_device(1, "A100"), a_device(2, "A100")]
    asked = [GpuRequest("w-0", "w", 2), GpuRequest("h-0", "h", 0.1, "H100")]

    found = allocate(devices, asked)

    assert found is not None
    assert found["w-0"] == (devices[1], devices[2])


@pytest.mark.parametrize(("share", "fits"), [(0.001, 8000), (0.07, 112), (0.3, 24)])
def test_thousands_of_shares_are_placed_or_refused_without_trying_everything(
    share: float, fits: int
) -> None:
    devices = [a_device(i) for i in range(8)]

    assert allocate(devices, requests(*[share] * fits)) is not None
    assert allocate(devices, requests(*[share] * (fits + 1))) is None


def test_numbers_in_a_row_are_listed_in_short() -> None:
    assert listed(["0", "1", "2", "3", "6", "7"]) == "GPU 0–3, 6, 7"
    assert listed(["MIG-a", "1", "0"]) == "GPU MIG-a, 1, 0"
    assert listed([]) == ""


def test_who_takes_any_leaves_the_rare_ones_to_those_who_need_them() -> None:
    devices = [a_device(0, "H100"), a_device(1, "A100")]
    asked = [GpuRequest("any-0", "any", 1), GpuRequest("h-0", "h", 1, "h100")]

    found = allocate(devices, asked)

    assert found == {"any-0": (devices[1],), "h-0": (devices[0],)}
