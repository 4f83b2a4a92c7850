from __future__ import annotations

import pytest

from examples.hello_world.program import Greeter


def test_greeter_greets_by_name() -> None:
    assert Greeter().greet("Ada") == "Hello, Ada!"


def test_hello_world_greets_the_world(run_example, launch_type) -> None:
    done = run_example("hello_world", launch_type)

    assert done.returncode == 0, done.stderr
    assert "the greeting is right" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("launch_type", ["spark"], indirect=True)
def test_hello_world_greets_the_world_on_spark(run_example, launch_type) -> None:
    done = run_example("hello_world", launch_type)

    assert done.returncode == 0, done.stderr
    assert "the greeting is right" in done.stdout


def test_hello_world_reports_a_greeter_that_raises(
    assert_failure_is_reported, podless_type
) -> None:
    # The greeter serves on; it is the visitor, who was not answered, that fails.
    assert_failure_is_reported(
        "hello_world", podless_type, broken="Greeter.greet", worker="visitor"
    )
