"""Each worker draws random numbers of its own, however the script has come by what draws them."""

from __future__ import annotations

import importlib
import json
import math
import pickle
import random
import re
from pathlib import Path

import numpy as np
import pytest

from launchpad.courier.codec import by_value
from launchpad.runtime import import_hook
from tests.helpers import scripts

SCRIPT = '''
import json, random, sys
import numpy as np
import numpy
from random import Random, randint, random as draw
from numpy.random import rand

import launchpad as lp

of_python = Random()
of_numpy = np.random.default_rng()
legacy = np.random.RandomState()
same_one = of_numpy


def by_module(): return random.random()
def by_name(): return draw()
def by_integer(): return randint(0, 10**9) / 10**9
def by_numpy_module(): return float(np.random.rand())
def by_numpy_name(): return float(rand())
def by_random(): return of_python.random()
def by_generator(): return float(of_numpy.random() + same_one.random()) / 2
def by_state(): return float(legacy.rand())


WAYS = [by_module, by_name, by_integer, by_numpy_module, by_numpy_name, by_random, by_generator, by_state]


class Estimate:
    """Pi, by the share of random points that lie in a circle, and a number, for each way to draw."""

    def run(self):
        drawn = {way.__name__: [pi(way), way()] for way in WAYS}
        return drawn | {"attempt": [lp.current().attempt, 0.0]}


def pi(draw_number):
    inside = sum(draw_number() ** 2 + draw_number() ** 2 < 1 for _ in range(500))
    return 4 * inside / 500


class Failing(Estimate):
    def run(self):
        estimates = super().run()
        if lp.current().attempt == 1:
            print("first", json.dumps(estimates), flush=True)
            raise ValueError("once")
        return estimates


program = lp.Program("pi")
with program.group("estimate"):
    for _ in range(4):
        program.add_node(lp.PyClassNode(Estimate))
with program.group("failing", restart=lp.RestartPolicy(max_restarts=1, backoff=0)):
    program.add_node(lp.PyClassNode(Failing))

if __name__ == "__main__":
    print("results", json.dumps(lp.run(program)))
'''

POOL = '''
import json, pathlib, random, sys, time
import numpy as np
import launchpad as lp

of_python = random.Random()
of_numpy = np.random.default_rng()
folder = pathlib.Path(sys.argv[1])


def meet(key):
    """Waits until another call with this key runs, in the other worker."""
    (folder / f"{key}.{lp.current().name}").touch()
    while len(list(folder.glob(f"{key}.*"))) < 2:
        time.sleep(0.001)


def draw(number):
    meet("function")
    return lp.current().name, of_python.random(), of_numpy.random()


class Simulation:
    def step(self, number):
        meet("method")
        return lp.current().name, of_python.random(), of_numpy.random()


program = lp.Program("pool")
with program.group("worker"):
    for _ in range(2):
        program.add_node(lp.PoolNode())

if __name__ == "__main__":
    drawn_before = of_python.getstate()
    with lp.launch(program) as running, lp.pool(running.clients("worker")) as pool:
        functions = [draw, Simulation().step, lambda number: draw_again(number)]
        def draw_again(number):
            meet("lambda")
            return lp.current().name, of_python.random(), of_numpy.random()
        drawn = [sorted(pool.map(function, range(2), chunksize=1)) for function in functions]
    print("drawn", json.dumps(drawn))
    print("moved", of_python.getstate() != drawn_before)
'''


def test_replicas_draw_other_numbers_each_the_same_at_every_launch(tmp_path: Path) -> None:
    command = scripts.write(tmp_path, SCRIPT)

    first, second = (scripts.run(command, "--lp_launch_type=local_mp") for _ in range(2))

    assert first.returncode == 0, first.stderr
    results, again = (json.loads(run.stdout.partition("results ")[2]) for run in (first, second))
    assert again == results
    by_way = {way: [each[way] for each in results["estimate"]] for way in results["estimate"][0]}
    assert by_way.pop("attempt") == [[1, 0.0]] * 4
    assert len(by_way) == 8
    for way, drawn in by_way.items():
        assert len({number for _, number in drawn}) == 4, way
        assert all(abs(estimate - math.pi) < 0.5 for estimate, _ in drawn), way
    (restarted,) = results["failing"]
    before = json.loads(first.stdout.partition("first ")[2].splitlines()[0])
    assert [restarted[way] != before[way] for way in before] == [True] * 9
    assert first.stdout.count("instead of of_python, of_numpy, legacy of the script") == 1


def test_workers_of_a_pool_draw_other_numbers_each_the_same_at_every_launch(tmp_path: Path) -> None:
    command = scripts.write(tmp_path, POOL)
    runs = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        runs.append(scripts.run(command, str(tmp_path / name), "--lp_launch_type=local_mp"))

    assert runs[0].returncode == 0, runs[0].stdout + runs[0].stderr
    first, second = (json.loads(re.findall("drawn (.*)", run.stdout)[0]) for run in runs)
    assert first == second
    calls = [call for calls in first for call in calls]
    assert {name for name, *_ in calls} == {"worker-0", "worker-1"}
    assert len({number for _, *numbers in calls for number in numbers}) == 2 * len(calls)
    assert "moved False" in runs[0].stdout
    assert runs[0].stdout.count("instead of of_python of the script") == 2


def test_workers_of_a_pool_on_threads_share_the_generators_of_the_script(tmp_path: Path) -> None:
    done = scripts.run(scripts.write(tmp_path, POOL), str(tmp_path), "--lp_launch_type=local_mt")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "moved True" in done.stdout
    assert "instead of" not in done.stdout


def test_what_modules_keep_travels_by_name_in_calls_too() -> None:
    functions = (random.random, np.random.rand)

    sent = by_value.dumps(functions, 5)

    assert len(sent) < 300
    random_here, rand_here = pickle.loads(sent)
    assert random_here.__self__ is random.random.__self__  # type: ignore[attr-defined]
    assert rand_here.__self__ is np.random.rand.__self__  # type: ignore[attr-defined]


@pytest.mark.parametrize("generator", [random.Random(3), np.random.default_rng(3)])
def test_a_generator_that_is_an_argument_keeps_its_state(generator: object) -> None:
    copy = pickle.loads(by_value.dumps(generator, 5))

    assert copy.random() == generator.random()  # type: ignore[attr-defined]


def test_several_hooks_may_wait_for_one_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "waited_for.py").write_text("VALUE = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[tuple[str, int]] = []
    for name in ("first", "second"):
        import_hook.when_imported(
            "waited_for", lambda module, n=name: seen.append((n, module.VALUE))
        )

    importlib.import_module("waited_for")

    assert seen == [("first", 3), ("second", 3)]
