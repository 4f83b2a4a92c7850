"""VS Code stops at breakpoints in workers that are processes: its protocol, spoken with debugpy."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from tests.helpers import scripts
from tests.helpers.debug_client import DebugClient

SCRIPT = """
import launchpad as lp

def work(number):
    double = 2 * number
    return double

if __name__ == "__main__":
    program = lp.Program("debugged")
    with program.group("worker"):
        for number in range(2):
            program.add_node(lp.PyNode(work, number))
    print("returned", sorted(lp.run(program, "local_mp")["worker"]))
"""
LINE = 6


def test_breakpoints_stop_in_workers_of_a_script_that_debugpy_debugs(tmp_path: Path) -> None:
    pytest.importorskip("debugpy")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    debugged = (sys.executable, "-m", "debugpy", "--listen", f"127.0.0.1:{port}")
    process = scripts.start([*debugged, "--wait-for-client", str(script)], cwd=tmp_path)
    clients = []
    try:
        launcher = DebugClient(port)
        clients.append(launcher)
        launcher.attach(script, LINE, {"subProcess": True})
        stopped = []
        for _ in range(2):
            announced = launcher.event("debugpyAttach", "terminated")
            assert announced["event"] == "debugpyAttach", announced
            worker = DebugClient(port)
            clients.append(worker)
            worker.attach(script, LINE, announced["body"])
            thread = worker.event("stopped")["body"]["threadId"]
            frame = worker.ask("stackTrace", threadId=thread)["stackFrames"][0]
            double = worker.ask("evaluate", expression="double", frameId=frame["id"])["result"]
            stopped.append((frame["name"], frame["line"], double))
            worker.ask("continue", threadId=thread)
        launcher.event("terminated")
    except BaseException:
        process.kill()
        raise
    finally:
        for client in clients:  # the adapter has the script's output open until they are gone
            client.close()
        printed, _ = process.communicate(timeout=60)

    assert sorted(stopped) == [("work", LINE, "0"), ("work", LINE, "2")]
    assert "returned [0, 2]" in printed
    assert process.returncode == 0
