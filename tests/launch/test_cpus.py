"""How many threads of BLAS a worker is given: by affinity, and by the quota of its control group."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchpad.launch.devices import cgroup, cpus


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of control groups of which this process is in `/a/b`, on a host of 64 CPUs."""
    (tmp_path / "own").write_text("7:cpu,cpuacct:/a/b\n0::/a/b\n")
    monkeypatch.setattr(cgroup, "ROOT", str(tmp_path))
    monkeypatch.setattr(cgroup, "OWN", str(tmp_path / "own"))
    monkeypatch.setattr(cpus, "number_of_cpus", lambda: 64)
    monkeypatch.delenv(cpus.OPENMP_THREADS, raising=False)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("files", "n_threads"),
    [
        ({}, 32),
        ({"a/b/cpu.max": "max 100000\n"}, 32),
        ({"a/b/cpu.max": "350000 100000\n"}, 2),
        ({"a/b/cpu.max": "max 100000\n", "a/cpu.max": "600000 100000\n"}, 3),
        ({"cpu.max": "50000 100000\n"}, 1),  # in a container, which sees its own group as the root
        ({"a/b/cpu.max": "garbage\n"}, 32),
        ({"cpu/a/b/cpu.cfs_quota_us": "-1\n", "cpu/a/b/cpu.cfs_period_us": "100000\n"}, 32),
        ({"cpu/a/b/cpu.cfs_quota_us": "800000\n", "cpu/a/b/cpu.cfs_period_us": "100000\n"}, 4),
    ],
)
def test_two_workers_share_what_the_quota_of_their_control_group_allows(
    groups: Path, files: dict[str, str], n_threads: int
) -> None:
    for path, text in files.items():
        write(groups / path, text)

    assert cpus.number_of_threads(None, 2) == n_threads
    assert cpus.number_of_threads(3, 2) == 3
