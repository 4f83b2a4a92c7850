"""Who calls, when groups end, what hangs, and what goes over edges, on every backend."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import launchpad as lp
from tests.helpers import group_nodes
from tests.waiting import until

DEADLINE_S = 90
AT_ONCE = lp.RestartPolicy(max_restarts=5, backoff=0)


# --- callers -----------------------------------------------------------------------------------


def test_a_method_knows_which_worker_calls_and_whether_it_is_gone(launch_type: str) -> None:
    program = lp.Program("callers")
    desk = program.add_node(lp.CourierNode(group_nodes.Desk), label="desk")
    with program.group("signer", restart=AT_ONCE):
        for _ in range(2):
            program.add_node(lp.PyNode(group_nodes.sign_and_die_once, desk))
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")

    with lp.launch(program, launch_type) as running:
        client: Any = running.client("desk")
        of_script = client.sign()
        signed = running.results("signer", DEADLINE_S)
        until(lambda: sorted(client.gone()) == [False, *[True] * 4])  # the script's; both attempts'
        until(lambda: sorted(client.ends()) == ["signer-0", "signer-1"])

    assert of_script[0].startswith("pid ")
    assert of_script[1:4] == ("", 0, 0)
    for index, ((*names, incarnation), later, stream) in enumerate(signed):
        assert names == [f"signer-{index}", "signer", index, 2]
        assert len(incarnation) == 32
        assert (later, stream) == (f"signer-{index}", [f"signer-{index}"] * 2)
    assert signed[0][0][4] != signed[1][0][4]


# --- the ends of groups ------------------------------------------------------------------------


def test_workers_of_a_group_serve_each_other_meet_and_wait_for_services(launch_type: str) -> None:
    program = lp.Program("groups")
    nodes = [lp.CourierNode(group_nodes.Rank) for _ in range(3)]
    for node in nodes:
        node.configure(*(other.create_handle() for other in nodes if other is not node))
    with program.group("rank", serves_until="group"):
        for node in nodes:
            program.add_node(node)
    with program.group("meeting"):
        for _ in range(3):
            program.add_node(lp.PyNode(group_nodes.meet, 5))
    with program.group("broken"):
        for _ in range(2):
            program.add_node(lp.PyNode(group_nodes.meet_one_who_has_left))
    with program.group("late"):
        for _ in range(2):
            program.add_node(lp.PyNode(group_nodes.come_late_once))
    address = lp.Address("service")
    service = lp.PyNode(group_nodes.listen_after_a_while, address)
    service.allocate_address(address)
    program.add_node(service, label="service")
    program.add_node(lp.PyNode(group_nodes.connect, address), label="visitor")

    with lp.launch(program, launch_type) as running:
        labels = ["rank", "meeting", "broken", "late", "visitor"]
        results = {label: running.results(label, DEADLINE_S) for label in labels}
        until(lambda: running.status()[0].state == "succeeded")  # before the program stops

    everyone = {"rank-0", "rank-1", "rank-2"}
    assert [set(names) for names in results["rank"]] == [
        everyone - {name} for name in sorted(everyone)
    ]
    assert results["meeting"] == [5, 5, 5]
    assert "broken-0 cannot pass barrier 'never': broken-1" in results["broken"][0]
    assert "absent: late-1" in results["late"][0]
    assert results["visitor"] == [True]
    assert {s.state for s in running.status() if s.label == "rank"} == {"succeeded"}


def test_a_worker_that_falls_silent_leaves_its_stacks_and_is_restarted(launch_type: str) -> None:
    policy = lp.RestartPolicy(
        heartbeat_s=2.0 if launch_type in ("test_mt", "test_mp") else 8.0, backoff=0
    )
    program = lp.Program("silent")
    kinds = (
        ["asleep"] if launch_type == "test_mt" else ["asleep", "in C"]
    )  # which stops all threads
    with program.group("worker", restart=policy):
        for how in kinds:
            program.add_node(lp.PyNode(group_nodes.fall_silent_once, how))

    with lp.launch(program, launch_type) as running:
        assert running.results("worker", DEADLINE_S) == [2] * len(kinds)
        for index in range(len(kinds)):
            log = running.logs(f"worker-{index}")
            until(lambda log=log: "fall_silent_once" in log)


# --- edges -------------------------------------------------------------------------------------


def test_edges_count_all_calls_exactly_and_hold_messages_up(launch_type: str) -> None:
    is_shared = launch_type == "test_mt"
    program = lp.Program("edges")
    with program.group("adder"):
        adders = [program.add_node(lp.CourierNode(group_nodes.Adder)) for _ in range(2)]
    with program.group("caller"):
        for adder in adders:
            program.add_node(lp.PyNode(group_nodes.add_often, adder, 1000))
    if not is_shared:  # a thread cannot be killed
        killed = lp.PyNode(group_nodes.add_and_be_killed_once, adders[1], 30)
        with program.group("killed", restart=AT_ONCE):
            program.add_node(killed)
    slow = adders[0].through(lp.edges.Delay(0.02))
    program.add_node(lp.PyNode(group_nodes.add_often, slow, 10), label="slow")
    program.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")

    with lp.launch(program, launch_type) as running:
        before = running.metrics(DEADLINE_S)
        running.wait(DEADLINE_S, labels=program.groups.keys() - {"adder", "keeps"})
        until(lambda: {s.worker: s.state for s in running.status()}["keeps-0"] == "running")
        assert len(running.client("adder").names()) == 1010
        now = running.metrics(DEADLINE_S)
        assert now.edges.total(caller="caller", server="adder-1", method="add").calls == 1000
    edges = running.edges()

    workers = {worker.worker: worker for worker in now.since(before).workers}
    assert {name for name, worker in workers.items() if worker.process} == {
        "adder-0",
        "adder-1",
        "keeps-0",
    }
    for worker in workers.values():
        assert worker.state == ("running" if worker.process else "succeeded")
        assert worker.process is None or worker.process.memory_bytes > 1e6
        assert worker.process is None or worker.process.is_shared is is_shared
    assert workers["adder-0"].process.cpu_percent > 0
    assert (now.silent, now.is_exact) == ((), is_shared)
    rows = {(row.caller, row.server): row for row in edges.of(method="add")}
    counted = {place: (r.calls, r.served, r.errors, r.in_flight) for place, r in rows.items()}
    of_killed = {} if is_shared else {("killed-0", "adder-1"): (60, 60, 0, 0)}
    assert counted == {
        ("caller-0", "adder-0"): (1000, 1000, 0, 0),
        ("caller-1", "adder-1"): (1000, 1000, 0, 0),
        ("slow-0", "adder-0"): (10, 10, 0, 0),
        **of_killed,
    }
    assert edges.total(method="names").calls == 1  # the script's
    assert edges.total().is_exact is is_shared
    assert [place for place, row in rows.items() if not row.is_exact] == [*of_killed]
    of_slow = rows["slow-0", "adder-0"]
    assert of_slow.waiting_s >= 10 * 0.02
    assert of_slow.p50_s >= 0.016  # of a bucket from 16 to 33 ms
    assert of_slow.bytes_sent > of_slow.bytes_received > 0
    assert re.search(r"caller-1 +adder-1 +add +1,000 ", str(edges))


def test_a_recorded_order_of_calls_gives_the_same_bits(launch_type: str, tmp_path: Path) -> None:
    def program(ordering: Any) -> lp.Program:
        made = lp.Program("order")
        adder = made.add_node(lp.CourierNode(group_nodes.Adder), label="adder")
        with made.group("caller"):
            for _ in range(3):
                made.add_node(lp.PyNode(group_nodes.add_often, adder.through(ordering), 30))
        made.add_node(lp.PyNode(lp.wait_for_stop), label="keeps")
        return made

    orders, values = [], []
    for kind in (lp.edges.Record, lp.edges.Replay):
        with lp.launch(program(kind(tmp_path / "recorded")), launch_type) as running:
            values.append(running.results("caller", DEADLINE_S))
            orders.append(running.client("adder").names())

    assert orders[0] == orders[1]
    assert values[0] == values[1]
