"""`python -m launchpad doctor`: what this host has, and which launch types can run here."""

from __future__ import annotations

import json
import re
import resource
import socket
import tomllib
from pathlib import Path
from typing import Any

import pytest

from launchpad.cli import doctor
from launchpad.cli.doctor import is_installed
from launchpad.cli.main import main
from launchpad.courier import extras

ROOT = Path(__file__).parents[2]
CONFIG = """
current-context: mine
contexts: [{{name: mine, context: {{cluster: here, user: me}}}}]
clusters: [{{name: here, cluster: {{server: "https://127.0.0.1:{port}"}}}}]
"""


def diagnosed(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """The exit code, and launch type → what is found."""
    code = main(["doctor", "--json"])
    found = json.loads(capsys.readouterr().out)
    return code, {check["launch_type"]: check for check in found["launch_types"]}


@pytest.fixture(autouse=True)
def _nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LP_LAUNCH_TYPE", "RAY_ADDRESS", "KUBERNETES_SERVICE_HOST", "SPARK_MASTER"):
        monkeypatch.delenv(name, raising=False)


def test_threads_and_processes_run_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0

    text = capsys.readouterr().out
    assert "local_mt (default)  ok  a program of one worker runs" in text
    assert "local_mp            ok  a program of one worker runs" in text
    assert "ulimit -n" in text


def test_clusters_that_answer_can_be_used_and_others_are_named_with_the_next_step(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    monkeypatch.setenv("KUBECONFIG", str(config))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
        config.write_text(CONFIG.format(port=port))

        code, there = diagnosed(capsys)

    _, gone = diagnosed(capsys)

    assert code == 0
    for name, step in {"ray": "ray start --head", "kubernetes": "kubectl cluster-info"}.items():
        if is_installed(name):
            assert there[name]["can_run"], there[name]
            assert not gone[name]["can_run"]
            assert step in gone[name]["next_step"]
        else:
            assert there[name]["next_step"] == extras.install_command(name)


def test_the_exit_code_is_1_where_the_default_launch_type_cannot_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    causes = {
        "spark": "launch type 'spark', the default, cannot run here: ",
        "local_mq": "there is no launch type 'local_mq'",
    }

    for default, cause in causes.items():
        monkeypatch.setenv("LP_LAUNCH_TYPE", default)
        assert main(["doctor"]) == 1
        assert cause in capsys.readouterr().err


def test_little_of_a_limit_is_advised_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 256))

    advice = {fact.name: fact.advice for fact in doctor.host_facts()}

    assert "ulimit -n 65536" in advice["open files"]
    assert "ulimit -u 65536" in advice["processes"]


def test_the_extras_that_are_looked_for_are_those_that_there_are() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    for extra, package in doctor.EXTRAS.items():
        required = project["optional-dependencies"][extra]
        assert any(re.match(rf"{package}\b", each) for each in required), extra
