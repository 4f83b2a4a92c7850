"""A slot of an agent: it asks the master for work, and is a rank of a trial until the trial leaves it."""

import math
import pickle
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import threadpoolctl

import launchpad as lp
from examples.systems.determined.master import Master


@lp.serves(only=["give"])
class Slot:
    """A slot, and the context of its trial: one of `size` ranks, which all make the same calls."""

    def __init__(self, master: lp.CourierClient[Master], slots: Mapping[str, Any]) -> None:
        threadpoolctl.threadpool_limits(1)  # with more, the bits depend on how many
        self._me = lp.current()
        self._master = master
        self._slots = {**slots, self._me.name: self}
        self._inboxes: dict[int, lp.Inbox[tuple[int, str], Any]] = {}

    def run(self) -> None:
        """Run one trial after another, until the program ends."""
        done = 0
        while True:
            while (trial := self._master.work(self._me.name, self._me.attempt, done)) is None:
                time.sleep(0.01)
            done = trial.run
            self._trial = trial
            self._inbox = self._inboxes.setdefault(done, lp.Inbox())
            self._n_gathered = 0
            self.rank = list(trial.slots).index(self._me.name)
            self.size = len(trial.slots)
            self.seed = trial.number
            self.should_stop = False
            with suppress(lp.PeerFailed):
                trial.experiment.train(self, trial.hparams)
                assert self.should_stop, f"{trial.name} has returned before the end of steps()"
            self._inbox.close(lp.PeerFailed(f"{self._me.name} has left run {done}"))

    def load(self, first: Any) -> Any:
        """Return the trial's last checkpoint; `first` if it has no checkpoint yet."""
        return pickle.loads(self._trial.checkpoint) if self._trial.checkpoint else first

    def steps(self) -> Iterator[int]:
        """Yield the steps after the checkpoint, until the trial should stop. Report each of them."""
        step = len(self._trial.metrics)
        while not self.should_stop:
            step += 1
            yield step

    def report(self, step: int, metric: float, checkpoint: object) -> None:
        """Report the end of a step: a metric, the smaller the better, and a checkpoint."""
        metric = metric if math.isfinite(metric) else math.inf
        report = self._me.name, self._trial.run, step, metric, pickle.dumps(checkpoint)
        goes_on = self.rank > 0 or self._master.report(*report)
        self.should_stop = not self.gather(goes_on)[0]

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in their order."""
        call = self._trial.run, self._n_gathered, self._me.name
        self._n_gathered += 1
        slots = self._trial.slots
        for name in slots:
            self._inbox.put((call[1], name), value)
        try:
            return [self._slots[name].give(attempt, *call) for name, attempt in slots.items()]
        except lp.courier.CourierError as error:
            raise lp.PeerFailed(f"a rank of run {self._trial.run} has died") from error

    def give(self, attempt: int, run: int, n: int, receiver: str) -> Any:
        """Return the n-th value that this rank gathers in a run. Wait until it is there."""
        if attempt != self._me.attempt:
            raise lp.PeerFailed(f"attempt {attempt} of {self._me.name} has died")
        return self._inboxes.setdefault(run, lp.Inbox()).take((n, receiver))
