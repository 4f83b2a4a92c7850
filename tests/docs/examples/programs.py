"""Examples of describing programs, and of launching them."""

from __future__ import annotations

import contextlib
import http.server
import io
import json
import pathlib
import threading
import types
import urllib.error
import urllib.request
from typing import Any

from absl import flags

import launchpad as lp
from docs.site import names
from tests.docs.examples.runner import Example, example_of, run
from tests.waiting import until


class Learner:
    def __init__(self, lr: float = 1.0) -> None:
        self.lr = lr

    def step(self, *batch: Any, **options: Any) -> float:
        return self.lr

    def get_variables(self) -> list[float]:
        return [self.lr]


class Actor:
    def __init__(self, *args: Any, seed: int = 0) -> None:
        self.args = args

    def run(self) -> None:
        return None


class Server:
    def greet(self, name: str) -> str:
        return f"Hello, {name}!"


def ask(server: lp.CourierClient[Server]) -> str:
    return server.greet("reader")


def train(learner: Any = None, num_steps: int = 1) -> list[float]:
    lp.heartbeat()
    return [learner.step(step) if learner else 0.5 for step in range(num_steps)]


def use(*clients: Any) -> None:
    assert all(clients)


def fail() -> None:
    raise ValueError("no data")


def hello() -> lp.Program:
    """A program whose one worker calls the other, and that ends."""
    program = lp.Program("hello")
    server = program.add_node(lp.CourierNode(Server), label="server")
    program.add_node(lp.PyNode(ask, server), label="client")
    return program


def failing() -> lp.Program:
    """A program that fails."""
    program = lp.Program("failing")
    program.add_node(lp.PyNode(fail), label="trainer")
    return program


def training() -> dict[str, Any]:
    """A program to which something can be added, and a learner in it."""
    program = lp.Program("training")
    learner = program.add_node(lp.CourierNode(Learner), label="learner")
    return {"program": program, "learner": learner, "Learner": Learner, "Actor": Actor}


# --- graphs --------------------------------------------------------------------------------------


@example_of("Program", "make_program")
def is_run_to_its_end(example: Example) -> None:
    example.run_to_end(Server=Server, ask=ask)


@example_of("Edge", "Graph", "WorkerPlan", "plan")
def is_of_a_program(example: Example) -> None:
    example.run(program=hello(), json=json)


@example_of("LaunchPlan")
def plan_is_written_to_a_file(example: Example) -> None:
    file = io.StringIO()

    example.run(program=hello(), json=json, file=file)

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

    example.run_to_end(program=lp.Program("boards"), Board=Board, watch=watch)


class serve(contextlib.AbstractContextManager["serve"]):  # noqa: N801 - a function to those who call it
    """Serves a folder over HTTP."""

    def __init__(self, folder: str, endpoint: str) -> None:
        host, _, port = endpoint.rpartition(":")
        handler = http.server.SimpleHTTPRequestHandler
        self.server = http.server.HTTPServer((host, int(port)), handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def shutdown(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def __exit__(self, *_: object) -> None:
        self.shutdown()


@example_of("get_port_from_address")
def port_to_listen_at(example: Example) -> None:
    ports: list[int] = []
    address = types.SimpleNamespace(resolve=lambda: "localhost:8080")

    example.run(server=types.SimpleNamespace(listen=ports.append), address=address)

    assert ports == [8080]


@example_of("Handle", "Executable", "Node")
def node_of_a_kind_of_its_own(example: Example) -> None:
    parts = {each.name: each.example for each in names.public_names()}
    code = "\n\n".join(parts[name] for name in ("lp.Handle", "lp.Executable", "lp.Node"))
    program = lp.Program("boards")

    board = program.add_node(run(code, {"serve": serve})["BoardNode"]("."), label="board")
    program.add_node(lp.PyNode(open_page, board), label="main")
    example.launch(program).wait(60)


def open_page(url: str) -> None:
    assert until(lambda: status_of(url)) == 200


def status_of(url: str) -> int:
    with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen(url) as page:
        return int(page.status)
    return 0  # the board is not up yet


@example_of("Dereferenceable")
def secret_is_read(example: Example) -> None:
    pathlib.Path("token.txt").write_text("secret")

    assert example.run(pathlib=pathlib)["token"] == "secret"


@example_of("Deferred")
def environment_is_made_by_the_worker(example: Example) -> None:
    example.run_and_stop(**training(), make_environment=str)


@example_of("maybe_dereference")
def object_stays_what_it_is(example: Example) -> None:
    learner = Learner()

    assert example.run(given=learner)["learner"] is learner


@example_of("Resources")
def groups_ask_for_resources(example: Example) -> None:
    example.run(**training() | {"program": lp.Program("training")})


@example_of("RestartPolicy", "PyClassNode", "edges", "edges.Delay", "edges.Bandwidth")
def is_added_to_a_program_with_a_learner(example: Example) -> None:
    given = example.run(**training())

    assert lp.plan(given["program"], "kubernetes", image="example/image:1").workers


@example_of("PythonProcess")
def options_are_for_processes(example: Example) -> None:
    program = lp.Program("acting")
    program.add_node(lp.PyClassNode(Actor), label="actor")
    plans: list[lp.LaunchPlan] = []
    example.patch.setattr(
        lp, "launch", lambda *given, **more: plans.append(lp.plan(*given, **more))
    )

    example.run(program=program)

    assert plans[0].worker("actor-0").env == {"CUDA_VISIBLE_DEVICES": ""}


# --- nodes ---------------------------------------------------------------------------------------


@example_of("PyNode", "CourierNode", "CacherNode")
def node_is_added(example: Example) -> None:
    example.run_and_stop(**training(), train=train)


@example_of("heartbeat")
def trainer_is_watched(example: Example) -> None:
    example.run_to_end(program=lp.Program("training"), train=train)


@example_of("CourierHandle")
def handle_is_used_in_the_script(example: Example) -> None:
    given = training() | {"program": lp.Program("training")}

    assert example.run(**given)["loss"] == 1.0


@example_of("MultiProcessingColocation")
def processes_share_a_host(example: Example) -> None:
    loader, trainer = lp.PyNode(train), lp.PyNode(train)

    example.run_to_end(program=lp.Program("colocated"), loader=loader, trainer=trainer)


@example_of("MultiThreadingColocation")
def threads_share_a_worker(example: Example) -> None:
    class FromReplay(Learner):
        def __init__(self, replay: Any) -> None:
            super().__init__()

    given = {"Replay": Server, "Learner": FromReplay}
    example.run_and_stop(program=lp.Program("colocated"), **given)


@example_of("ReverbNode", "ReverbHandle")
def is_described_without_reverb(example: Example) -> None:
    given = example.run(program=lp.Program("replay"), make_tables=list, sample=use, Actor=Actor)

    assert str(given["program"].graph()).count("ReverbNode") == 1


# --- launching -----------------------------------------------------------------------------------


@example_of("launch", "LaunchType")
def program_is_launched(example: Example) -> None:
    example.run_to_end(program=hello())


@example_of("run")
def what_trainers_return_is_had(example: Example) -> None:
    program = lp.Program("training")
    program.add_node(lp.PyNode(train), label="trainer")

    assert example.run(program=program)["weights"] == [0.5]


@example_of("LAUNCH_TYPE")
def flag_is_read_by_the_script(example: Example) -> None:
    flags.FLAGS.mark_as_parsed()
    example.stack.callback(flags.FLAGS.unparse_flags)

    example.run(make_program=hello)["main"]([])

    assert example.launched


@example_of("Running")
def script_calls_a_worker(example: Example) -> None:
    example.run(program=training()["program"])


@example_of("WorkerStatus", "Metrics", "ProcessUsage", "WorkerMetrics", "edges.EdgeStats")
def is_of_a_running_program(example: Example) -> None:
    running = example.launch(training()["program"])
    running.client("learner").step()

    example.run(running=running, time=types.SimpleNamespace(sleep=lambda seconds: None))


@example_of("edges.Edges")
def calls_were_counted(example: Example) -> None:
    running = example.launch(training()["program"])
    learner = running.client("learner")
    learner.step()
    example.code = example.code.replace("12_000", "1")

    example.run(running=running)


@example_of("Detached")
def program_is_left_behind(example: Example) -> None:
    detached = lp.Detached(types.SimpleNamespace(run_id="hello-1"), print)  # type: ignore[arg-type]
    example.patch.setattr(lp, "launch", lambda *_, **__: detached)

    example.run(program=hello())


@example_of("Backend", "Workers")
def backend_of_its_own(example: Example) -> None:
    parts = {each.name: each.example for each in names.public_names()}

    given = run("\n\n".join(parts[name] for name in ("lp.Workers", "lp.Backend")), {})

    backend = given["MyCluster"]()
    assert backend.endpoint("learner-0/courier", "courier") == "unix:{run}/learner-0.courier"
    given["MyWorkers"].__init__ = lambda *_: None
    assert isinstance(backend.create_workers(None, None, None), lp.Workers)
