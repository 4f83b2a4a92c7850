"""Logins between hosts over ssh."""

from __future__ import annotations

import subprocess
import sys

from tests.hosts.network import Network
from tests.hosts.sshd import USER, Sshd, ssh


def test_the_user_can_log_in_from_any_host_to_any_other(ssh_network: Network, sshd: Sshd) -> None:
    pairs = [(source, goal) for source in ssh_network.hosts for goal in ssh_network.hosts]

    logins = [
        source.popen(ssh(goal.name, "hostname; whoami"), user=USER, stdout=subprocess.PIPE)
        for source, goal in pairs
    ]

    answers = [login.communicate()[0].split() for login in logins]
    assert answers == [[goal.name, USER] for _, goal in pairs]


def test_the_user_can_run_this_interpreter(ssh_network: Network, sshd: Sshd) -> None:
    h1 = ssh_network.hosts[0]

    done = h1.run(ssh("h2", sys.executable, "-c", "'import launchpad; print(1)'"), user=USER)

    assert done.stdout == "1\n"


def test_a_host_whose_key_is_unknown_is_refused(ssh_network: Network, sshd: Sshd) -> None:
    h1 = ssh_network.hosts[0]
    sshd.forget_hosts(h1)

    done = h1.run(ssh("h2", "true"), user=USER, check=False)

    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


def test_a_user_without_a_key_is_refused(ssh_network: Network, sshd: Sshd) -> None:
    h1 = ssh_network.hosts[0]
    sshd.lose_key(h1)

    done = h1.run(ssh("h2", "true"), user=USER, check=False)

    assert done.returncode == 255
    assert "Permission denied (publickey)" in done.stderr


def test_the_daemon_of_a_host_that_was_booted_is_started_again(
    ssh_network: Network, sshd: Sshd
) -> None:
    h1, h2 = ssh_network.hosts[:2]
    h2.lose_power()
    ssh_network.boot(h2)
    refused = h1.run(ssh("h2", "true"), user=USER, check=False)

    sshd.restore()

    assert "Connection refused" in refused.stderr
    h1.run(ssh("h2", "true"), user=USER)
