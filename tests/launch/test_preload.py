"""Modules that are imported once, before the workers are forked; those that cannot be are named."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import launchpad as lp
from tests.helpers import scripts
from tests.helpers.programs import single

DEADLINE_S = 60
AT_ONCE = lp.RestartPolicy(max_restarts=5, backoff=0)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a module that workers can import; its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(text: str) -> str:
        name = f"preloaded_{len(list(tmp_path.iterdir()))}"
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


def run(function: Any, *arguments: Any, n: int = 1, **options: Any) -> list[Any]:
    """What so many workers return."""
    program = lp.Program("preload")
    with program.group("node"):
        for _ in range(n):
            program.add_node(lp.PyNode(function, *arguments))
    return lp.run(program, "test_mp", timeout_s=DEADLINE_S, **options)["node"]


def imported_in(name: str) -> tuple[int, int]:
    """In which process it was imported, and how often so far."""
    module = sys.modules[name]
    attempt = lp.current().attempt
    if attempt == 1:
        raise ValueError("once more")
    return module.PID, os.getppid()


def test_all_attempts_of_all_workers_find_what_their_forkserver_has_imported(module: Any) -> None:
    name = module("import os\nPID = os.getpid()\n")

    found = run(imported_in, name, n=2, preload={"node": [name]}, restart=AT_ONCE)

    assert {pid == parent for pid, parent in found} == {True}
    assert len(set(found)) == 1
    assert name not in sys.modules


def test_a_module_that_no_fork_would_survive_is_refused_by_name(module: Any) -> None:
    name = module(
        "import threading\n"
        "threading.Thread(target=threading.Event().wait, name='ticker', daemon=True).start()\n"
    )
    why = (
        rf"preload='{name}' starts threads when it is imported \(ticker\), which no forked process"
    )

    with pytest.raises(lp.ProgramFailed, match=why):
        run(os.getpid, n=2, preload=[name])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "import _thread, time\n_thread.start_new_thread(time.sleep, (60,))",
            r"threads .*\(1 in C\)",
        ),
        ("FILE = open('/dev/zero')", "opens /dev/zero when it is imported, which a forked process"),
        ("open('/dev/nvidia-of-the-test')", "cannot be imported: FileNotFoundError"),
        ("raise SystemExit('no')", "cannot be imported: SystemExit: no"),
    ],
)
def test_threads_also_those_that_python_does_not_know_open_devices_and_errors_are_found(
    tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / "suspicious.py").write_text(text)
    command = scripts.write(
        tmp_path,
        "from launchpad.launch.backends.processes import forkserver\n"
        "forkserver._GPU_DEVICES = ('/dev/zero',)\n"
        "print(forkserver.import_all(['suspicious'], 1))\n",
    )

    assert re.search(why, scripts.run(command).stdout)


USES_SIGNALS_CHILDREN_AND_THREADS = """
import asyncio, os, signal, subprocess
from concurrent.futures import ThreadPoolExecutor

async def watch():
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, id)

def handle(*_):
    pass

subprocess.run(["true"])
asyncio.run(watch())
with ThreadPoolExecutor(4) as threads:
    list(threads.map(abs, range(8)))
signal.signal(signal.SIGCHLD, handle)
signal.set_wakeup_fd(os.open(os.devnull, os.O_WRONLY | os.O_NONBLOCK))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
"""


def handled_in(name: str) -> tuple[bool, int]:
    """Whether the module's handler is kept; and a child's exit code, of which a worker must hear."""
    is_kept = signal.getsignal(signal.SIGCHLD) is sys.modules[name].handle
    return is_kept, subprocess.run(["true"]).returncode


def test_a_module_may_use_signals_children_and_threads_while_it_is_imported(module: Any) -> None:
    name = module(USES_SIGNALS_CHILDREN_AND_THREADS)

    assert run(handled_in, name, preload=[name]) == [(True, 0)]


@pytest.mark.parametrize(
    ("preload", "why"),
    [
        (["torhc"], "preload='torhc': there is no module 'torhc' here"),
        ({"nod": ["json"]}, r"preload names a group 'nod'; .* has \['node'\]"),
    ],
)
def test_a_module_or_group_that_is_not_there_is_refused_before_anything_starts(
    preload: Any, why: str
) -> None:
    with pytest.raises(lp.DefinitionError, match=why):
        run(os.getpid, preload=preload)


@pytest.mark.parametrize("wrong", ["torch", [1], [""], ["a b"]])
def test_what_is_no_list_of_names_is_refused_where_it_is_written(wrong: Any) -> None:
    with pytest.raises(lp.DefinitionError, match=r"preload= takes names .*, as \['torch'\]"):
        single(lp.PyNode(print), preload=wrong)


def in_numbers() -> tuple[int, float, str]:
    threads = max((pool["num_threads"] for pool in threadpool_info()), default=1)
    product = np.ones((300, 300)) @ np.ones((300, 300))  # the pool works after the fork
    assert product.sum() == 300**3
    return threads, float(np.random.rand()), os.environ.get("OPENBLAS_NUM_THREADS", "")


def limited() -> int:
    threadpool_limits(3)
    return max(pool["num_threads"] for pool in threadpool_info())


def test_a_thread_of_a_worker_can_change_how_many_threads_numerical_libraries_have() -> None:
    program = single(lp.MultiThreadingColocation([lp.PyNode(limited)]), "node")

    assert lp.run(program, "test_mp", preload=["numpy"], timeout_s=DEADLINE_S)["node"] == [(3,)]


def test_numerical_libraries_have_the_threads_that_a_worker_was_given_and_numbers_of_its_own() -> (
    None
):
    cpus = len(os.sched_getaffinity(0))

    alone = run(in_numbers, preload=["numpy"])
    with_one_each = run(
        in_numbers, n=cpus, resources={"node": lp.Resources(cpus=1)}, preload=["numpy"]
    )

    assert [threads for threads, *_ in alone] == [cpus]
    assert [threads for threads, *_ in with_one_each] == [1] * cpus
    assert len({number for _, number, _ in with_one_each}) == cpus, "they draw the same numbers"


@pytest.mark.parametrize("ended_by", ["its limit", "a stop"])
def test_a_module_that_never_ends_its_import_keeps_nothing_waiting(
    module: Any, ended_by: str
) -> None:
    name = module("import threading\nthreading.Event().wait()\n")
    limit = lp.RestartPolicy(start_timeout_s=2.0, max_restarts=0)
    restart = limit if ended_by == "its limit" else None

    running = lp.launch(single(lp.PyNode(os.getpid), preload=[name], restart=restart), "test_mp")
    if restart is None:
        running.ask_to_stop(at_once=True)
        running.wait(DEADLINE_S)
    else:
        with pytest.raises(lp.ProgramFailed, match=r"not ready within start_timeout_s=2"):
            running.wait(DEADLINE_S)
