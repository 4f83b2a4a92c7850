"""A simulation runs the real plan, supervisor and policies; only workers, hosts and time are simulated."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

import launchpad as lp
from benchmarks.harness import drawn_failures
from launchpad.simulation.workers import SimulatedEvent

DAY_S = 86_400.0
OFTEN = lp.RestartPolicy(max_restarts=1000, within_s=60.0)


class Table:
    def get(self) -> int:
        return 1


def work() -> None:
    raise AssertionError("a simulation runs no code of a worker")


def program_of(n: int = 4, **group: Any) -> lp.Program:
    """A server, and workers that run."""
    program = lp.Program("simulated")
    program.add_node(lp.CourierNode(Table), label="table")
    with program.group("worker", **group):
        for _ in range(n):
            program.add_node(lp.PyNode(work))
    return program


def changes(simulation: lp.Simulation, name: str) -> list[tuple[float, str]]:
    return [(event.at_s, event.what) for event in simulation.of(name)]


# --- time and outcome ----------------------------------------------------------------------------


def test_a_program_ends_in_virtual_time_when_its_work_is_done() -> None:
    simulation = lp.simulate(program_of(2), start_s={"worker": 5}, run_s={"worker": 3600})

    assert (simulation.outcome, simulation.time_s) == ("succeeded", 3605.0)
    assert changes(simulation, "worker-1") == [(0, "starts"), (5, "ready"), (3605, "succeeded")]
    assert changes(simulation, "table-0") == [(0, "starts"), (1, "ready"), (3605, "stopped")]


def test_a_program_without_an_end_runs_until_the_time_is_up() -> None:
    simulation = lp.simulate(program_of(2), run_s={"worker": math.inf}, until_s=DAY_S)

    assert (simulation.outcome, simulation.time_s) == ("running", DAY_S)
    assert simulation.group("worker").availability == pytest.approx(1 - 1 / DAY_S)


def test_a_group_that_serves_until_all_are_done_has_succeeded() -> None:
    program = program_of(2, serves_until="group")

    simulation = lp.simulate(
        program, run_s={"worker": 10}, failures={"worker-1": [4]}, restart=OFTEN
    )

    assert changes(simulation, "worker-0")[-2:] == [(11, "done"), (16, "succeeded")]
    assert simulation.outcome == "succeeded"


def test_a_failure_without_a_policy_ends_the_program() -> None:
    simulation = lp.simulate(program_of(2), run_s={"worker": 10}, failures={"worker-1": [4]})

    assert simulation.outcome == "failed"
    assert [failure.worker for failure in simulation.failures] == ["worker-1"]
    assert changes(simulation, "worker-0")[-1] == (5.0, "stopped")


def test_a_worker_that_is_not_ready_in_time_fails() -> None:
    policy = lp.RestartPolicy(max_restarts=1, start_timeout_s=3)

    simulation = lp.simulate(program_of(1, restart=policy), start_s={"worker": 5})

    (failure,) = simulation.failures
    assert failure.error_type == "StartTimeout"
    assert simulation.time_s == 6.0
    assert simulation.group("worker").failures == 2


# --- policies ------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_restarts", [0, 1, 5])
def test_a_policy_gives_up_after_exactly_its_restarts(max_restarts: int) -> None:
    policy = lp.RestartPolicy(max_restarts=max_restarts, within_s=DAY_S, backoff=1.0)

    simulation = lp.simulate(
        program_of(3, restart=policy), run_s={"worker": math.inf}, failures={"worker-1": [10] * 9}
    )

    group = simulation.group("worker")
    assert (simulation.outcome, group.restarts, group.failures) == (
        "failed",
        max_restarts,
        max_restarts + 1,
    )
    backoffs_s = sum(2.0**i for i in range(max_restarts - 1))
    assert simulation.time_s == 11 * (max_restarts + 1) + backoffs_s


def test_a_group_is_restarted_as_a_whole_and_begins_with_what_it_has_saved() -> None:
    policy = lp.RestartPolicy(scope="group", save_every_s=60)

    simulation = lp.simulate(
        program_of(2, restart=policy), run_s={"worker": 200}, failures={"worker-0": [100]}
    )

    assert changes(simulation, "worker-1")[2:5] == [
        (101, "stopped"),
        (101, "starts"),
        (102, "ready"),
    ]
    assert changes(simulation, "worker-1")[-1] == (202, "succeeded"), "it was asked, and saved"
    assert changes(simulation, "worker-0")[-1] == (242, "succeeded"), "60 s of 100 were saved"
    assert simulation.group("worker").lost_s == 40


def test_work_that_is_not_saved_begins_again() -> None:
    simulation = lp.simulate(
        program_of(1, restart=OFTEN), run_s={"worker": 200}, failures={"worker-0": [150]}
    )

    assert simulation.time_s == 1 + 150 + 1 + 200
    assert simulation.group("worker").lost_s == 150


# --- hosts ---------------------------------------------------------------------------------------


def test_a_host_that_fails_takes_its_workers_which_start_again_on_other_hosts() -> None:
    hosts = lp.SimulatedHosts(3, cpus=4, mtbf_s=DAY_S, repair_s=3600)
    program = program_of(6, restart=OFTEN, resources=lp.Resources(cpus=1))

    simulation = lp.simulate(program, hosts=hosts, restart=OFTEN, until_s=20 * DAY_S, seed=1)

    failure = next(event for event in simulation.history if event.what == "fails")
    at_once = [event for event in simulation.history if event.at_s == failure.at_s]
    lost = {event.subject: event for event in at_once if event.what == "lost"}
    starts = {event.subject: event for event in at_once if event.what == "starts"}
    assert lost
    assert lost.keys() == starts.keys()
    assert all(event.host == failure.subject for event in lost.values())
    assert all(event.host not in ("", failure.subject) for event in starts.values())


def test_a_worker_waits_for_a_repair_if_no_other_host_has_room() -> None:
    hosts = lp.SimulatedHosts(2, cpus=2, mtbf_s=DAY_S, repair_s=3600)
    program = program_of(4, restart=OFTEN, resources=lp.Resources(cpus=1))

    simulation = lp.simulate(program, hosts=hosts, restart=OFTEN, until_s=20 * DAY_S)

    waits = next(event for event in simulation.history if event.what == "waits")
    later = [e for e in simulation.of(waits.subject) if e.at_s > waits.at_s]
    repairs = [event.at_s for event in simulation.history if event.what == "repaired"]
    assert later[0].what == "starts"
    assert later[0].at_s in repairs


def test_a_group_that_does_not_fit_is_refused_with_the_arithmetic() -> None:
    program = program_of(6, resources=lp.Resources(cpus=2, gpus=1))

    with pytest.raises(lp.DefinitionError, match=r"worker 6×2 CPUs = 12 CPUs, .* have 8 CPUs\."):
        lp.simulate(program, hosts=lp.SimulatedHosts(2, cpus=4))
    with pytest.raises(lp.DefinitionError, match=r"worker 6×1 GPU = 6 GPUs, .* have 4 GPUs\."):
        lp.simulate(program, hosts=[lp.SimulatedHosts(2, gpus=0), lp.SimulatedHosts(4, gpus=1)])
    with pytest.raises(
        lp.DefinitionError, match="worker-0 asks for 2 CPUs, 1 GPU, and none of the 12"
    ):
        lp.simulate(program, hosts=lp.SimulatedHosts(12, cpus=1))


# --- random numbers ------------------------------------------------------------------------------


def history_of(seed: int, **options: Any) -> tuple[SimulatedEvent, ...]:
    hosts = lp.SimulatedHosts(3, mtbf_s=7 * DAY_S)
    failures = {"worker": DAY_S}
    options = {"restart": OFTEN, **options}
    simulation = lp.simulate(program_of(), hosts=hosts, failures=failures, seed=seed, **options)
    return simulation.history


def test_the_same_seed_gives_the_same_history_and_another_seed_another_one() -> None:
    assert history_of(1) == history_of(1)
    assert history_of(1) != history_of(2)


def test_hosts_fail_at_the_same_times_whatever_the_policy() -> None:
    def times(history: tuple[SimulatedEvent, ...]) -> list[tuple[float, str]]:
        return [(event.at_s, event.subject) for event in history if event.what == "fails"]

    slow = lp.RestartPolicy(max_restarts=1000, backoff=30, scope="group")

    assert history_of(1) != history_of(1, restart=slow)
    assert times(history_of(1)) == times(history_of(1, restart=slow))


def test_hosts_and_workers_fail_as_often_as_they_are_said_to() -> None:
    simulation = lp.simulate(
        program_of(20),
        hosts=lp.SimulatedHosts(50, mtbf_s=7 * DAY_S, repair_s=60),
        failures={"worker": 2 * DAY_S},
        restart=OFTEN,
        until_s=100 * DAY_S,
    )

    of_hosts = sum(event.what == "fails" for event in simulation.history)
    of_workers = sum(event.what == "failed" for event in simulation.history)
    assert of_hosts == pytest.approx(50 * 100 / 7, rel=0.1)
    assert of_workers == pytest.approx(20 * 100 / 2, rel=0.1)


# --- mistakes and the report ---------------------------------------------------------------------


def test_mistakes_in_a_program_are_those_of_a_plan() -> None:
    program = lp.Program("locked")
    program.add_node(lp.PyNode(print, threading.Lock()), label="main")

    with pytest.raises(lp.PayloadError) as of_plan:
        lp.plan(program, "test_mt")
    with pytest.raises(lp.PayloadError) as of_simulation:
        lp.simulate(program)

    assert str(of_simulation.value) == str(of_plan.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"run_s": {"wroker": 1}}, "run_s names 'wroker', .* Did you mean 'worker'?"),
        ({"start_s": {"worker": -1}}, r"start_s\['worker'\]=-1: expected seconds"),
        ({"failures": {"worker-9": 1}}, "failures names 'worker-9'"),
        ({"failures": {"worker": 0}}, "expected the mean time between failures"),
        ({"hosts": []}, "hosts=.*: expected lp.SimulatedHosts"),
        ({"until_s": math.inf}, "until_s=inf: expected seconds"),
        ({"seed": 1.5}, "seed=1.5: expected a whole number"),
    ],
)
def test_a_bad_argument_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(lp.DefinitionError, match=text):
        lp.simulate(program_of(), **options)


def test_bad_hosts_are_refused_where_they_are_made() -> None:
    with pytest.raises(lp.DefinitionError, match="count=0"):
        lp.SimulatedHosts(0)
    with pytest.raises(lp.DefinitionError, match="memory='lots'"):
        lp.SimulatedHosts(1, memory="lots")


def test_a_result_is_printed_as_a_table_with_the_first_cause() -> None:
    policy = lp.RestartPolicy(max_restarts=1)

    simulation = lp.simulate(
        program_of(2, restart=policy), run_s={"worker": 60}, failures={"worker-1": [5, 5]}
    )

    assert str(simulation).splitlines() == [
        "simulation of program 'simulated' with seed 0: it has failed after 12 s",
        "  GROUP   WORKERS  STARTS  FAILURES  RESTARTS  AVAILABLE  WORK LOST",
        "  table         1       1         0         0    91.667%        0 s",
        "  worker        2       3         2         1    87.500%       10 s",
        "  messages: 7 commands, 8 events",
        "  worker-1 failed in run (attempt 2): a simulated failure",
        "  hint: not started again: it had 1 of the restarts that its policy allows (max_restarts=1,"
        " within_s=60)",
    ]
    with pytest.raises(KeyError, match="no group 'actor'"):
        simulation.group("actor")


# --- agreement with real runs --------------------------------------------------------------------


@pytest.mark.timing
def test_real_runs_go_as_their_simulations_do() -> None:
    """The ends of all attempts of all workers; only failures that no delay could put in another order."""
    drawn = map(drawn_failures.draw, range(80))
    comparisons = [comparison for comparison in drawn if comparison.margin_s > 0.12][:10]

    real = drawn_failures.run_really(comparisons, "test_mt")

    simulated = [comparison.simulated for comparison in comparisons]
    assert real == simulated
    assert {ends.program for ends in simulated} == {"succeeded", "failed"}
    assert sum(len(ends) > 1 for run in simulated for ends in run.workers.values()) > 10
