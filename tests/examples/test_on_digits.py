"""The table of one problem by many systems."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

import launchpad as lp
from examples import on_digits
from examples._shared.data import Data
from examples._shared.places import module_of
from examples._shared.problem import Problem

QUICKEST = "byteps"
IN_STEP = {"ps, sync", "byteps", "horovod", "gpipe, more layers", "big_dl"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "system",
    [
        pytest.param(name, marks=[] if name == QUICKEST else [pytest.mark.endurance])
        for name in on_digits.SYSTEMS
    ],
)
def test_a_system_solves_the_problem_by_all_its_methods_also_after_a_kill(
    run_example, system: str, tmp_path: Path
) -> None:
    written = tmp_path / "table.json"

    run_example("on_digits", "local_mp", "--quick", f"--only={system}", f"--json={written}")

    rows = {row[0]: row[1:] for row in json.loads(written.read_text())}
    del rows["one process"]
    assert {method.partition(",")[0] for method in rows} == {system}
    for method, (recognised, n_bytes, staleness, distance, after_a_kill) in rows.items():
        is_in_step = method in IN_STEP
        assert float(recognised) >= (0.5 if "DOWNPOUR" in method else 0.9), method  # it is unstable
        assert float(distance) < (1e-12 if is_in_step else 3), method
        assert int(n_bytes.replace(",", "")) > 0, method
        assert staleness == "0" or (staleness.isdigit() and not is_in_step), method
        assert after_a_kill == "the same bits" or ("recognised" in after_a_kill and not is_in_step)


@pytest.mark.parametrize("method", ["big_dl", "elephas, asynchronous", "dist_keras, ADAG"])
def test_a_run_that_was_to_be_disturbed_and_was_not_is_refused(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LP_LAUNCH_TYPE", "test_mt")
    monkeypatch.setattr(lp.testing, "crash", lambda: None)
    system = importlib.import_module(f"{module_of(method.partition(',')[0])}.on_digits")
    few = Data(np.random.default_rng(0).random((99, 64)), np.arange(99) % 10)

    with pytest.raises(RuntimeError, match="to be killed"):
        system.METHODS[method](Problem(few, workers=2, steps=8), True)
