"""The table of one problem by many systems."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples import on_digits


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("launch_type", "system"),
    [
        *(("local_mp", system) for system in on_digits.SYSTEMS),
        # That the others run there their own tests show.
        *((launch_type, "ps") for launch_type in ("local_mt", "ray", "kubernetes")),
    ],
    indirect=["launch_type"],
)
def test_a_system_solves_the_problem_by_all_its_methods_also_after_a_kill(
    run_example, launch_type, system: str, tmp_path: Path
) -> None:
    written = tmp_path / "table.json"
    done = run_example("on_digits", launch_type, "--quick", f"--only={system}", f"--json={written}")

    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row[0]: row[1:] for row in json.loads(written.read_text())}
    assert {method.partition(",")[0] for method in rows} == {"one process", system}
    for method, (read, n_bytes, staleness, distance, after_a_kill) in rows.items():
        assert float(read) >= (0.5 if "DOWNPOUR" in method else 0.9), method  # it is unstable
        assert float(distance) < 3, method
        assert (int(n_bytes.replace(",", "")) > 0) == (method != "one process"), method
        assert int(staleness) >= 0, method
        assert after_a_kill == "the same bits" or "read" in after_a_kill or method == "one process"
    if system == "ps":
        assert rows["ps, sync"][2] == "0"
        assert float(rows["ps, sync"][3]) < 1e-12
        assert rows["ps, sync"][4] == "the same bits"
