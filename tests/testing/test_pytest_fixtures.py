"""The fixtures that pytest finds where launchpad is installed, in projects of their own."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

PROGRAMS = """
import launchpad as lp

class Counter:
    def __init__(self):
        self.value = 0

    def add(self, amount):
        self.value += amount
        return self.value

def fail():
    print("about to divide")
    1 / 0

def hang():
    lp.wait_for_stop()

def serve(**options):
    program = lp.Program("serve")
    with program.group("counter", **options):
        program.add_node(lp.CourierNode(Counter))
    return program

def run(function):
    program = lp.Program(function.__name__)
    program.add_node(lp.PyNode(function), label="main")
    return program
"""

OPTIONS = ("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:hypothesispytest")


def run(pytester: pytest.Pytester, tests: str, *arguments: str) -> pytest.RunResult:
    """The result of these tests, which may use the programs, in a process of their own."""
    pytester.makepyfile(
        programs=PROGRAMS,
        test_it=f"import threading\nimport programs\nimport launchpad as lp\n{tests}",
    )
    return pytester.runpytest_subprocess(*OPTIONS, *arguments, timeout=100)


def test_where_it_is_not_used_nothing_of_launchpad_is_imported(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_it():
            roots = {name.partition(".")[0] for name in sys.modules}
            assert "pytest_launchpad" in roots, "pip install -e . again: an entry point is new"
            assert roots.isdisjoint({"launchpad", "courier"})
        """)

    result = pytester.runpytest_subprocess(*OPTIONS)

    result.assert_outcomes(passed=1)


@pytest.mark.slow
def test_a_test_runs_with_each_launch_type_or_with_those_named(pytester: pytest.Pytester) -> None:
    tests = """
import pytest

def test_all(lp_launch):
    assert lp_launch(programs.serve()).client("counter").add(2) == 2

@pytest.mark.parametrize(("lp_launch_type", "n"), [("test_mt", 1)])
def test_one(lp_launch, n):
    assert lp_launch.launch_type == "test_mt"
"""
    result = run(pytester, tests, "-v")

    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*::test_all?test_mt? PASSED*", "*::test_all?test_mp? PASSED*"])


@pytest.mark.slow
def test_what_goes_wrong_with_a_program_fails_its_test_and_is_reported(
    pytester: pytest.Pytester,
) -> None:
    result = run(
        pytester,
        """
def test_that_waits(lp_launch):
    lp_launch(programs.run(programs.fail)).wait()

def test_that_does_not_look(lp_launch):
    running = lp_launch(programs.run(programs.fail))
    while not running.failure():
        threading.Event().wait(0.01)

def test_that_hangs(lp_launch):
    lp_launch(programs.run(programs.hang), timeout_s=0.5).wait()

def test_that_leaks(lp_launch):
    threading.Thread(target=threading.Event().wait, name="left", daemon=True).start()

def test_that_kills(lp_launch, lp_kill_workers):
    forever = lp.RestartPolicy(max_restarts=1000, backoff=0)
    running = lp_launch(programs.serve(restart=forever))
    kills = lp_kill_workers(running, ["counter"], at_most=1)
    while not kills.done:
        threading.Event().wait(0.01)
    assert running.is_done
""",
        "--lp-launch-types=test_mp",
        "--lp-seed=7",
    )

    result.assert_outcomes(failed=2, passed=3, errors=3)
    result.stdout.fnmatch_lines_random(
        [
            "*<Running 'fail' on test_mp, ended>*",
            "main-0 failed: ZeroDivisionError: *",
            "    about to divide",
            "*TimeoutError: program 'hang' still ran 0.5 s after its launch, and was stopped: main-0.*",
            "=== where main-0 was:",
            "*AssertionError: left over: *thread left*",
            "*- 1 kills (seed 7): counter-0 × 1 -*",
        ]
    )


def test_ctrl_c_in_a_test_is_all_that_pytest_reports(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def test_it(lp_launch):
    lp_launch(programs.run(programs.hang))
    import _thread
    _thread.interrupt_main()
    threading.Event().wait(60)
""",
        "--lp-launch-types=test_mp",
    )

    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.no_fnmatch_line("*left over*")
    result.stdout.fnmatch_lines("*KeyboardInterrupt*")
