"""What a launching script defines belongs to the `__main__` of its workers, too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers import scripts

SCRIPT = '''
import inspect, multiprocessing, os, pickle, shelve, sys
from concurrent.futures import ProcessPoolExecutor

import launchpad as lp

SCALE = 3


class Net:
    """A model."""

    count = 0

    def __init__(self, weight):
        self.weight = weight

    def forward(self, x):
        return scaled(x) * self.weight


def scaled(x):
    return SCALE * x


def trained(net):
    """What a process that the worker starts makes of it."""
    return Net(net.forward(1))


def child(net, results):
    results.put(trained(net))


class Server:
    def set_count(self, count):
        Net.count = count

    def look_at(self, net):
        return type(net) is Net, Net.count, net.count


def ask(server):
    server.set_count(7)
    print(server.look_at(Net(1)))
    print(server.look_at(Net(1)))


def save():
    path = os.path.join(lp.current().state_dir, "net")
    if lp.current().attempt == 1:
        with open(path, "wb") as file:
            pickle.dump((Net(2), trained, Net), file)
        os._exit(1)
    with open(path, "rb") as file:
        net, function, kind = pickle.load(file)
    print(function(net).weight, function is trained, type(net) is kind is Net)


def pickled():
    for what in (Net, trained, Net.forward):
        print(inspect.getsource(what).splitlines()[0].strip())
    copy, function = pickle.loads(pickle.dumps((Net(2), trained)))
    print(function(copy).weight, type(copy) is Net, function is trained)
    with shelve.open(os.path.join(lp.current().state_dir, "shelf")) as shelf:
        shelf["net"] = Net(5)
        print(shelf["net"].forward(1))


def pools(*methods):
    for method in methods:
        use_pool(multiprocessing.get_context(method))


def use_pool(context):
    with context.Pool(2) as pool:
        print([net.weight for net in pool.map(trained, [Net(1), Net(2)])])
        print(pool.apply(Net(4).forward, (1,)))
        assert all(type(net) is Net for net in pool.map(trained, [Net(1)]))
        pool.close()
        pool.join()
    results = context.SimpleQueue()
    process = context.Process(target=child, args=(Net(3), results))
    process.start()
    print(results.get().weight)
    process.join()
    assert process.exitcode == 0
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        print(executor.submit(trained, Net(6)).result().weight)


program = lp.Program("main")
if sys.argv[1] == "ask":
    server = program.add_node(lp.CourierNode(Server), label="server")
    program.add_node(lp.PyNode(ask, server), label="worker")
else:
    program.add_node(lp.PyNode(globals()[sys.argv[1]], *sys.argv[3:]), label="worker")

if __name__ == "__main__":
    Net.launches = 5
    forward = Net.forward
    lp.launch(program, sys.argv[2], restart=lp.RestartPolicy(max_restarts=1)).wait(100)
    SCALE = 4
    if sys.argv[1] == "ask":
        print("in the script:", Net.forward is forward, Net.launches, Net(2).forward(1))
'''

both = pytest.mark.parametrize("launch_type", ["local_mp", "local_mt"])


def printed(tmp_path: Path, *arguments: str) -> list[str]:
    """What a worker that runs this function of the script prints, and the script at its end."""
    done = scripts.run(scripts.write(tmp_path, SCRIPT), *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return re.findall(r"^(?:worker-0 +\||in the script:) (.*)", done.stdout, re.M)


@both
def test_sound_06_a_worker_finds_the_source_of_what_the_script_defines_and_can_pickle_it(
    tmp_path: Path, launch_type: str
) -> None:
    *source, function_and_class, shelf = printed(tmp_path, "pickled", launch_type)

    assert source == ["class Net:", "def trained(net):", "def forward(self, x):"]
    assert (function_and_class, shelf) == ("6 True True", "15")


def test_sound_06_what_a_worker_pickles_its_next_attempt_unpickles(tmp_path: Path) -> None:
    assert printed(tmp_path, "save", "local_mp")[-1] == "6 True True"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launch_type", "methods"),
    [("local_mp", ["fork", "spawn", "forkserver"]), ("local_mt", ["spawn"])],
)
def test_sound_06_multiprocessing_in_a_worker_finds_what_the_script_defines(
    tmp_path: Path, launch_type: str, methods: list[str]
) -> None:
    by_method = ["[3, 6]", "12", "9", "18"]

    assert printed(tmp_path, "pools", launch_type, *methods) == by_method * len(methods)


@both
def test_sound_06_a_process_of_multiprocessing_never_launches_the_program_again(
    tmp_path: Path, launch_type: str
) -> None:
    unguarded = """
import multiprocessing, sys
import launchpad as lp

def child():
    print("child of", multiprocessing.parent_process().name, flush=True)

def run():
    process = multiprocessing.get_context("spawn").Process(target=child)
    process.start()
    process.join()
    print("exit code", process.exitcode)

program = lp.Program("again")
program.add_node(lp.PyNode(run), label="worker")
lp.launch(program, sys.argv[1])
"""

    done = scripts.run(scripts.write(tmp_path, unguarded), launch_type)

    assert done.returncode == 0, done.stderr
    if launch_type == "local_mp":
        assert "child of MainProcess" in done.stdout
    else:
        assert "worker-0  | exit code 1" in done.stdout
        assert "Launch it under `if __name__ == '__main__':`" in done.stderr


@both
def test_sound_06_an_attribute_of_a_class_set_in_a_worker_stays_there_when_a_caller_sends_an_instance(
    tmp_path: Path, launch_type: str
) -> None:
    *in_worker, in_script = printed(tmp_path, "ask", launch_type)

    assert in_worker == ["(True, 7, 7)"] * 2
    assert in_script == "True 5 8"


PYDANTIC = """
from __future__ import annotations
from typing import Optional
import pydantic
from pydantic import BaseModel, Field, computed_field, field_validator, validate_call
import launchpad as lp


class Part(BaseModel, frozen=True):
    size: int = Field(gt=0)


class Whole(BaseModel):
    first: Part
    others: list[Whole] = []
    owner: Optional[Owner] = None

    @field_validator("others")
    @classmethod
    def few(cls, others):
        assert len(others) < 3
        return others

    @computed_field
    @property
    def total(self) -> int:
        return self.first.size + sum(other.total for other in self.others)


class Owner(BaseModel):
    owns: list[Whole] = []


@pydantic.dataclasses.dataclass
class Pair:
    left: int
    right: Part


@validate_call
def factorial(n: int) -> int:
    return 1 if n < 2 else n * factorial(n - 1)


def use(whole: Whole):
    larger = Whole(first={"size": "2"}, others=[whole], owner={"owns": [whole]})
    try:
        Whole(first={"size": 0}, others=[whole] * 3)
    except pydantic.ValidationError as error:
        n_errors = error.error_count()
    assert isinstance(whole, Whole)
    pair = Pair("3", {"size": 4})
    return larger.model_dump_json(exclude={"owner"}), n_errors, pair.left + pair.right.size, factorial("5")


program = lp.Program("models")
program.add_node(lp.PyNode(use, Whole(first=Part(size=1))), label="worker")

if __name__ == "__main__":
    print("in the script:", lp.run(program)["worker"])
"""


@both
def test_models_and_functions_of_pydantic_that_the_script_defines_work_in_its_workers(
    tmp_path: Path, launch_type: str
) -> None:
    done = scripts.run(scripts.write(tmp_path, PYDANTIC), f"--lp_launch_type={launch_type}")

    other = '{"first":{"size":1},"others":[],"owner":null,"total":1}'
    whole = f'{{"first":{{"size":2}},"others":[{other}],"total":3}}'
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().endswith(f"in the script: [('{whole}', 2, 7, 120)]")


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_process_of_multiprocessing_launches_what_the_script_defines(
    tmp_path: Path, method: str
) -> None:
    script = """
import multiprocessing, sys
import launchpad as lp

class Doubler:
    def double(self, x):
        return 2 * x

def main(doubler, x):
    return doubler.double(x)

def trial(x):
    program = lp.Program("trial")
    doubler = program.add_node(lp.CourierNode(Doubler), label="doubler")
    program.add_node(lp.PyNode(main, doubler, x), label="main")
    return lp.run(program, "local_mp", terminal="output_to_files")["main"][0]

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
        print(pool.map(trial, [1, 2]))
"""

    done = scripts.run(scripts.write(tmp_path, script), method)

    assert done.stdout == "[2, 4]\n", done.stderr
