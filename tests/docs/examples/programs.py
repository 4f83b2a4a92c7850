"""Examples of describing programs, and of launching them."""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import types
import urllib.error
import urllib.request
from typing import Any

from absl import flags

import launchpad as lp
from docs.site import names
from tests.docs.examples.runner import DEADLINE_S, Example, example_of, examples, run
from tests.docs.examples.stand_ins import (
    Actor,
    Greeter,
    hello,
    program_of,
    serve,
    train,
    training,
)
from tests.waiting import until


def plan_of_what_is_added(example: Example) -> None:
    given = example.run(**training())

    assert lp.plan(given["program"], "kubernetes", image="example/image:1").workers


def with_a_running_learner(example: Example) -> None:
    running = example.launch(training()["program"])
    running.client("learner").step()

    example.run(running=running)


examples(
    {
        # Graphs.
        "Program make_program": Example.run_to_end,
        "Edge Graph WorkerPlan plan": lambda example: example.run(program=hello()),
        "Deferred": lambda example: example.run_and_stop(**training()),
        "Resources": lambda example: example.run(program=lp.Program("training")),
        "RestartPolicy PyClassNode edges edges.Delay edges.Bandwidth": plan_of_what_is_added,
        # Nodes.
        "PyNode": lambda example: example.run_and_stop(**training()),
        "CourierNode CacherNode": Example.run_and_stop,
        "heartbeat": Example.run_to_end,
        "MultiProcessingColocation": lambda example: example.run_to_end(
            loader=lp.PyNode(train), trainer=lp.PyNode(train)
        ),
        "MultiThreadingColocation": lambda example: example.run_and_stop(Replay=Greeter),
        "CourierHandle": lambda example: example.finds(
            {"program": lp.Program("training")}, loss=1.0
        ),
        "maybe_dereference": lambda example: example.finds({"given": "itself"}, learner="itself"),
        # Launching.
        "run": lambda example: example.finds(
            {"program": program_of(lp.PyNode(train), label="trainer")}, weights=[0.5]
        ),
        "launch LaunchType": lambda example: example.run_to_end(program=hello()),
        "Running": lambda example: example.run(program=training()["program"]),
        "WorkerStatus Metrics ProcessUsage WorkerMetrics edges.EdgeStats": with_a_running_learner,
        "edges.Edges": lambda example: with_a_running_learner(example.changed("12_000", "1")),
    }
)


@example_of("simulate Simulation")
def learner_with_an_actor(example: Example) -> None:
    program = training()["program"]
    program.add_node(lp.PyNode(train), label="actor")

    example.run(program=program)


@example_of("LaunchPlan")
def plan_is_written_to_a_file(example: Example) -> None:
    file = io.StringIO()

    example.run(program=hello(), file=file)

    assert json.loads(file.getvalue())["workers"]


@example_of("Address")
def address_of_a_service(example: Example) -> None:
    class Board:
        def __init__(self, address: lp.Address) -> None:
            self.address = address

        def run(self) -> None:
            stop = lp.stop_event()
            with serve(".", self.address.resolve()):
                stop.wait()

    def watch(address: lp.Address) -> None:
        address.wait()
        lp.stop()

    example.run_to_end(Board=Board, watch=watch)


@example_of("get_port_from_address")
def port_to_listen_at(example: Example) -> None:
    ports: list[int] = []
    address = types.SimpleNamespace(resolve=lambda: "localhost:8080")

    example.run(server=types.SimpleNamespace(listen=ports.append), address=address)

    assert ports == [8080]


def names_of(*public: str) -> dict[str, Any]:
    """The names that there are when these examples have been run together."""
    parts = {each.name: each.example for each in names.public_names()}
    return run("\n\n".join(parts[name] for name in public), {})


@example_of("Handle Executable Node")
def node_of_a_kind_of_its_own(example: Example) -> None:
    program = lp.Program("boards")

    node = names_of("lp.Handle", "lp.Executable", "lp.Node")["BoardNode"](".")
    program.add_node(lp.PyNode(open_page, program.add_node(node, label="board")), label="main")
    example.launch(program).wait(DEADLINE_S)


def open_page(url: str) -> None:
    assert until(lambda: status_of(url)) == 200


def status_of(url: str) -> int:
    with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen(url) as page:
        return int(page.status)
    return 0  # the board is not up yet


@example_of("Dereferenceable")
def secret_is_read(example: Example) -> None:
    pathlib.Path("token.txt").write_text("secret")

    assert example.run()["token"] == "secret"


@example_of("PythonProcess")
def options_are_for_processes(example: Example) -> None:
    plans: list[lp.LaunchPlan] = []
    example.patch.setattr(
        lp, "launch", lambda *given, **more: plans.append(lp.plan(*given, **more))
    )

    example.run(program=program_of(lp.PyClassNode(Actor), label="actor"))

    assert plans[0].worker("actor-0").process.env == {"CUDA_VISIBLE_DEVICES": ""}


@example_of("ReverbNode ReverbHandle")
def is_described_without_reverb(example: Example) -> None:
    given = example.run(program=lp.Program("replay"))

    assert str(given["program"].graph()).count("ReverbNode") == 1


@example_of("LAUNCH_TYPE")
def flag_is_read_by_the_script(example: Example) -> None:
    flags.FLAGS.mark_as_parsed()
    example.stack.callback(flags.FLAGS.unparse_flags)

    example.run(make_program=hello)["main"]([])

    assert example.launched


@example_of("Detached")
def program_is_left_behind(example: Example) -> None:
    detached = lp.Detached(types.SimpleNamespace(run_id="hello-1"), print)  # type: ignore[arg-type]
    example.patch.setattr(lp, "launch", lambda *_, **__: detached)

    example.run(program=hello())


@example_of("Backend Workers")
def backend_of_its_own(example: Example) -> None:
    given = names_of("lp.Workers", "lp.Backend")

    backend = given["MyCluster"]()
    assert backend.endpoint("learner-0/courier", "courier") == "unix:{run}/learner-0.courier"
    given["MyWorkers"].__init__ = lambda *_: None
    assert isinstance(backend.create_workers(None, None, None), lp.Workers)
