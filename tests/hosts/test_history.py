"""Calls between hosts that fail at random: a short run of the checker of `benchmarks/hosts.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from benchmarks.between_hosts import faults, pair, verdict
from benchmarks.between_hosts.pair import Pair, PairHistory
from launchpad.testing import History
from launchpad.testing.call_history import OK
from tests.hosts.network import Network

SEED = 1
LONGEST_S = 4.0


class Run(NamedTuple):
    """Pairs of hosts that have had a fault each, and what they had recorded then."""

    pairs: list[Pair]
    histories: list[PairHistory]


@pytest.fixture(scope="module")
def run(hosts_are_possible: None) -> Iterator[Run]:
    """Let one pair of hosts for each kind of fault have that fault."""
    n_pairs = len(faults.KINDS)
    schedules = faults.draw(SEED, list(faults.KINDS), n_pairs, n_pairs, LONGEST_S)
    with Network(2 * n_pairs) as network:
        pairs = pair.run(network, schedules, SEED)
        yield Run(pairs, [each.history() for each in pairs])


def test_no_call_is_lost_or_runs_twice_while_hosts_have_faults_of_all_kinds(run: Run) -> None:
    report = verdict.judge(run.histories, faults.KINDS)

    hosts = report["hosts"]
    assert hosts["calls"] > 1000
    assert hosts["fewest_in_flight"] >= 1
    assert {kind: figures["faults"] for kind, figures in report["kinds"].items()} == dict.fromkeys(
        faults.KINDS, 1
    )
    wrong = (
        "lost",
        "twice",
        "run_all_the_same",
        "unanswered",
        "unexplained",
        "lost_by_freeze",
    )
    complaints = list(verdict.complaints(run.histories))
    assert {name: hosts[name] for name in wrong} == dict.fromkeys(wrong, 0), complaints


def test_a_planted_loss_and_a_planted_double_on_the_hosts_disks_are_found(run: Run) -> None:
    planted_in = run.pairs[0]
    calls = run.histories[0].calls
    answered = next(call_id for call_id, call in calls.items() if call.outcome == OK)

    with History(planted_in.caller_record).call("blocking/planted"):
        pass  # acknowledged, although nothing was sent
    History(planted_in.server_record).ran(answered)
    history = planted_in.history()

    hosts = verdict.judge([history], faults.KINDS)["hosts"]
    assert (hosts["lost"], hosts["twice"]) == (1, 1)
    complaints = "\n".join(verdict.complaints([history]))
    assert "acknowledged, and never run: blocking/planted" in complaints
    assert f"run twice: {answered}" in complaints
