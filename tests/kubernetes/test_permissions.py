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

    def __init__(self, rules: Sequence[Manifest] | None) -> None:
        super().__init__()
        self._rules = rules
        self.asked: list[tuple[str, str]] = []

    def rules(self) -> Sequence[Manifest]:
        if self._rules is None:
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


@pytest.mark.parametrize(
    ("rules", "asked"),
    [
        (ALL_NEEDED, []),
        ([rule("*", "*", "*")], []),
        ([*ALL_NEEDED[1:], rule("apps", "jobs", "create")], [("create", "Job")]),
        ([*ALL_NEEDED[1:], rule("batch", "jobs", "get")], [("create", "Job")]),
        (
            [*ALL_NEEDED[1:], rule("batch", "jobs", "create", resourceNames=["mine"])],
            [("create", "Job")],
        ),
        (
            [*ALL_NEEDED[1:], {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": None}],
            [("create", "Job")],
        ),
        # A right to pods is none to their logs.
        ([*ALL_NEEDED[:2], rule("", "pods", "get")], [("get", "Pod/log")]),
        (None, [(verb, kind) for kind, verb in NEEDED]),
    ],
)
def test_rights_that_no_rule_gives_are_asked_for(
    rules: Sequence[Manifest] | None, asked: list[tuple[str, str]]
) -> None:
    cluster = Asked(rules)

    permissions.check(cluster, NEEDED)

    assert cluster.asked == asked


def test_each_of_several_rights_to_one_kind_is_looked_at() -> None:
    cluster = Asked([rule("batch", "jobs", "create")])
    cluster.refused = {("delete", "Job"), ("watch", "Job")}

    with pytest.raises(LaunchError, match="you may not delete jobs, watch jobs"):
        permissions.check(cluster, (("Job", "create delete watch"),))
    assert cluster.asked == [("delete", "Job"), ("watch", "Job")]
