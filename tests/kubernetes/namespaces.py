"""Namespaces of the cluster of KUBECONFIG: each process of tests has one, and so sees nothing of others."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from launchpad.launch.backends.kubernetes.settings import Settings
from tests.waiting import until


@contextlib.contextmanager
def own_namespace() -> Iterator[str]:
    """A new one, for a block."""
    from kubernetes import client, config

    config.load_kube_config()
    name = f"launchpad-tests-{os.getpid()}"
    with client.ApiClient() as connection:
        core = client.CoreV1Api(connection)
        with _quiet():
            core.create_namespace({"metadata": {"name": name}})
            until(lambda: _has_account(core, name))
        try:
            yield name
        finally:
            with _quiet():
                core.delete_namespace(name)


@contextlib.contextmanager
def quota(limits: Mapping[str, str]) -> Iterator[None]:
    """A quota on the namespace of the settings, for a block, from when it counts."""
    from kubernetes import client, config

    config.load_kube_config()
    namespace = Settings.of({}).namespace
    with client.ApiClient() as connection:
        core = client.CoreV1Api(connection)
        body = {"metadata": {"name": "none-left"}, "spec": {"hard": dict(limits)}}
        with _quiet():
            core.create_namespaced_resource_quota(namespace, body)
        try:
            with _quiet():
                until(
                    lambda: core.read_namespaced_resource_quota("none-left", namespace).status.used
                )
            yield
        finally:
            with _quiet():
                core.delete_namespaced_resource_quota("none-left", namespace)


def number_of_gpus() -> int:
    """How many the nodes of the cluster have for programs."""
    from kubernetes import client, config

    config.load_kube_config()
    with client.ApiClient() as connection, _quiet():
        nodes = client.CoreV1Api(connection).list_node().items
    return sum(int(node.status.allocatable.get("nvidia.com/gpu", 0)) for node in nodes)


def _has_account(core: Any, namespace: str) -> bool:
    """Whether pods may be made there: the cluster soon gives each namespace an account for them."""
    return bool(core.list_namespaced_service_account(namespace).items)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """A cluster for tests may have a certificate that nobody vouches for."""
    import urllib3

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", urllib3.exceptions.InsecureRequestWarning)
        yield
