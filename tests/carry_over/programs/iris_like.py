"""As iris: a coordinator that maximises a function by random search, by clients of its workers.

It has an evaluator, a second coordinator that others call, whose `run()` is switched off.
"""

import pathlib
import pickle
from collections.abc import Sequence

import numpy as np
from absl import app, flags

import courier
import launchpad as lp

_LOGDIR = flags.DEFINE_string("logdir", None, "Where results are written.", required=True)
_NUM_WORKERS = flags.DEFINE_integer("num_workers", 3, "Workers that evaluate.")
_NUM_EVAL_WORKERS = flags.DEFINE_integer("num_eval_workers", 1, "Workers of the evaluator.")


class Worker:
    def __init__(self, worker_id, worker_type, function):
        self._name, self._function = f"{worker_type}-{worker_id}", function

    def work(self, point: np.ndarray) -> tuple[str, float]:
        return self._name, self._function(point)


class Coordinator:
    """Steps towards the best of what its workers have tried (Mania et al. 2018, without the variance)."""

    def __init__(self, workers: Sequence[courier.Client], logdir, evaluator=None, num_steps=60):
        self._workers, self._evaluator, self._num_steps = workers, evaluator, num_steps
        self._logdir = logdir
        self._logdir.mkdir(parents=True, exist_ok=True)
        self._point = np.zeros(3)
        self._random = np.random.default_rng(7)

    def evaluate(self, iteration: int, point: bytes) -> float:
        """For the evaluator: the value at this point, which is kept."""
        _, value = self._workers[0].work(pickle.loads(point))
        (self._logdir / f"iteration_{iteration:04}").write_text(str(value))
        return value

    def step(self) -> None:
        steps = self._random.normal(size=(len(self._workers), 3))
        futures = [
            (step, worker.futures.work(self._point + sign * 0.1 * step))
            for step in steps
            for worker, sign in zip(self._workers, (1, -1), strict=False)
        ]
        values = [(step, future.result(timeout=30)[1]) for step, future in futures]
        for (step, more), (_, less) in zip(values[::2], values[1::2], strict=True):
            self._point = self._point + 0.2 * (more - less) * step

    def run(self) -> None:
        for i in range(self._num_steps):
            self.step()
            if i % 20 == 19:
                value = self._evaluator.evaluate(i, point=pickle.dumps(self._point))
                print(f"iteration {i}: {value:.3f}", flush=True)
        lp.stop()


def bowl(point: np.ndarray) -> float:
    """Greatest, 0, at (1, -2, 0.5)."""
    return -float(np.sum((point - np.array([1.0, -2.0, 0.5])) ** 2))


def make_program(num_workers, num_eval_workers, logdir, experiment_name="iris"):
    program = lp.Program(experiment_name)

    def add_workers(label, count, kind):
        handles = []
        with program.group(label):
            for worker_id in range(count):
                node = lp.CourierNode(Worker, worker_id=worker_id, worker_type=kind, function=bowl)
                handle = program.add_node(node)
                handle.set_client_kwargs(call_timeout=None)
                handles.append(handle)
        return handles

    workers = add_workers("worker", num_workers, "main")
    eval_workers = add_workers("eval_worker", num_eval_workers, "eval")
    evaluator_node = lp.CourierNode(Coordinator, workers=eval_workers, logdir=pathlib.Path(logdir))
    evaluator_node.disable_run()
    evaluator = program.add_node(evaluator_node, label="evaluator")
    program.add_node(
        lp.PyClassNode(
            Coordinator, workers=workers, evaluator=evaluator, logdir=pathlib.Path(logdir)
        ),
        label="coordinator",
    )
    return program


def main(_):
    lp.launch(make_program(_NUM_WORKERS.value, _NUM_EVAL_WORKERS.value, _LOGDIR.value))


if __name__ == "__main__":
    app.run(main)
