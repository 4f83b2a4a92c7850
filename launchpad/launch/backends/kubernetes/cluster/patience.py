"""Patience with a cluster that may be out of reach, or busy, for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from launchpad.launch.backends.kubernetes.cluster.cluster import Refused, Unreachable, is_passing

T = TypeVar("T")

_SILENCE_S = 60.0


class Patience:
    """Of somebody who asks again and again."""

    def __init__(self) -> None:
        self._silent_since: float | None = None

    def ask(self, call: Callable[[], T], otherwise: T) -> T:
        """What a call gives; `otherwise` while the cluster has not been silent for long.

        Raises:
          Refused: it has answered, and another time would change nothing.
          Unreachable: it has been silent for a minute.
        """
        try:
            answer = call()
        except (Refused, Unreachable) as error:
            since = self._silent_since = self._silent_since or time.monotonic()
            if not is_passing(error) or time.monotonic() - since > _SILENCE_S:
                raise
            return otherwise
        self._silent_since = None
        return answer
