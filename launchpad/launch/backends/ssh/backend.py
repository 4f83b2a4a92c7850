"""`ssh`: the backend. Its workers are in `workers`."""

from __future__ import annotations

from collections.abc import Callable

from launchpad.address import COURIER
from launchpad.errors import DefinitionError
from launchpad.launch.backends.backend import Backend, Workers
from launchpad.launch.backends.remote import placement
from launchpad.launch.backends.ssh.hosts import VARIABLE, Hosts, parse
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.runtime.events import Event


class Ssh(Backend):
    """The backend for programs on a list of hosts to which the user can log in without a password.

    Args:
        hosts: The hosts: a list such as `["h1", "alice@h2:2222"]`; a mapping with options, such as
            `{"h1": {"python": "/opt/python", "address": "10.0.0.1"}}`; or a file with a host in each line.
            None means $LP_HOSTS, which is the path of such a file, or hosts with commas between.
    """

    def __init__(self, hosts: Hosts | None = None) -> None:
        self._hosts = parse(hosts)

    def endpoint(self, address: str, kind: str) -> str:
        """Return a template: the host is chosen at the launch, and the worker takes a free port there."""
        return "tcp:{node}:0" if kind == COURIER else "{node}:0"

    def assign(self, plan: LaunchPlan) -> LaunchPlan:
        """Return the plan as it is, if a list of hosts can satisfy it at all.

        Raises:
            DefinitionError: there are no hosts, or a group wants what hosts in a list don't have.
        """
        if not self._hosts:
            raise DefinitionError(
                f"launch type {plan.launch_type!r} needs hosts: hosts=['h1', 'alice@h2:2222'], or {VARIABLE}"
                " with the path of a file that has a host in each line"
            )
        why = placement.refusal(plan.workers, "hosts in a list")
        if why:
            raise DefinitionError(f"program {plan.program!r} cannot run on these hosts: {why}")
        return plan

    def create_workers(
        self, plan: LaunchPlan, run: RunDirectory, report: Callable[[Event], None]
    ) -> Workers:
        """Connect with the hosts, and prepare the workers."""
        from launchpad.launch.backends.ssh.workers import SshWorkers

        return SshWorkers(plan, run, report, self._hosts)


class TestSsh(Ssh):
    """`test_ssh`: the same as `ssh`, for unit tests."""

    __test__ = False  # pytest would take it for a test case
    is_test = True
