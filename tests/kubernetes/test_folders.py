"""Where tests on a cluster are looked for."""

from __future__ import annotations

from pathlib import Path

from tests.faults import backends

SCRIPT = Path(__file__).parents[2] / ".ci" / "on_a_cluster"


def test_ci_looks_for_tests_on_a_cluster_wherever_there_are_some() -> None:
    (line,) = (each for each in SCRIPT.read_text().splitlines() if each.startswith("folders="))
    folders = line.removeprefix("folders=").strip('"').split()

    assert set(folders) == {f"tests/{name}" for name in backends.ON_KUBERNETES}
