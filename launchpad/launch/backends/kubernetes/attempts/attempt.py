"""An attempt of a worker, as its launcher knows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from launchpad.launch.backends.kubernetes.attempts.endings import Told
from launchpad.launch.backends.kubernetes.cluster.follower import Follower
from launchpad.launch.backends.kubernetes.post.letters import Baggage, Wishes


@dataclass
class Attempt:
    """One attempt.

    Attributes:
      told: What is known of it besides what the cluster says.
      pod: What that says; empty while there is none.
      follower: Reads its log, once it runs.
      is_read: All of its log was.
      wishes: What it was asked for.
      noted: Why it is pending, as the user was told.
      state: What it has left for the next attempt.
      is_over: Its end was reported.
      was_deleted: Its pod was, by whomever.
    """

    told: Told
    pod: dict[str, Any] = field(default_factory=dict)
    follower: Follower | None = None
    is_read: bool = False
    wishes: Wishes = field(default_factory=Wishes)
    noted: str = ""
    state: list[Baggage] = field(default_factory=list)
    is_over: bool = False
    was_deleted: bool = False

    @property
    def pod_name(self) -> str:
        """Empty while there is none."""
        return str(self.pod.get("metadata", {}).get("name", ""))

    @property
    def uid(self) -> str:
        """Tells its pod from others of that name."""
        return str(self.pod.get("metadata", {}).get("uid", ""))
