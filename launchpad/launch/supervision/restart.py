"""The decision whether to restart a worker that has ended. Pure: it depends on earlier restarts and the time.

This module also makes the outcome of a worker that is not started again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from launchpad import outcome
from launchpad.courier.light_dataclass import dataclass
from launchpad.launch.supervision.worker_state import WorkerState
from launchpad.outcome import STOPPED, SUCCEEDED, Outcome
from launchpad.restart_policy import ALWAYS, NEVER, RestartPolicy

START_TIMEOUT = "StartTimeout"
SILENT = "HeartbeatTimeout"
"""The error types of a worker that was not ready in time, and of one whose heartbeat did not come in time."""


class RestartAction(StrEnum):
    """An action that follows the end of a worker."""

    RESTART = "restart"
    GIVE_UP = "give up"
    """The worker has failed for good, and the program with it."""
    LEAVE = "leave"
    """The worker has ended, and the program goes on without it."""


class Reason(StrEnum):
    """The reason for a decision. Its text completes `learner-0 failed …; …`."""

    STOPPING = "the program is stopping"
    REQUESTED = "it was stopped"
    WORK_IS_DONE = "its work is done"
    NO_POLICY = "its group has no restart policy"
    OPTED_OUT = "it asked not to be started again"
    CANNOT_IMPORT = "its code cannot be imported, and another start would not change that"
    TOO_OFTEN = "it was started again too often"
    ENOUGH_LEFT = "its group goes on with min_replicas or more"
    FAILED = "it failed"
    ALWAYS = "its policy says always"


@dataclass(frozen=True)
class Decision:
    """A decision about a worker that has ended, and the reason for it.

    `n_before` counts the earlier restarts within the window. `delay_s` is how long this restart waits.
    """

    action: RestartAction
    reason: Reason
    delay_s: float = 0.0
    n_before: int = 0


def decide(
    policy: RestartPolicy,
    end: Outcome,
    restarts: Sequence[float],
    now: float,
    *,
    is_stopping: bool = False,
    n_left: int = 0,
) -> Decision:
    """Return what to do about a worker that has ended.

    Args:
        restarts: The times of earlier restarts in the scope of its policy.
        n_left: How many other workers of its group have not failed for good.
    """
    if end.kind == STOPPED:
        return Decision(RestartAction.LEAVE, Reason.REQUESTED)
    if end.kind == SUCCEEDED and (policy.mode != ALWAYS or is_stopping):
        return Decision(RestartAction.LEAVE, Reason.WORK_IS_DONE)
    is_cut_short = end.signal or end.error_type == START_TIMEOUT
    refusal = None
    if policy.mode == NEVER:
        refusal = Reason.NO_POLICY
    elif not end.may_restart:
        refusal = Reason.OPTED_OUT
    elif end.kind != SUCCEEDED and end.phase == "import" and not is_cut_short:
        refusal = Reason.CANNOT_IMPORT
    # While the program stops, a failure that the policy covers does not make the program fail.
    if is_stopping:
        return Decision(RestartAction.GIVE_UP if refusal else RestartAction.LEAVE, Reason.STOPPING)
    goes_on = policy.min_replicas is not None and n_left >= policy.min_replicas
    if refusal:
        if goes_on and refusal is Reason.NO_POLICY:
            return Decision(RestartAction.LEAVE, Reason.ENOUGH_LEFT)
        return Decision(RestartAction.GIVE_UP, refusal)
    n_before = sum(now - at < policy.within_s for at in restarts)
    if n_before >= policy.max_restarts:
        if goes_on:
            return Decision(RestartAction.LEAVE, Reason.ENOUGH_LEFT, n_before=n_before)
        return Decision(RestartAction.GIVE_UP, Reason.TOO_OFTEN, n_before=n_before)
    reason = Reason.ALWAYS if end.kind == SUCCEEDED else Reason.FAILED
    return Decision(RestartAction.RESTART, reason, policy.delay_s(n_before), n_before)


def given_up(worker: WorkerState, end: Outcome, reason: Reason, earlier: Sequence[str]) -> Outcome:
    """Return the outcome of a worker that is not started again, with the reason and its earlier failures.

    Args:
        earlier: The headlines of the earlier failures.
    """
    hint = "" if reason in (Reason.NO_POLICY, Reason.STOPPING) else f"not started again: {reason}"
    if reason is Reason.TOO_OFTEN:
        policy = worker.plan.policy.restart
        hint = (
            f"not started again: it had {len(earlier)} of the restarts that its policy allows"
            f" (max_restarts={policy.max_restarts}, within_s={policy.within_s:g})"
        )
        cause = end.cause or "it ended, and its policy says always"
        end = replace(end, kind=outcome.FAILED, cause=cause)
    hint = "; ".join(filter(None, (end.hint, hint)))
    return replace(end, hint=hint, earlier=tuple(earlier))
