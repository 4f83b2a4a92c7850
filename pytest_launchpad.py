"""The fixtures that pytest finds where launchpad is installed: see docs/testing.md.

pytest imports this module at every start, in projects that have nothing to do with launchpad, too. So it is
no part of the package, and imports it when a test uses a fixture.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from launchpad import testing

_Section = tuple[str, str]

_SECTIONS = pytest.StashKey[list[Callable[[], list[_Section]]]]()
_HAS_PASSED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The two flags."""
    group = parser.getgroup("launchpad")
    group.addoption(
        "--lp-launch-types",
        default="test_mt,test_mp",
        metavar="TYPE,…",
        help="with which launch types tests that use lp_launch run (default: %(default)s)",
    )
    group.addoption(
        "--lp-seed",
        type=int,
        default=0,
        metavar="N",
        help="the seed of lp_kill_workers (default: %(default)s)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marker."""
    config.addinivalue_line(
        "markers", "lp_leaks(why): lp_launch does not look at what the test leaves behind"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each launch type, unless the test itself is parametrized with some."""
    marks = metafunc.definition.iter_markers("parametrize")
    given = [mark.args[0] if mark.args else mark.kwargs["argnames"] for mark in marks]
    names = ",".join(each if isinstance(each, str) else ",".join(each) for each in given)
    is_given = "lp_launch_type" in (name.strip() for name in names.split(","))
    if "lp_launch_type" in metafunc.fixturenames and not is_given:
        types = str(metafunc.config.getoption("--lp-launch-types")).split(",")
        metafunc.parametrize("lp_launch_type", [each.strip() for each in types], indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The programs of a test that has failed become sections of its report."""
    report = yield
    if report.when == "call":
        item.stash[_HAS_PASSED] = not report.failed
    if report.failed:
        for sections in item.stash.get(_SECTIONS, []):
            report.sections += sections()
    return report


@pytest.fixture
def lp_launch_type(request: pytest.FixtureRequest) -> str:
    """The launch type of lp_launch: each of --lp-launch-types, or what the test is parametrized with."""
    return str(request.param)


@pytest.fixture
def lp_launch(request: pytest.FixtureRequest, lp_launch_type: str) -> Iterator[testing.Launcher]:
    """Launches the programs of a test.

    `running = lp_launch(program, timeout_s=60)` returns what lp.launch does.

    When the test ends the program is stopped. The test fails if the program has failed or taken longer, or
    leaves processes, threads, descriptors or shared memory behind.
    """
    __tracebackhide__ = True  # it is about the test, not about these lines
    from launchpad import testing

    launcher = testing.Launcher(lp_launch_type)
    request.node.stash.setdefault(_SECTIONS, []).append(launcher.report)
    with contextlib.ExitStack() as leak_check:
        if request.node.get_closest_marker("lp_leaks") is None:
            leak_check.enter_context(testing.nothing_left_over())
        yield launcher
        launcher.close()
        # Of a test that has failed the traceback holds clients, and they their sockets. One that Ctrl-C has
        # ended has no report, and pytest has put back the standard streams.
        if not request.node.stash.get(_HAS_PASSED, False):
            leak_check.pop_all()


@pytest.fixture
def _until_the_test_ends(lp_launch: testing.Launcher) -> Iterator[contextlib.ExitStack]:
    """What is entered here ends before the programs are stopped."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def lp_kill_workers(
    request: pytest.FixtureRequest, _until_the_test_ends: contextlib.ExitStack
) -> Callable[..., testing.KillWorkers]:
    """Kills workers until the test ends: `lp_kill_workers(running, ["bank"], chance=0.5, every_s=0.1)`.

    The arguments are those of lp.testing.KillWorkers; the seed is that of --lp-seed.
    """
    from launchpad import testing

    def kill(*args: Any, **options: Any) -> testing.KillWorkers:
        seed = request.config.getoption("--lp-seed")
        kills = testing.KillWorkers(*args, **{"seed": seed, **options})
        request.node.stash[_SECTIONS].append(
            lambda: [(str(kills), "\n".join(map(str, kills.done)))]
        )
        return _until_the_test_ends.enter_context(kills)

    return kill


@pytest.fixture
def lp_freeze(_until_the_test_ends: contextlib.ExitStack) -> Callable[..., None]:
    """Stops a worker's process until the test ends: `lp_freeze(running, "bank-0")`."""
    from launchpad import testing

    return lambda *args: _until_the_test_ends.enter_context(testing.freeze(*args))


@pytest.fixture
def lp_throttle(_until_the_test_ends: contextlib.ExitStack) -> Callable[..., None]:
    """Slows a worker's process until the test ends: `lp_throttle(running, "bank-0", share=0.1)`."""
    from launchpad import testing

    return lambda *args, **options: _until_the_test_ends.enter_context(
        testing.throttle(*args, **options)
    )
