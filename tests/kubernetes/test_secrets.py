"""Keys, code and arguments of a run are in Secrets, and nowhere else."""

from __future__ import annotations

import base64
import json

import pytest

import launchpad as lp
from launchpad.launch.backends.kubernetes.api.client import Cluster
from tests.helpers import pod_nodes
from tests.helpers.leaked_secrets import assert_in_none, files_below, forms_of_secrets, of_processes
from tests.waiting import until

pytestmark = pytest.mark.slow

KINDS = ("Job", "Pod", "Service")


def test_what_is_secret_stands_in_secrets_only(api: Cluster) -> None:
    password = b"the password of the user's own"
    program = lp.Program("secret")
    key = "a key in the environment"
    with program.group("keeper", resources=lp.Resources(env={"API_KEY": key})):
        program.add_node(lp.PyNode(pod_nodes.keeps, password))
    program.add_node(lp.CourierNode(pod_nodes.Server), label="server")

    with lp.launch(program, "test_kubernetes") as running:
        until(lambda: f"kept {len(password)} {len(key)}" in running.logs("keeper"))
        until(lambda: all(status.state == "running" for status in running.status()))
        secrets = [*forms_of_secrets(running), password, base64.b64encode(password)]
        objects = {
            kind: json.dumps(api.list(kind, "launchpad/program=secret")[0]).encode()
            for kind in KINDS
        }
        names = [pod["metadata"]["name"] for pod in api.list("Pod", "launchpad/program=secret")[0]]
        logs = {name: b"\n".join(api.log(name, follow=False)) for name in names}
        of_others = of_processes("cmdline") | of_processes("environ")
        running.stop()

    assert len(logs) == 2
    assert_in_none("objects", objects, [*secrets, key.encode()])
    assert_in_none("what pods print", logs, secrets)
    assert_in_none("command lines and environments", of_others, secrets)
    assert_in_none("logs of the run", files_below(running.log_directory), secrets)
