"""Tests for what a user must be allowed to do, and how a cluster is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from launchpad.errors import LaunchError
from launchpad.launch.backends.kubernetes.api import permissions
from launchpad.launch.backends.kubernetes.api.client import ApiError, Manifest
from tests.kubernetes.fake_cluster import FakeCluster

NEEDED = (("Job", "create"), ("Pod", "list"), ("Pod/log", "get"))


class Asked(FakeCluster):
    """Tells its rules, or refuses to; remembers what it was asked for one by one."""

    def __init__(self, *rules: Manifest, tells: bool = True) -> None:
        super().__init__()
        self._rules, self._tells = rules, tells
        self.asked: list[tuple[str, str]] = []

    def rules(self) -> Sequence[Manifest]:
        if not self._tells:
            raise ApiError(403, "you may not ask")
        return self._rules

    def may(self, verb: str, kind: str) -> bool:
        self.asked.append((verb, kind))
        return super().may(verb, kind)


def rule(group: str, resource: str, verb: str, **more: Any) -> Manifest:
    return {"apiGroups": [group], "resources": [resource], "verbs": [verb], **more}


ALL_NEEDED = (
    rule("batch", "jobs", "create"),
    rule("", "pods", "list"),
    rule("", "pods/log", "get"),
)


@pytest.mark.parametrize("rules", [ALL_NEEDED, (rule("*", "*", "*"),)])
def test_rights_that_the_rules_give_are_not_asked_for_one_by_one(
    rules: tuple[Manifest, ...],
) -> None:
    cluster = Asked(*rules)

    permissions.check(cluster, NEEDED)

    assert cluster.asked == []


@pytest.mark.parametrize(
    "useless",
    [
        rule("apps", "jobs", "create"),
        rule("batch", "jobs", "get"),
        rule("batch", "cronjobs", "create"),
        rule("batch", "jobs", "create", resourceNames=["mine"]),
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": None},
    ],
)
def test_a_right_that_the_rules_do_not_give_is_asked_for(useless: Manifest) -> None:
    cluster = Asked(*ALL_NEEDED[1:], useless)
    cluster.refused = {("create", "Job")}

    with pytest.raises(LaunchError, match="you may not create jobs"):
        permissions.check(cluster, NEEDED)
    assert cluster.asked == [("create", "Job")]


def test_each_of_several_rights_to_one_kind_is_looked_at() -> None:
    cluster = Asked(rule("batch", "jobs", "create"))
    cluster.refused = {("delete", "Job"), ("watch", "Job")}

    with pytest.raises(LaunchError, match="you may not delete jobs, watch jobs"):
        permissions.check(cluster, (("Job", "create delete watch"),))
    assert cluster.asked == [("delete", "Job"), ("watch", "Job")]


def test_a_right_to_pods_is_none_to_their_logs() -> None:
    cluster = Asked(*ALL_NEEDED[:2], rule("", "pods", "get"))

    permissions.check(cluster, NEEDED)

    assert cluster.asked == [("get", "Pod/log")]


def test_a_cluster_that_does_not_tell_its_rules_is_asked_for_each_right() -> None:
    cluster = Asked(tells=False)

    permissions.check(cluster, NEEDED)

    assert cluster.asked == [(verb, kind) for kind, verb in NEEDED]
