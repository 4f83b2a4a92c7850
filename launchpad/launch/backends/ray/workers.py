"""The workers of one launch on a Ray cluster.

    supervisor ── start, ask, kill … ──▶ actions, in one thread ── Ray calls ──▶ outposts, one for each worker
    supervisor ◀── reports ───────────────────┘ ◀── news ───────────────┘

Everything happens in that thread, one thing after the other: commands, what outposts say, what they die of. A
dead outpost, and so a dead node, is one more way for a worker to end; started again, it gets a new one,
wherever Ray has room for its gang.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from launchpad import outcome
from launchpad.errors import LaunchError
from launchpad.launch.backend import Born, Bound, Ended, Noted, Report, Workers
from launchpad.launch.backends.actions import Actions
from launchpad.launch.backends.mirror import Mirror
from launchpad.launch.backends.origin import Keys, Origin
from launchpad.launch.backends.ray import cluster, placement, room
from launchpad.launch.backends.ray.gangs import gangs_of
from launchpad.launch.backends.ray.orders import News, Opened, Orders
from launchpad.launch.backends.ray.outpost import Outpost
from launchpad.launch.backends.ray.placement import Placement
from launchpad.launch.backends.ray.places import Places
from launchpad.launch.backends.ray.post import Post
from launchpad.launch.backends.view import View
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.run_directory import RunDirectory
from launchpad.outcome import Outcome

_ANSWER_S = 5.0
"""How long an outpost may take for what it does at once, before its node is taken for lost."""

_WORTH_TELLING_S = 1.0
"""Room that is there takes Ray less to give."""

_AT_ONCE = 1000
"""Calls of one outpost that may wait side by side: there is one for its news, others take no time."""


class RayWorkers(Workers):
    """One launch. Connects to the cluster and reserves room; nothing of the user's runs yet.

    Raises:
      LaunchError: there is no cluster, or it can never hold this program: then with the arithmetic.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        run: RunDirectory,
        report: Callable[[Report], None],
        origin: Origin,
    ) -> None:
        self._plan, self._run, self._report, self._origin = plan, run, report, origin
        self._posts: dict[str, Post] = {}
        self._waiting: set[str] = set()
        self._alive: dict[str, int] = {}
        self._gone: dict[str, str] = {}
        self._places = Places()
        self._is_hurried = False
        self._broken = ""
        self._actions = Actions("launchpad-outposts", self._collapse)
        self._keys = Keys.of(run.scope, plan.launch_type.removeprefix("test_"))
        self._view = View(self._keys)
        cluster.connect()
        try:
            self._node, self._ip = cluster.here()
            self._placements = self._reserve()
            self._outpost = cluster.load().remote(Outpost)
            self._actions.begin()
        except BaseException:
            cluster.release()
            raise

    def start(self, worker: str, attempt: int) -> None:
        """Starts it at its outpost; makes one if there is none."""
        self._do(self._start, worker, attempt)

    def ask(self, worker: str, *, restarts: bool = False) -> None:
        """Tells it."""
        self._do(self._ask, worker, restarts)

    def kill(self, worker: str) -> None:
        """Kills its process, and its actor if that does not answer."""
        self._do(self._kill, worker)

    def hurry(self) -> None:
        """For all kills to come."""
        self._is_hurried = True

    def tell_gone(self, worker: str, why: str) -> None:
        """Tells all."""
        self._do(self._tell_gone, worker, why)

    def places(self) -> Mapping[str, str]:
        """As this process sees them."""
        return self._view.places

    def stacks(self, worker: str) -> str:
        """What faulthandler writes in its process."""
        post = self._posts.get(worker)
        if post is None or post.opened is None:
            return ""
        try:
            return str(cluster.load().get(post.actor.stacks.remote(), timeout=_ANSWER_S))
        except Exception as error:
            return f"({worker} does not answer: {error})\n"

    def close(self) -> None:
        """Ends all outposts, gives the room back, and leaves the cluster."""
        self._actions.end(self._close)
        cluster.release()

    # The thread.

    def _do(self, action: Callable[..., object], *arguments: Any) -> None:
        self._actions.do(self._act, action, *arguments)

    def _later(self, delay_s: float, action: Callable[..., object], *arguments: Any) -> None:
        self._actions.later(delay_s, self._act, action, *arguments)

    def _act(self, action: Callable[..., object], *arguments: Any) -> None:
        if not self._broken:
            cluster.check()
        action(*arguments)

    def _collapse(self, error: Exception) -> None:
        """Without its cluster the launch has no workers any more; nor will it get others."""
        self._broken = f"the Ray cluster cannot be used any more: {type(error).__name__}: {error}"
        posts, self._posts = self._posts, {}
        self._waiting.clear()
        for post in posts.values():
            post.close_log()
            with contextlib.suppress(Exception):  # if it is not the cluster that is gone
                cluster.check()
                post.end()
        for worker, attempt in list(self._alive.items()):
            ran = worker in posts and posts[worker].opened is not None
            kind, phase = (outcome.LOST, "run") if ran else (outcome.FAILED, "start")
            self._report_end(Outcome(worker, kind, phase, attempt, self._broken))

    def _report_end(self, ended: Outcome) -> None:
        self._alive.pop(ended.worker, None)
        self._report(Ended(ended))

    # Room.

    def _reserve(self) -> dict[str, Placement]:
        """Worker → the room of its gang."""
        gangs = gangs_of(self._plan.workers)
        refused = room.refusal(gangs, cluster.nodes()) if gangs else ""
        if refused:
            raise LaunchError(
                f"program {self._plan.program!r} does not fit on the Ray cluster: {refused}"
            )
        placements = [
            Placement(gang, lambda placed: self._do(self._on_room, placed)) for gang in gangs
        ]
        return {worker: placed for placed in placements for worker in placed.gang.workers}

    def _on_room(self, placed: Placement) -> None:
        placed.is_ready = True
        for worker in placed.gang.workers:
            if worker in self._waiting:
                self._waiting.remove(worker)
                self._start(worker, self._alive[worker])

    def _wait_for_room(self, worker: str, attempt: int, placed: Placement) -> None:
        self._waiting.add(worker)
        self._later(_WORTH_TELLING_S, self._tell_of_waiting, worker, placed)
        self._later(placement.PENDING_S, self._give_up, worker, attempt, placed)

    def _tell_of_waiting(self, worker: str, placed: Placement) -> None:
        if worker in self._waiting:
            self._note(worker, f"waiting for room: {placed.why_not()}")

    def _give_up(self, worker: str, attempt: int, placed: Placement) -> None:
        """Nobody has left that room."""
        if worker not in self._waiting or self._alive[worker] != attempt:
            return
        self._waiting.remove(worker)
        why = f"no room on the Ray cluster for {placement.PENDING_S:g} s: {placed.why_not()}"
        hint = "wait for the programs that have it now, or ask for less"
        self._report_end(Outcome(worker, outcome.FAILED, "start", attempt, why, hint=hint))

    # Commands.

    def _start(self, worker: str, attempt: int) -> None:
        self._alive[worker] = attempt
        placed = self._placements.get(worker)
        post = self._posts.get(worker)
        if self._broken:
            self._report_end(Outcome(worker, outcome.FAILED, "start", attempt, self._broken))
        elif post is not None:
            post.attempt, post.killed = attempt, False
            self._begin(post)
        elif placed is not None and not placed.is_ready:
            self._wait_for_room(worker, attempt, placed)
        else:
            self._open(Post(worker, self._new_outpost(worker), attempt))

    def _new_outpost(self, worker: str) -> Any:
        placed = self._placements.get(worker)
        options = placed.options(worker) if placed is not None else placement.free_options()
        return self._outpost.options(max_concurrency=_AT_ONCE, **options).remote()

    def _open(self, post: Post) -> None:
        self._posts[post.worker] = post
        orders = Orders(
            program=self._plan.program,
            launch_type=self._plan.launch_type,
            worker=self._plan.worker(post.worker),
            origin=self._origin,
            state=str(self._run.state(post.worker)),
        )
        self._ask_post(post, "open", self._on_opened, orders, self._keys)

    def _begin(self, post: Post) -> None:
        """Starts the attempt, if the outpost is ready; else that is done when it is."""
        if post.opened is None:
            return
        log = self._run.log(post.worker, post.attempt)
        post.mirror = Mirror(log, self._run.rotation, partial(self._note, post.worker))
        post.tell("start", post.attempt, self._places.seen_from(post.opened.node))
        for worker, why in self._gone.items():  # who is not born yet would not hear it
            post.tell("tell_gone", worker, why)

    def _ask(self, worker: str, restarts: bool) -> None:
        post = self._posts.get(worker)
        if post is not None and post.opened is not None:
            post.tell("ask", restarts)
        else:
            self._drop(worker, "stopped before it was started")

    def _kill(self, worker: str) -> None:
        post = self._posts.get(worker)
        if post is None or post.opened is None:
            self._drop(worker, "ended before it was started")
            return
        post.killed = True
        post.tell("kill", self._is_hurried)
        self._later(_ANSWER_S, self._insist, post, post.attempt)

    def _insist(self, post: Post, attempt: int) -> None:
        if attempt and post.attempt == attempt and self._posts.get(post.worker) is post:
            post.end()

    def _drop(self, worker: str, why: str) -> None:
        """Ends an attempt of which nothing runs yet."""
        attempt = self._alive[worker] if worker in self._waiting else 0
        self._waiting.discard(worker)
        post = self._posts.pop(worker, None)
        if post is not None:
            attempt = post.attempt
            post.end()
        if attempt:
            self._report_end(Outcome(worker, outcome.STOPPED, "start", attempt, why))

    def _tell_gone(self, worker: str, why: str) -> None:
        self._gone[worker] = why
        for post in self._opened():
            post.tell("tell_gone", worker, why)

    # What outposts say.

    def _ask_post(
        self, post: Post, method: str, then: Callable[[Post, Any], None], *arguments: Any
    ) -> None:
        post.ask(method, lambda future: self._do(self._on_answer, post, then, future), *arguments)

    def _on_answer(
        self, post: Post, then: Callable[[Post, Any], None], future: Future[Any]
    ) -> None:
        if self._posts.get(post.worker) is not post:
            return
        error = future.exception()
        if error is not None:
            self._bury(post, error)
        else:
            then(post, future.result())

    def _on_opened(self, post: Post, opened: Opened) -> None:
        post.opened = opened
        self._begin(post)
        self._ask_post(post, "news", self._on_news)

    def _on_news(self, post: Post, news: News) -> None:
        self._ask_post(post, "news", self._on_news)
        if news.log and post.mirror is not None and news.attempt == post.attempt:
            post.mirror.write(news.log)
        for report in news.reports:
            self._on_report(post, report)

    def _on_report(self, post: Post, report: Any) -> None:
        assert post.opened is not None
        if isinstance(report, Bound):
            self._places.bind(report.address, post.opened.node, report.endpoints)
            self._publish([report.address])
        elif isinstance(report, Ended):
            self._end(post, report.outcome)
            if report.outcome.kind == outcome.LOST:
                self._leave(post)
        elif not isinstance(report, Born) or post.opened.ip == self._ip:
            self._report(report)  # a process of another host has no number here

    def _bury(self, post: Post, error: BaseException) -> None:
        """The outpost is dead, or out of reach: then Ray ends it, before there is another one."""
        post.end()
        placed = self._placements.get(post.worker)
        if placed is not None and placed.is_ready and placed.is_lost():
            placed.wait()
        del self._posts[post.worker]
        if placed is not None and post.never_ran(error):
            self._start(post.worker, post.attempt)  # Ray did not know that the node was dead
        elif post.attempt:
            self._end(post, post.lost(error))

    def _leave(self, post: Post) -> None:
        """The host of its worker is dead, and would be at the next attempt: that gets another outpost."""
        del self._posts[post.worker]
        post.end()

    def _end(self, post: Post, ended: Outcome) -> None:
        post.close_log()
        post.attempt = 0
        self._publish(self._places.withdraw(post.worker))
        self._report_end(ended)

    def _publish(self, addresses: list[str]) -> None:
        """Lets everybody know where these are now."""
        if not addresses:
            return
        for post in self._opened():
            assert post.opened is not None
            post.tell("place", self._places.seen_from(post.opened.node, addresses))
        self._view.follow(self._places.seen_from(self._node, addresses))

    def _opened(self) -> list[Post]:
        return [post for post in self._posts.values() if post.opened is not None]

    def _note(self, worker: str, text: str) -> None:
        self._report(Noted(worker, text))

    # The end.

    def _close(self) -> None:
        self._view.close()
        for post in self._posts.values():
            post.close_log()
        with contextlib.suppress(Exception):  # a cluster that is gone has nothing of ours
            cluster.check()
            self._clear_away()

    def _clear_away(self) -> None:
        closing = [post.actor.close.remote() for post in self._opened()]
        if closing:
            cluster.load().wait(closing, num_returns=len(closing), timeout=_ANSWER_S)
        for post in self._posts.values():
            post.end()
        for placed in {id(p): p for p in self._placements.values()}.values():
            placed.remove()
