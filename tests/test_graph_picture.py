"""Pictures of programs: a box per group, an arrow per pair of groups."""

from __future__ import annotations

import launchpad as lp
from launchpad.graph_picture import dot, mermaid
from tests import nodes


def make_program() -> lp.Program:
    program = lp.Program('a "program"')
    counter = program.add_node(lp.CourierNode(nodes.Counter), label="the.counter")
    queue = program.add_node(lp.QueueNode[int](10), label="queue")
    for _ in range(3):
        program.add_node(lp.PyNode(lambda _: None, counter), label="main")
    for _ in range(2):
        served = lp.CourierNode(nodes.Counter)
        caller = lp.PyNode(print, served.create_handle(), queue)
        program.add_node(lp.MultiProcessingColocation([served, caller]), label="trainer")
    return program


MERMAID = """\
flowchart LR
    g_the_2e_counter("the.counter<br/>CourierNode(Counter)")
    g_queue[("queue<br/>QueueNode(maxsize=10, producers=None)")]
    g_main["main ×3<br/>PyNode(#lt;lambda#gt;)"]
    subgraph g_trainer_["trainer ×2: MultiProcessingColocation"]
        g_trainer_2e_0("CourierNode(Counter)")
        g_trainer_2e_1["PyNode(print)"]
    end
    g_main --> g_the_2e_counter
    g_trainer_2e_1 --> g_trainer_2e_0
    g_trainer_2e_1 --> g_queue"""


def test_mermaid_has_a_box_per_group_a_frame_per_colocation_and_an_arrow_per_pair() -> None:
    program = make_program()

    assert program.to_mermaid() == mermaid(program) == MERMAID


def test_a_plan_is_drawn_as_its_program() -> None:
    plan = lp.plan(make_program(), "local_mp")

    assert mermaid(plan) == MERMAID.replace("MultiProcessingColocation", "colocation")


def test_an_arrow_has_the_keyword_by_which_the_handle_was_given() -> None:
    program = lp.Program("labelled")
    counter = program.add_node(lp.CourierNode(nodes.Counter), label="counter")
    program.add_node(lp.PyNode(lambda counter, spare: None, counter, spare=counter), label="main")
    program.add_node(lp.PyNode(lambda counter: None, counter=counter), label="other")

    assert '    g_main -->|"spare"| g_counter' in mermaid(program).splitlines()
    assert 'main" -> "counter" [label="spare"];' in dot(program)
    assert "    g_other --> g_counter" in mermaid(program).splitlines()


def test_dot_has_the_same_boxes_frames_and_arrows() -> None:
    lines = [line.strip() for line in dot(make_program()).splitlines()]

    assert lines[0] == r'digraph "a \"program\"" {'
    assert (
        '"queue" [label="queue\\nQueueNode(maxsize=10, producers=None)", shape=cylinder];' in lines
    )
    assert 'subgraph "cluster_trainer" { label="trainer ×2: MultiProcessingColocation";' in lines
    assert [line for line in lines if "->" in line] == [
        '"main" -> "the.counter";',
        '"trainer.1" -> "trainer.0";',
        '"trainer.1" -> "queue";',
    ]
