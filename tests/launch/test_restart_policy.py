"""The decision whether a worker is started again: a table, and what a policy refuses to be."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import launchpad as lp
from launchpad.launch.supervision.restart import Reason, RestartAction, decide
from launchpad.outcome import FAILED, LOST, PHASES, STOPPED, SUCCEEDED, Outcome
from launchpad.restart_policy import MODES, SCOPES
from tests.helpers.programs import single

NOW = 1000.0
WINDOW_S = 10.0
EDGES = {
    "none before": ([], 0),
    "one left": ([NOW - 1], 1),
    "none left": ([NOW - 2, NOW - 1], 2),
    "the first just left the window": ([NOW - WINDOW_S, NOW - 1], 1),
    "the first is just within it": ([NOW - WINDOW_S + 0.001, NOW - 1], 2),
    "all long ago": ([1.0, 2.0, 3.0], 0),
}


def policy(**options: Any) -> lp.RestartPolicy:
    return lp.RestartPolicy(**{"max_restarts": 2, "within_s": WINDOW_S, "backoff": 0.5, **options})


def expected_for_failure(mode: str, phase: str, n_before: int) -> tuple[RestartAction, Reason]:
    if mode == "never":
        return RestartAction.GIVE_UP, Reason.NO_POLICY
    if phase == "import":
        return RestartAction.GIVE_UP, Reason.CANNOT_IMPORT
    if n_before >= 2:
        return RestartAction.GIVE_UP, Reason.TOO_OFTEN
    return RestartAction.RESTART, Reason.FAILED


@pytest.mark.parametrize(("mode", "phase", "edge"), list(itertools.product(MODES, PHASES, EDGES)))
def test_a_failure_is_restarted_as_its_policy_says(mode: str, phase: str, edge: str) -> None:
    before, n_before = EDGES[edge]
    failed = Outcome("a-0", FAILED, phase)

    decision = decide(policy(mode=mode), failed, before, NOW)

    assert (decision.action, decision.reason) == expected_for_failure(mode, phase, n_before)
    assert decision.delay_s == (
        0.5 if decision.action is RestartAction.RESTART and n_before else 0.0
    )


@pytest.mark.parametrize(
    ("mode", "kind", "is_stopping", "verdict", "reason"),
    [
        ("never", SUCCEEDED, False, RestartAction.LEAVE, Reason.WORK_IS_DONE),
        ("on_failure", SUCCEEDED, False, RestartAction.LEAVE, Reason.WORK_IS_DONE),
        ("always", SUCCEEDED, False, RestartAction.RESTART, Reason.ALWAYS),
        ("never", SUCCEEDED, True, RestartAction.LEAVE, Reason.WORK_IS_DONE),
        ("on_failure", SUCCEEDED, True, RestartAction.LEAVE, Reason.WORK_IS_DONE),
        ("always", SUCCEEDED, True, RestartAction.LEAVE, Reason.WORK_IS_DONE),
        ("never", STOPPED, False, RestartAction.LEAVE, Reason.REQUESTED),
        ("on_failure", STOPPED, True, RestartAction.LEAVE, Reason.REQUESTED),
        ("always", STOPPED, True, RestartAction.LEAVE, Reason.REQUESTED),
        ("always", STOPPED, False, RestartAction.LEAVE, Reason.REQUESTED),
        ("never", FAILED, True, RestartAction.GIVE_UP, Reason.STOPPING),
        ("on_failure", FAILED, True, RestartAction.LEAVE, Reason.STOPPING),
        ("always", FAILED, True, RestartAction.LEAVE, Reason.STOPPING),
        ("never", LOST, False, RestartAction.GIVE_UP, Reason.NO_POLICY),
        ("on_failure", LOST, False, RestartAction.RESTART, Reason.FAILED),
        ("always", LOST, False, RestartAction.RESTART, Reason.FAILED),
        ("always", LOST, True, RestartAction.LEAVE, Reason.STOPPING),
    ],
)
def test_other_ends_are_judged_by_kind_and_by_what_the_program_does(
    mode: str, kind: str, is_stopping: bool, verdict: RestartAction, reason: Reason
) -> None:
    decision = decide(policy(mode=mode), Outcome("a-0", kind), [], NOW, is_stopping=is_stopping)

    assert (decision.action, decision.reason) == (verdict, reason)


@pytest.mark.parametrize("mode", ["on_failure", "always"])
@pytest.mark.parametrize("scope", SCOPES)
def test_who_asks_not_to_be_started_again_is_not(mode: str, scope: str) -> None:
    failed = Outcome("a-0", FAILED, may_restart=False)

    decision = decide(policy(mode=mode, scope=scope), failed, [], NOW)

    assert (decision.action, decision.reason) == (RestartAction.GIVE_UP, Reason.OPTED_OUT)


@pytest.mark.parametrize("how", [{"signal": "SIGKILL"}, {"error_type": "StartTimeout"}])
def test_whose_import_is_cut_short_may_be_started_again(how: dict[str, str]) -> None:
    cut_short = Outcome("a-0", FAILED, "import", **how)  # type: ignore[arg-type]

    assert decide(policy(), cut_short, [], NOW).action is RestartAction.RESTART


def test_a_failure_that_no_restart_would_cover_counts_also_while_the_program_stops() -> None:
    failed = Outcome("a-0", FAILED, may_restart=False)

    decision = decide(policy(), failed, [], NOW, is_stopping=True)

    assert (decision.action, decision.reason) == (RestartAction.GIVE_UP, Reason.STOPPING)


def test_the_first_restart_is_immediate_and_each_further_one_waits_twice_as_long() -> None:
    patient = lp.RestartPolicy(max_restarts=99, backoff=0.5)

    assert [patient.delay_s(n) for n in range(5)] == [0, 0.5, 1, 2, 4]
    assert patient.delay_s(50) == 30
    assert lp.RestartPolicy(backoff=100).delay_s(9) == 100


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "sometimes"}, r"mode='sometimes'.*never, on_failure, always"),
        ({"scope": "host"}, r"scope='host'.*worker, group, program"),
        ({"max_restarts": -1}, "max_restarts=-1"),
        ({"max_restarts": True}, "max_restarts=True"),
        ({"within_s": 0}, "within_s=0"),
        ({"within_s": "60"}, "within_s='60'"),
        ({"backoff": -0.1}, "backoff=-0.1"),
        ({"start_timeout_s": 0}, "start_timeout_s=0"),
        ({"stop_grace_s": float("nan")}, "stop_grace_s=nan"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_at_its_line(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(lp.DefinitionError, match=says):
        lp.RestartPolicy(**options)


def test_a_main_group_that_never_ends_is_refused() -> None:
    always = lp.RestartPolicy(mode="always")

    with pytest.raises(lp.DefinitionError, match="it never would"):
        single(lp.PyNode(print), main=True, restart=always)
    with pytest.raises(lp.DefinitionError, match="it never would"):
        lp.plan(single(lp.PyNode(print), main=True), "local_mt", restart=always)


def test_a_policy_is_of_a_group_and_one_given_at_launch_counts_more() -> None:
    program = lp.Program("policies")
    with program.group("a", restart=lp.RestartPolicy(max_restarts=1)):
        program.add_node(lp.PyNode(print))
    program.add_node(lp.PyNode(print), label="b")
    at_launch = lp.RestartPolicy(max_restarts=7)

    def restarts(**options: Any) -> list[tuple[str, int]]:
        plan = lp.plan(program, "local_mt", **options)
        policies = [worker.policy.restart for worker in plan.workers]
        return [(policy.mode, policy.max_restarts) for policy in policies]

    assert restarts() == [("on_failure", 1), ("never", 3)]
    assert restarts(restart={"b": at_launch}) == [("on_failure", 1), ("on_failure", 7)]
    assert restarts(restart=at_launch) == [("on_failure", 7), ("on_failure", 7)]


def test_what_is_no_policy_is_refused() -> None:
    wrong: Any = "on_failure"

    with pytest.raises(lp.DefinitionError, match=r"takes lp.RestartPolicy"):
        single(lp.PyNode(print), restart=wrong)
