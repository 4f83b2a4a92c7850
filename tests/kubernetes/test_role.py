"""The Role of the page is enough for what users do, and not too much; with a cluster that is not there."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import launchpad as lp
from launchpad.launch.backends.kubernetes.api.client import Manifest
from launchpad.launch.backends.kubernetes.detached import launcher_state, runs
from launchpad.outcome import FAILED, SUCCEEDED, Outcome
from launchpad.runtime.events import Ended
from tests import nodes
from tests.kubernetes.fake_cluster import Account, FakeCluster
from tests.kubernetes.test_detached import RECORD, Leaving, answering
from tests.kubernetes.test_discovery import Left
from tests.kubernetes.test_supervision import RESTARTS, OnFake, begin, commands_of, launched
from tests.waiting import until

DEADLINE_S = 20.0
ROLE = Path(__file__).parents[2] / "docs" / "snippets" / "on_kubernetes" / "role.yaml"


def parts() -> list[list[Manifest]]:
    """The rules for launches, those to detach a program, and those to ask its supervisor."""
    texts = re.split(r"(?m)^# for .*\n", ROLE.read_text())
    return [yaml.safe_load(texts[0])["rules"], *map(yaml.safe_load, texts[1:])]


LAUNCH, DETACH, ASK = parts()


@pytest.fixture
def pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def rights(rules: Sequence[Manifest]) -> set[tuple[str, str, str]]:
    triples = (
        itertools.product(rule["verbs"], rule["apiGroups"], rule["resources"]) for rule in rules
    )
    return set(itertools.chain(*triples))


def program_of_two() -> lp.Program:
    """One worker serves until it ends, and another one is told of that."""
    program = lp.Program("two")
    program.add_node(lp.CourierNode(nodes.ServesBriefly), label="server")
    with program.group("loop", restart=RESTARTS):
        program.add_node(lp.PyClassNode(nodes.Loop))
    return program


def launch(cluster: FakeCluster, backend: OnFake) -> None:
    """Launches two programs, whose launchers have to do all that they ever do."""
    with launched(cluster, program_of_two(), backend) as running:
        server = begin(cluster, "server-0")
        loop = begin(cluster)
        cluster.write(loop, "one")
        until(lambda: running.logs("loop") == "one\n")
        cluster.report(server, Ended(Outcome("server-0", SUCCEEDED)))
        cluster.end(server)
        until(lambda: "server-0" in commands_of(cluster, loop).gone)
        cluster.report(loop, Ended(Outcome("loop-0", FAILED)))
        cluster.pod("loop-0", attempt=2)
    cluster.no_pods = "no quota"
    with (
        launched(cluster, program_of_two(), backend) as refused,
        pytest.raises(lp.ProgramFailed, match="no quota"),
    ):
        refused.wait(DEADLINE_S)
    cluster.no_pods = ""


def test_launches_and_all_that_finds_them_need_the_first_part_of_the_role_and_all_of_it(
    cluster: FakeCluster,
) -> None:
    account = Account(cluster, LAUNCH)

    launch(cluster, OnFake(account, pending_timeout_s=0.5))
    left = Left(account)
    left.start("loop-0")
    pod = cluster.pod("loop-0")
    cluster.run(pod)
    cluster.write(pod, "two")
    (found,) = runs.find(account)
    assert found.status()[0].state == "running"
    assert found.logs("loop-0") == "two\n"
    found.ask_to_stop(at_once=True)
    cluster.end(pod)
    found.wait(DEADLINE_S)

    assert cluster.objects == {}
    assert account.used == rights(LAUNCH)


def test_a_launch_and_what_finds_it_read_and_list_no_secrets() -> None:
    of_secrets = {verb for verb, _, resource in rights(LAUNCH) if resource == "secrets"}

    assert of_secrets == {"create"}


def test_a_program_is_detached_and_stopped_with_the_next_part_too(
    cluster: FakeCluster, pool: Executor
) -> None:
    account = Account(cluster, LAUNCH + DETACH)
    leaving = Leaving(cluster, pool, account)
    cluster.run(leaving.pod)
    leaving.tell(launcher_state.LAUNCHED, RECORD)
    left = leaving.result()
    with pytest.raises(lp.LaunchError, match="you may not get secrets, delete secrets"):
        left.stacks(["loop-0"])

    left.ask_to_stop()
    leaving.tell_end(stopped=["loop-0", "loop-1"])
    left.wait(DEADLINE_S)

    assert cluster.objects == {}
    assert account.used >= rights(DETACH)


def test_the_supervisor_is_asked_with_the_last_part_too(
    cluster: FakeCluster, pool: Executor
) -> None:
    account = Account(cluster, LAUNCH + DETACH + ASK)
    leaving = Leaving(cluster, pool, account)
    cluster.run(leaving.pod)
    leaving.tell(launcher_state.LAUNCHED, RECORD)
    left = leaving.result()

    with answering(leaving):
        assert left.stacks(["loop-0"]).keys() == {"loop-0"}

    assert account.used >= rights(ASK)


def test_the_supervisor_s_own_role_is_enough_for_its_launch_and_no_part_of_it_is_too_much(
    cluster: FakeCluster, pool: Executor
) -> None:
    leaving = Leaving(cluster, pool)
    leaving.tell(launcher_state.LAUNCHED, RECORD)
    leaving.result()
    rules = leaving.only("Role")["rules"]
    account = Account(cluster, rules)
    supervisor = leaving.launcher_pod(account)

    supervisor._annotate(launcher_state.LAUNCHED, RECORD)
    backend = OnFake(account, pending_timeout_s=0.5)
    backend.submitter = replace(supervisor._spec.submitter, owner=supervisor._own())
    launch(cluster, backend)

    assert account.used == rights(rules)
