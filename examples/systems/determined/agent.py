"""An agent's slot: it asks the master for work, and is a rank of a trial until the trial leaves it.

Ranks of a trial ask each other for their gradients, over edges from slot to slot:

    rank 0 ◀──give──▶ rank 1        the master tells each of them on which slots the others are
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeVar, cast

import threadpoolctl

import launchpad as lp
from examples._shared.data import Array, Data
from examples.systems.determined import training
from examples.systems.determined.master import Master, Work
from examples.systems.determined.user import User

Given = TypeVar("Given")
Answer = TypeVar("Answer")


class Kill(NamedTuple):
    """A kill of a slot when it begins this epoch, counted over its trials with at least `ranks` ranks."""

    epoch: int
    ranks: int = 1


class GangLost(Exception):
    """Another rank of the trial is no longer there."""


class Slot:
    """One of an agent's slots. It runs one trial at a time.

    Args:
        pool: A label, `cpu` or `gpu`. The master gives the slot trials for this pool.
        data: The digits to train on, and those that are held out.
        kills: The attempts in which the slot dies, and when.
        slots: All slots of all agents, by name.
    """

    def __init__(
        self,
        pool: str,
        data: tuple[Data, Data],
        kills: dict[int, Kill],
        master: lp.CourierClient[Master],
        user: lp.CourierClient[User],
        slots: dict[str, lp.CourierClient[Slot]],
    ) -> None:
        threadpoolctl.threadpool_limits(1)  # with more, the bits depend on how many
        self._name = lp.current().name
        self._pool = pool
        self._data = data
        self._master = master
        self._user = user
        self._slots = slots
        self._kill = kills.get(lp.current().attempt)
        self._epochs = 0
        self._changed = threading.Condition()
        self._given: dict[tuple[int, int], object] = {}
        self._over = 0  # allocations up to this number are over for this slot
        self._stop = lp.stop_event()
        lp.register_stop_handler(self._wake)

    def run(self) -> int:
        """Work until there is nothing left to do. Return the attempt."""
        while True:
            work = self._next_work()
            if work is None:
                return lp.current().attempt
            self._user.saw(work.allocation, work.trial, work.epochs)
            with suppress(GangLost):
                self._train(work)

    def give(self, allocation: int, step: int) -> object:
        """Return this rank's value in a step of an allocation. Wait until the rank gets to that step."""
        key = (allocation, step)
        with self._changed:
            self._changed.wait_for(
                lambda: key in self._given or allocation <= self._over or self._stop.is_set()
            )
            if key not in self._given:
                raise GangLost(f"{self._name} has left allocation {allocation}")
            return self._given[key]

    def _next_work(self) -> Work | None:
        self._user.saw(0, 0, 0)
        newest = self._master.free(self._name, self._pool)
        with self._changed:
            self._over = newest
            self._given.clear()
            self._changed.notify_all()
        answer = lp.submit(self._master.work, self._name)
        answer.add_done_callback(lambda _: self._wake())
        with self._changed:
            self._changed.wait_for(lambda: answer.done() or self._stop.is_set())
        self._raise_if_stopped()
        return answer.result()

    def _train(self, work: Work) -> None:
        rank = work.slots.index(self._name)
        size = len(work.slots)
        steps = itertools.count()
        training_data, held_out = self._data

        def gradients(parameters: Array, batch: Data) -> list[Array]:
            own = training.part_gradient(parameters, batch, rank, size)
            return self._exchange(work, next(steps), own)

        def ask(question: Callable[..., Answer], *args: object) -> Answer:
            """Let rank 0 ask the master, and tell all ranks the answer."""
            answer = question(work.allocation, *args) if rank == 0 else None
            return cast(Answer, self._exchange(work, next(steps), answer)[0])

        parameters = work.parameters
        epochs = work.epochs
        target = work.target
        if parameters is None:
            parameters = training.first_parameters(work.number)
        while target:
            for epoch in range(epochs, target):
                self._begin_epoch(size)
                parameters = training.train_epoch(
                    parameters, work.hyperparameters, training_data, epoch, gradients
                )
                if not ask(self._master.goes_on):
                    ask(self._master.save, epoch + 1, parameters)
                    return
            epochs = target
            loss = training.loss(parameters, held_out)
            target = ask(self._master.report, epochs, loss, parameters)

    def _exchange(self, work: Work, step: int, value: Given) -> list[Given]:
        """Give this rank's value to the others. Return the values of all ranks, in their order."""
        with self._changed:
            self._given[work.allocation, step] = value
            # All ranks have got to the last step, so they have the values of the step before it.
            self._given.pop((work.allocation, step - 2), None)
            self._changed.notify_all()
        try:
            by_slot = {
                name: cast(Given, self._slots[name].give(work.allocation, step))
                for name in work.slots
                if name != self._name
            }
        except (lp.courier.OutcomeUnknown, lp.courier.WorkerFailed) as error:
            raise GangLost(f"a rank of allocation {work.allocation} has died") from error
        return [by_slot.get(name, value) for name in work.slots]

    def _begin_epoch(self, ranks: int) -> None:
        self._raise_if_stopped()
        if self._kill is not None and ranks >= self._kill.ranks:
            self._epochs += 1
            if self._epochs == self._kill.epoch:
                lp.testing.crash()

    def _raise_if_stopped(self) -> None:
        if self._stop.is_set():
            raise lp.Stopped(f"{self._name} has ended")

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
