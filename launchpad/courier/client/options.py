"""How a client makes its calls."""

from __future__ import annotations

from dataclasses import dataclass

from launchpad.courier.call_stack import current_call


@dataclass(frozen=True)
class Options:
    """What `client.with_options(…)` changes.

    Attributes:
        timeout_s: seconds that a call may take, waiting for the server included; None is no limit.
        wait_for_ready: a call made before the server is up waits for it.
        idempotent: a call may run twice, so that courier may repeat it when its outcome is unknown.
        compress: arguments and results are compressed on the way; for slow networks.
    """

    timeout_s: float | None = None
    wait_for_ready: bool = True
    idempotent: bool = False
    compress: bool = False

    def __post_init__(self) -> None:
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise ValueError(f"a timeout is in seconds and positive, not {self.timeout_s!r}")

    def find_deadline(self, began: float) -> float | None:
        """When a call is late that began then: by its timeout, or by the call that it is made for."""
        deadline = None if self.timeout_s is None else began + self.timeout_s
        call_context = current_call.get()
        return deadline if call_context is None else call_context.limit(deadline)
