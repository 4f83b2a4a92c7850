"""Pictures of programs: a box per group, an arrow per pair of groups; as an SVG, where they are."""

from __future__ import annotations

import itertools
from xml.etree import ElementTree

import launchpad as lp
from launchpad.graph.picture import dot, mermaid
from launchpad.graph.svg import svg
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
    of_plan = MERMAID.replace("MultiProcessingColocation", "colocation")
    assert mermaid(lp.plan(program, "local_mp")) == of_plan


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


SVG = "{http://www.w3.org/2000/svg}"


def texts(root: ElementTree.Element) -> dict[str, tuple[float, float]]:
    """Text → where it is."""
    return {
        str(t.text): (float(t.attrib["x"]), float(t.attrib["y"])) for t in root.iter(f"{SVG}text")
    }


def test_an_svg_shows_each_box_with_its_replicas_and_callers_are_left_of_what_they_call() -> None:
    root = ElementTree.fromstring(svg(make_program()))

    at = texts(root)
    assert {"main ×3", "PyNode(<lambda>)", "trainer ×2: MultiProcessingColocation"} <= set(at)
    assert at["main ×3"][0] < at["the.counter"][0]
    assert at["PyNode(print)"][0] < at["queue"][0]
    arrows = [path for path in root.iter(f"{SVG}path") if "marker-end" in path.attrib]
    assert len(arrows) == 3


def test_boxes_of_one_layer_do_not_overlap() -> None:
    program = lp.Program("wide")
    servers = [
        program.add_node(lp.CourierNode(nodes.Counter), label=f"server_{n}") for n in range(6)
    ]
    program.add_node(lp.PyNode(print, *servers), label="main")

    at = texts(ElementTree.fromstring(svg(program)))

    heights = sorted(y for text, (_, y) in at.items() if text.startswith("server_"))
    assert len({at[f"server_{n}"][0] for n in range(6)}) == 1
    assert all(below - above > 50 for above, below in itertools.pairwise(heights))


def test_an_arrow_that_skips_a_layer_goes_past_the_box_in_it() -> None:
    program = lp.Program("skips")
    last = program.add_node(lp.CourierNode(nodes.Counter), label="last")
    between = program.add_node(lp.CourierNode(nodes.Relay, last), label="between")
    program.add_node(lp.PyNode(print, between, last), label="first")

    root = ElementTree.fromstring(svg(program))

    paths = (path.attrib["d"] for path in root.iter(f"{SVG}path") if "marker-end" in path.attrib)
    (skips,) = (path for path in paths if "H" in path)
    height = float(skips.partition("H")[0].rpartition(",")[2])
    assert abs(height - texts(root)["between"][1]) > 40


def test_groups_that_call_each_other_in_a_circle_are_drawn_side_by_side() -> None:
    program = lp.Program("circle")
    nodes_ = [lp.CourierNode(nodes.Relay) for _ in range(3)]
    for n, node in enumerate(nodes_):
        node.configure(nodes_[(n + 1) % 3].create_handle())
        program.add_node(node, label=f"peer_{n}")

    at = texts(ElementTree.fromstring(svg(program)))

    assert at["peer_0"][0] < at["peer_1"][0] < at["peer_2"][0]
