"""Supervisor and policies together, driven at random, against a model that only keeps books."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from launchpad.launch.plan import LaunchPlan, WorkerPlan, WorkerPolicy
from launchpad.launch.supervision import roster
from launchpad.launch.supervision.supervisor import Supervisor
from launchpad.launch.supervision.worker_state import Decided
from launchpad.outcome import FAILED, LOST, STOPPED, SUCCEEDED, Outcome
from launchpad.restart_policy import NO_RESTARTS, RestartPolicy
from launchpad.runtime.commands import KillWorker, StartWorker, StopWorker
from launchpad.runtime.events import Ended, Ready, StopRequested

GRACE_S = 3.0
POLICIES = {
    "single": RestartPolicy(max_restarts=2, within_s=10, backoff=0.5),
    "slow": RestartPolicy(max_restarts=2, within_s=10, start_timeout_s=2.0),
    "ranks": RestartPolicy(max_restarts=2, within_s=10, scope="group"),
    "always": RestartPolicy(mode="always", max_restarts=3, within_s=10, backoff=0),
    "root": RestartPolicy(max_restarts=1, within_s=10, scope="program"),
    "plain": NO_RESTARTS,
}
SIZES = {"ranks": 3, "plain": 2}
NAMES = [f"{group}-{i}" for group in POLICIES for i in range(SIZES.get(group, 1))]


def group_of(name: str) -> str:
    return name.rpartition("-")[0]


def plan_of(name: str) -> WorkerPlan:
    group, _, index = name.rpartition("-")
    policy = WorkerPolicy(POLICIES[group])
    return WorkerPlan(name, group, int(index), 1, "Node", 0, policy=policy)


class Model(RuleBasedStateMachine):
    """The workers as a backend would have them: who lives, in which attempt, what it was told."""

    def __init__(self) -> None:
        super().__init__()
        plans = tuple(plan_of(name) for name in NAMES)
        self.supervisor = Supervisor(LaunchPlan("p", "local_mt", plans), GRACE_S)
        self.now = 100.0
        self.live: dict[str, int] = {}
        self.attempts: dict[str, int] = defaultdict(int)
        self.asked: set[str] = set()
        self.killed: set[str] = set()
        self.restarts: dict[str, list[float]] = defaultdict(list)
        self.not_before: dict[str, float] = defaultdict(float)
        self.returning: set[str] = set()
        self.must_fail = False
        self.execute_in_order(self.supervisor.start_all(self.now))

    def execute_in_order(self, commands: list[Decided]) -> None:
        for command in commands:
            if isinstance(command, StartWorker):
                self.start(command)
            elif isinstance(command, StopWorker):
                assert command.worker in self.live
                assert command.restarts is not self.supervisor.is_stopping
                self.asked.add(command.worker)
            elif isinstance(command, KillWorker):
                assert command.worker in self.live, "killed twice, or when it was dead"
                self.killed.add(command.worker)

    def start(self, command: StartWorker) -> None:
        name = command.worker
        assert name not in self.live, "two attempts at a time"
        assert not self.supervisor.is_stopping
        assert command.attempt == self.attempts[name] + 1
        assert self.now >= self.not_before[name], "before its time"
        self.returning.discard(name)
        self.attempts[name] = command.attempt
        self.live[name] = command.attempt

    def end(self, name: str, kind: str) -> None:
        attempt = self.live.pop(name)
        was_killed = name in self.killed
        self.asked.discard(name)
        self.killed.discard(name)
        if not self.supervisor.is_stopping and name not in self.returning:
            late = was_killed and kind == STOPPED
            self.keep_books(name, FAILED if late else kind)
        self.execute_in_order(
            self.supervisor.on(Ended(Outcome(name, kind, attempt=attempt)), self.now)
        )

    def keep_books(self, name: str, kind: str) -> None:
        policy = POLICIES[group_of(name)]
        is_failure = kind in (FAILED, LOST)
        if not is_failure and policy.mode != "always":
            return
        if policy.mode == "never":
            self.must_fail = True
            return
        books = self.restarts[
            {"worker": name, "group": group_of(name)}.get(policy.scope, "everybody")
        ]
        recent = [at for at in books if self.now - at < policy.within_s]
        if len(recent) >= policy.max_restarts:
            self.must_fail = True
            return
        books.append(self.now)
        wait_s = 0.0 if not recent else policy.backoff * 2 ** (len(recent) - 1)
        self.not_before[name] = self.now + wait_s
        everybody = policy.scope == "program"
        group = group_of(name) if policy.scope == "group" else ""
        self.returning |= {n for n in NAMES if everybody or n == name or group_of(n) == group}

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def a_worker_is_ready(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.live)))
        self.execute_in_order(self.supervisor.on(Ready(name, self.live[name], True), self.now))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), kind=st.sampled_from([FAILED, FAILED, LOST, SUCCEEDED]))
    def a_worker_ends_by_itself(self, data: st.DataObject, kind: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.live)))
        self.end(name, kind)

    @precondition(lambda self: self.asked | self.killed)
    @rule(data=st.data())
    def a_worker_stops_as_it_was_told(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted((self.asked | self.killed) & set(self.live))))
        self.end(name, STOPPED)

    @rule(seconds=st.sampled_from([0.01, 0.25, 0.5, 1.0, 4.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        until = self.now + seconds
        while (wake_at := self.supervisor.wake_at()) is not None and wake_at <= until:
            self.now = max(self.now, wake_at)
            self.execute_in_order(self.supervisor.tick(self.now))
            assert self.supervisor.wake_at() != wake_at, "it would spin"
        self.now = until
        self.execute_in_order(self.supervisor.tick(self.now))

    @rule(data=st.data())
    def an_old_attempt_speaks(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(NAMES))
        attempt = self.attempts[name] - 1
        before = self.supervisor.workers[name].state
        self.execute_in_order(self.supervisor.on(Ready(name, attempt, True), self.now))
        self.execute_in_order(
            self.supervisor.on(Ended(Outcome(name, FAILED, attempt=attempt)), self.now)
        )
        assert self.supervisor.workers[name].attempt == self.attempts[name]
        if name in self.live:
            assert self.supervisor.workers[name].state in (before, "stopping", "starting")

    @precondition(lambda self: not self.supervisor.is_stopping)
    @rule(name=st.sampled_from(NAMES))
    def the_user_restarts_a_worker(self, name: str) -> None:
        scope = POLICIES[group_of(name)].scope
        members = {
            n
            for n in NAMES
            if n == name
            or scope == "program"
            or (scope == "group" and group_of(n) == group_of(name))
        }
        self.returning |= members
        self.not_before.clear()  # those that wait with them wait no longer

        self.execute_in_order(self.supervisor.restart(name, "as asked", self.now))

        workers = self.supervisor.workers
        assert all(workers[n].restart_reason or n in self.live for n in members)
        assert not any(workers[n].state == "ended" for n in members)

    @precondition(lambda self: not self.supervisor.is_stopping)
    @rule(who=st.sampled_from(["the script", "the script at once", "a worker"]))
    def it_is_stopped(self, who: str) -> None:
        if who == "a worker":
            self.execute_in_order(self.supervisor.on(StopRequested(NAMES[0]), self.now))
        else:
            at_once = who.endswith("at once")
            self.execute_in_order(self.supervisor.stop("the script", self.now, at_once))

    @invariant()
    def it_fails_exactly_when_no_policy_covers_a_failure(self) -> None:
        if self.must_fail:
            assert self.supervisor.failures
        elif not self.supervisor.is_stopping:
            assert not self.supervisor.failures

    @invariant()
    def it_knows_who_runs(self) -> None:
        alive = {name for name, w in self.supervisor.workers.items() if w.is_alive}
        assert alive == set(self.live)

    @invariant()
    def it_is_over_when_it_stops_and_none_runs(self) -> None:
        if self.supervisor.is_stopping:
            assert self.supervisor.is_over is (not self.live)

    @invariant()
    def who_ended_is_either_done_or_waits_for_its_turn(self) -> None:
        for name, watched in self.supervisor.workers.items():
            if name not in self.live:
                assert watched.state in ("ended", "restarting")

    @invariant()
    def its_counts_are_those_of_its_workers(self) -> None:
        workers = self.supervisor.workers.values()
        for fact, holds in roster._FACTS.items():
            assert self.supervisor._roster.count(fact) == sum(map(holds, workers)), fact

    def teardown(self) -> None:
        """However it went: a stop ends it within the grace period."""
        self.execute_in_order(self.supervisor.stop("the test", self.now))
        deadline = self.now + GRACE_S + 1.0
        while self.now < deadline and self.live:
            self.now += 0.1
            self.execute_in_order(self.supervisor.tick(self.now))
            for name in sorted(self.killed):
                self.end(name, STOPPED)
        assert self.supervisor.is_over


Model.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestSupervisor = Model.TestCase


@pytest.mark.endurance
class TestSupervisorForLong(Model.TestCase):  # type: ignore[misc]
    settings = settings(max_examples=1000, stateful_step_count=40)
