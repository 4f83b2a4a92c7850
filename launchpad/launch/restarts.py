"""The decision: is a worker that has ended started again? Pure: the past and the time go in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from launchpad.outcome import STOPPED, SUCCEEDED, Outcome
from launchpad.restart_policy import ALWAYS, NEVER, RestartPolicy

START_TIMEOUT = "StartTimeout"
"""The type of error of one that was not ready in time."""


class Verdict(StrEnum):
    """What to do."""

    RESTART = "restart"
    GIVE_UP = "give up"
    """It has failed for good, and the program with it."""
    LEAVE = "leave"
    """It has ended, as it should."""


class Reason(StrEnum):
    """Why. The text completes `learner-0 failed …; …`."""

    STOPPING = "the program is stopping"
    TOLD_TO = "it was told to"
    WORK_IS_DONE = "its work is done"
    NO_POLICY = "its group has no restart policy"
    OPTED_OUT = "it asked not to be started again"
    CANNOT_IMPORT = "its code cannot be imported, and another start would not change that"
    TOO_OFTEN = "it was started again too often"
    FAILED = "it failed"
    ALWAYS = "its policy says always"


@dataclass(frozen=True)
class Decision:
    """The verdict and its reason.

    `n_before` counts the restarts within the window; `delay_s` is how long this one waits.
    """

    verdict: Verdict
    reason: Reason
    delay_s: float = 0.0
    n_before: int = 0


def decide(
    policy: RestartPolicy,
    ended: Outcome,
    restarts: Sequence[float],
    now: float,
    *,
    is_stopping: bool = False,
) -> Decision:
    """What to do about a worker that has ended.

    Args:
      policy: Its group's.
      ended: How it ended.
      restarts: When (monotonic seconds) its scope was restarted before.
      now: The same clock.
      is_stopping: Whether the program is.
    """
    if ended.kind == STOPPED:
        return Decision(Verdict.LEAVE, Reason.TOLD_TO)
    if ended.kind == SUCCEEDED and (policy.mode != ALWAYS or is_stopping):
        return Decision(Verdict.LEAVE, Reason.WORK_IS_DONE)
    refusal = _refusal(policy, ended)
    if is_stopping:  # a death that the policy covers does not spoil the end of the program
        return Decision(Verdict.GIVE_UP if refusal else Verdict.LEAVE, Reason.STOPPING)
    if refusal:
        return Decision(Verdict.GIVE_UP, refusal)
    n_before = len(within(policy, restarts, now))
    if n_before >= policy.max_restarts:
        return Decision(Verdict.GIVE_UP, Reason.TOO_OFTEN, n_before=n_before)
    reason = Reason.ALWAYS if ended.kind == SUCCEEDED else Reason.FAILED
    return Decision(Verdict.RESTART, reason, policy.delay_s(n_before), n_before)


def within(policy: RestartPolicy, restarts: Sequence[float], now: float) -> list[float]:
    """Those of the restarts that still count."""
    return [at for at in restarts if now - at < policy.within_s]


def _refusal(policy: RestartPolicy, ended: Outcome) -> Reason | None:
    if policy.mode == NEVER:
        return Reason.NO_POLICY
    if not ended.may_restart:
        return Reason.OPTED_OUT
    return Reason.CANNOT_IMPORT if _cannot_import(ended) else None


def _cannot_import(ended: Outcome) -> bool:
    """Not so one that was killed meanwhile, or that was only slow."""
    is_cut_short = ended.signal or ended.error_type == START_TIMEOUT
    return ended.kind != SUCCEEDED and ended.phase == "import" and not is_cut_short
