"""Launches over `ssh`, on this machine: the login is one by `fake_ssh`, all else is as on other hosts."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.helpers import scripts
from tests.ssh import fake_ssh
from tests.waiting import until

DEADLINE_S = 60.0

PROGRAM = """
import os
import launchpad as lp
import of_mine

class Server:
    def add(self, a, b):
        return a + b

class Asker:
    def __init__(self, server):
        self._server = server

    def run(self):
        print("sum:", self._server.add(of_mine.TWO, 40))
        print("code:", of_mine.__file__)
        {more}

program = lp.Program("far")
server = program.add_node(lp.CourierNode(Server), label="server")
program.add_node(lp.PyClassNode(Asker, server), label="asker")
lp.launch(program, "ssh", hosts={hosts!r})
"""


class Project:
    """A project with a script, and hosts that are this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        self.logins = folder / "logins"
        self.env = fake_ssh.install(self.logins)
        (self.folder / "of_mine.py").write_text("TWO = 2\n")

    def before_login(self, host: str, shell: str) -> None:
        """Run shell commands when somebody logs in."""
        (self.logins / host).write_text(shell)

    def script(self, hosts: object, more: str = "lp.stop()") -> list[str]:
        script = self.folder / "script.py"
        script.write_text(PROGRAM.format(hosts=hosts, more=more))
        return [sys.executable, str(script)]

    def refusal(self, hosts: object) -> str:
        """Return the last lines of a launch that is refused."""
        done = scripts.run(self.script(hosts), env=self.env, timeout_s=DEADLINE_S)
        assert done.returncode == 1, done.stdout + done.stderr
        return done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_workers_on_hosts_have_the_code_of_the_script(project: Project) -> None:
    done = scripts.run(project.script(["h1", "h2"]), env=project.env, timeout_s=DEADLINE_S)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "sum: 42" in done.stdout
    assert re.search(r"code: /\S+/launchpad-code-\w+/of_mine.py", done.stdout)


def test_the_snippet_of_the_page_runs(project: Project) -> None:
    snippet = scripts.ROOT / "docs/snippets/on_ssh/two_hosts.py"

    done = scripts.run(
        [sys.executable, str(snippet)], env=project.env, cwd=project.folder, timeout_s=DEADLINE_S
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "hello, worker, from" in done.stdout


def test_what_a_shell_prints_at_the_login_does_no_harm(project: Project) -> None:
    project.before_login("h1", "echo Welcome to h1; echo to stderr >&2")

    done = scripts.run(project.script(["h1"]), env=project.env, timeout_s=DEADLINE_S)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "sum: 42" in done.stdout


def test_a_login_that_sshd_drops_is_tried_again(project: Project) -> None:
    project.before_login(
        "h1",
        'd=$(dirname "$0"); [ -e $d/tried ] || { touch $d/tried;'
        " echo kex_exchange_identification: Connection closed by remote host >&2; exit 255; }",
    )

    done = scripts.run(project.script(["h1"]), env=project.env, timeout_s=DEADLINE_S)

    assert done.returncode == 0, done.stdout + done.stderr
    assert (project.logins / "tried").exists()


@pytest.mark.parametrize(
    ("says", "advice"),
    [
        ("alice@h1: Permission denied (publickey).", "have your public key accepted there"),
        ("Host key verification failed.", "log in once by hand and accept the host's key: ssh h1"),
        ("ssh: connect to host h1 port 22: Connection timed out", "is it up, and may this machine"),
        ("ssh: something new", "try ssh h1 by hand"),
    ],
)
def test_a_host_that_cannot_be_reached_is_named_with_what_to_do(
    project: Project, says: str, advice: str
) -> None:
    project.before_login("h1", f"echo '{says}' >&2; exit 255")

    last = project.refusal(["h1", "h2"]).strip().splitlines()[-1]

    assert f"h1 cannot be reached: {says}: {advice}" in last


def test_what_an_earlier_try_has_printed_is_not_the_reason_of_a_later_one(project: Project) -> None:
    project.before_login(
        "h1",
        'd=$(dirname "$0"); [ -e $d/tried ] && { echo ssh: something new >&2; exit 255; };'
        " touch $d/tried; echo kex_exchange_identification: Connection closed by remote host >&2; exit 255",
    )

    last = project.refusal(["h1"]).strip().splitlines()[-1]

    assert "h1 cannot be reached: ssh: something new: try ssh h1 by hand" in last


def test_two_names_of_one_host_are_refused(project: Project) -> None:
    project.before_login("alias", "host=h2")

    last = project.refusal(["h1", "h2", "alias"]).strip().splitlines()[-1]

    assert "'h2' and 'alias' are the same host, which calls itself 'h2': give it once" in last


def test_a_host_whose_given_address_is_not_its_own_is_named(project: Project) -> None:
    last = project.refusal({"h1": {}, "h2": {"address": "192.0.2.7"}}).strip().splitlines()[-1]

    assert (
        "h2: the others cannot be given 192.0.2.7 as its address: see hosts={…: {'address'" in last
    )


def test_each_host_that_cannot_be_used_has_a_line(project: Project) -> None:
    for host in ("h1", "h3"):
        project.before_login(host, "echo 'Permission denied (publickey).' >&2; exit 255")

    *_, first, second = project.refusal(["h1", "h2", "h3"]).strip().splitlines()

    assert "h1 cannot be reached" in first
    assert "h3 cannot be reached" in second


def test_a_python_that_is_not_there_or_is_another_is_refused(
    project: Project, tmp_path: Path
) -> None:
    missing = project.refusal({"h1": {"python": "/nowhere/python"}})
    assert "/nowhere/python could not be run: name another with hosts=" in missing

    other = tmp_path / "python3.6"
    # A Python that claims another version is as good as one that has it.
    other.write_text(
        f"""#!/bin/sh
exec {sys.executable} -c 'import sys; sys.version_info = (3, 6, 1); exec(sys.argv[2])' "$@"
"""
    )
    other.chmod(0o755)
    old = project.refusal({"h1": {"python": str(other)}})
    assert "is Python 3.6, and the launcher's is 3." in old


def test_nothing_of_a_killed_launcher_is_left(project: Project) -> None:
    launcher = scripts.start(
        project.script(["h1", "h2"], more="import time; time.sleep(1000)"),
        env=scripts.environment(**project.env, PYTHONUNBUFFERED="1", TMPDIR=str(project.logins)),
    )
    try:
        until(lambda: "sum: 42" in (launcher.stdout.readline() if launcher.stdout else ""))
        started = psutil.Process(launcher.pid).children(recursive=True)
        assert len(started) >= 4
    finally:
        launcher.send_signal(signal.SIGKILL)
        launcher.communicate()

    _, left = psutil.wait_procs(started, timeout=DEADLINE_S)
    assert left == []
    until(lambda: not [n for n in os.listdir(project.logins) if n.startswith("launchpad-code-")])


def test_a_host_without_its_node_process_gives_its_workers_to_others(project: Project) -> None:
    script = project.script(
        ["h1", "h2"],
        more="""
        if lp.current().attempt == 1:
            import psutil, signal
            for process in psutil.Process().parents():
                if "bootstrap.py" in " ".join(process.cmdline()):
                    process.send_signal(signal.SIGKILL)
                    break
            import time; time.sleep(1000)
        lp.stop()
""",
    )
    text = Path(script[1]).read_text()
    Path(script[1]).write_text(text.replace("hosts=", "restart=lp.RestartPolicy(), hosts="))

    done = scripts.run(script, env=project.env, timeout_s=DEADLINE_S)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(
        r"asker-0 lost in run \(attempt 1\): its host h\d was lost: its node process has ended",
        done.stdout,
    )


GPU_PROGRAM = """
import launchpad as lp

def hold():
    print("gpus:", ",".join(lp.current().gpus), flush=True)
    lp.wait_for_stop()

program = lp.Program("holder")
with program.group("holder", resources=lp.Resources(gpus=1)):
    program.add_node(lp.PyNode(hold))
lp.launch(program, {launch_type!r}{options})
"""


def test_launches_on_a_host_never_get_the_same_gpu(project: Project, tmp_path: Path) -> None:
    gpus = {"LP_FAKE_GPUS": "2", "LAUNCHPAD_CLAIMS_DIR": str(tmp_path / "claims")}
    environment = scripts.environment(**project.env, **gpus)
    commands = []
    for launch_type, options in (("ssh", ", hosts=['h1']"), ("local_mp", "")):
        script = project.folder / f"{launch_type}.py"
        script.write_text(GPU_PROGRAM.format(launch_type=launch_type, options=options))
        commands.append([sys.executable, str(script)])

    lines = []
    with scripts.started() as start:
        for command in commands:
            holder = start(command, env=environment)
            lines.append(scripts.read_until(holder, "gpus: "))
        refused = scripts.run(commands[0], env={**project.env, **gpus}, timeout_s=DEADLINE_S)

    assert [line.rpartition(" ")[2].strip() for line in lines] == ["0", "1"]
    assert refused.returncode == 1
    assert "no GPU left, and other programs hold GPU 0, 1" in refused.stderr
