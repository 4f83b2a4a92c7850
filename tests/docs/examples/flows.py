"""Examples of what flows between workers: queues, pools, work queues, counters, replay."""

from __future__ import annotations

import threading
import types
from typing import Any

import numpy as np

import launchpad as lp
from tests.docs.examples.programs import Actor, use
from tests.docs.examples.runner import DEADLINE_S, Example, example_of
from tests.waiting import until

# --- queues --------------------------------------------------------------------------------------


def queue_of(example: Example, **options: Any) -> Any:
    """A queue, as the script has it."""
    program = lp.Program("rows")
    with program.group("rows", restart=lp.RestartPolicy()):
        program.add_node(lp.QueueNode(**options))
    return example.launch(program).client("rows")


@example_of("QueueReport")
def consumer_has_failed(example: Example) -> None:
    program = lp.Program("rows")
    rows = program.add_node(lp.QueueNode(), label="rows")
    with program.group("consumer", restart=lp.RestartPolicy()):
        program.add_node(lp.PyNode(fail_with_a_row, rows))
    running = example.launch(program)
    queue = running.client("rows")
    queue.put("a row")

    assert running.results("consumer", timeout_s=DEADLINE_S) == ["a row"]
    example.run(queue=queue)


def fail_with_a_row(queue: lp.Queue[str]) -> str:
    row = queue.get()
    if lp.current().attempt == 1:
        raise ValueError(row)
    return row


@example_of("QueueEmpty", "QueueStats")
def queue_is_empty(example: Example) -> None:
    example.run(queue=queue_of(example))


@example_of("QueueFull")
def queue_is_full(example: Example) -> None:
    assert example.run(queue=queue_of(example, maxsize=2), rows=[1, 2, 3])["rows"] == [3]


@example_of("QueueClosed")
def producer_has_closed(example: Example) -> None:
    queue = queue_of(example, producers=1)
    queue.close()

    example.run(queue=queue)


@example_of("QueueLost")
def queue_was_started_again(example: Example) -> None:
    queue = queue_of(example)
    queue.put("lost")
    (running,) = example.launched
    with lp.testing.KillWorkers(running, ["rows"], at_most=1) as kills:
        until(lambda: kills.done)
    running.client("rows").put("the next")

    assert example.run(queue=queue)["row"] == "the next"


@example_of("Queue")
def rows_are_produced_and_consumed(example: Example) -> None:
    handled: list[str] = []
    queue = queue_of(example, producers=1)
    names = example.run(
        Row=str, paths=["a", "b"], read_rows=lambda path: [path] * 2, handle=handled.append
    )

    names["produce"](queue)
    names["consume"](queue)

    assert handled == ["a", "a", "b", "b"]


@example_of("QueueNode", "QueueHandle")
def queue_is_added(example: Example) -> None:
    given = {"Row": str, "shards": "abcd", "read": use, "train": use}

    example.run_to_end(program=lp.Program("rows"), **given)


# --- pools ---------------------------------------------------------------------------------------


@example_of("PoolNode")
def pool_is_searched(example: Example) -> None:
    def search(workers: list[Any]) -> None:
        with lp.pool(workers) as pool:
            assert list(pool.map(abs, [-1, -2])) == [1, 2]
        lp.stop()

    example.run_to_end(load_tables=list, search=search)


@example_of("pool")
def script_has_a_pool(example: Example) -> None:
    assert example.run(evaluate=abs)["scores"] == list(range(1000))


@example_of("Pool")
def worker_has_a_pool(example: Example) -> None:
    program = lp.Program("pool")
    for _ in range(2):
        program.add_node(lp.PoolNode(), label="worker")
    running = example.launch(program)
    this = types.SimpleNamespace(_workers=running.clients("worker"))

    example.run(self=this, simulate=lambda seed: seed, evaluate=abs, candidates=[-1, -2])


# --- work queues and counters --------------------------------------------------------------------


def jobs_of(example: Example) -> Any:
    """A work queue with three jobs, as the script has it."""
    program = lp.Program("render")
    program.add_node(lp.WorkQueueNode(), label="jobs")
    queue = example.launch(program).client("jobs")
    queue.add_many(["a", "b", "c"])
    queue.close()
    return queue


@example_of("Lease", "JobCounts")
def worker_has_jobs(example: Example) -> None:
    example.run(queue=jobs_of(example), render=str.upper)


@example_of("FinishedJob")
def jobs_are_done(example: Example) -> None:
    queue = jobs_of(example)
    for lease in queue:
        lease.done(lease.job.upper())

    example.run(queue=queue)


@example_of("WorkQueue")
def jobs_are_given_and_done(example: Example) -> None:
    program = lp.Program("render")
    program.add_node(lp.WorkQueueNode(), label="jobs")
    queue = example.launch(program).client("jobs")
    names = example.run(render=str.upper, frames=["a", "b"])

    worker = threading.Thread(target=names["work"], args=(queue,))
    worker.start()
    names["give"](queue)
    worker.join()


@example_of("WorkQueueNode")
def workers_share_a_queue(example: Example) -> None:
    example.run_and_stop(work=lambda queue: queue.counts())


@example_of("Counter")
def steps_are_counted(example: Example) -> None:
    program = lp.Program("counts")
    counter = program.add_node(lp.CounterNode(), label="counter")
    program.add_node(lp.PyNode(act_until_stopped, example.code, counter), label="actor")

    example.launch(program).wait(DEADLINE_S)


def act_until_stopped(code: str, counter: lp.Counter) -> None:
    from tests.docs.examples.runner import run

    run(code, {"run_episode": lambda: 600_000})["act"](counter)


@example_of("CounterNode")
def counter_is_added(example: Example) -> None:
    example.run_and_stop(program=lp.Program("counts"), act=use)


# --- replay --------------------------------------------------------------------------------------


def replay_of(example: Example, *tables: lp.replay.Table) -> Any:
    """A replay server's client, with transitions in it."""
    program = lp.Program("replay")
    program.add_node(lp.ReplayNode(tables or [uniform("transitions")]), label="replay")
    return example.launch(program).client("replay")


def uniform(name: str) -> lp.replay.Table:
    return lp.replay.Table(name, lp.replay.Uniform(), lp.replay.Fifo(), max_size=1000)


@example_of("replay")
def table_is_in_a_program(example: Example) -> None:
    example.run_and_stop(program=lp.Program("replay"))


@example_of("ReplayNode", "ReplayHandle")
def replay_is_added(example: Example) -> None:
    example.run_and_stop(program=lp.Program("replay"), Actor=Actor, Learner=Actor, act=use)


@example_of("replay.ReplayClient")
def actor_inserts_and_learner_samples(example: Example) -> None:
    table = lp.replay.Table(
        "transitions", lp.replay.Prioritized(0.6), lp.replay.Fifo(), max_size=1000
    )
    replay = replay_of(example, table)
    example.code += "\n    break"
    names = example.run(o=np.zeros(4), a=1, step=lambda observations, actions: np.ones(256))

    names["act"](replay)
    names["learn"](replay)


@example_of("replay.TableInfo", "replay.Batches", "replay.ReplaySample", "replay.SampleInfo")
def transitions_are_sampled(example: Example) -> None:
    replay = replay_of(example)
    replay.insert({"reward": 1.0}, {"transitions": 1.0})

    example.run(replay=replay, train_on=lambda batch: 0.0)


class Environment:
    """Two steps, and the episode is over."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self, action: int) -> tuple[Any, float, bool]:
        self.steps += 1
        return np.zeros(4), 1.0, self.steps == 2


@example_of("replay.NStepWriter")
def transitions_are_written(example: Example) -> None:
    given = {"environment": Environment(), "policy": lambda observation: 1}
    replay = replay_of(example)

    example.run(replay=replay, observation=np.zeros(4), done=False, **given)

    assert replay.info()["transitions"].size > 0


@example_of("replay.Transition")
def targets_are_made_of_transitions(example: Example) -> None:
    replay = replay_of(example)
    with replay.n_step_writer("transitions", n=1, discount=0.99) as writer:
        writer.add_first(np.zeros(4))
        writer.add(1, 1.0, np.zeros(4), discount=1.0, is_last=True)

    names = example.run(replay=replay, values=lambda observations: observations.sum(axis=1))

    assert names["targets"].shape == (32,)


EPISODE = [types.SimpleNamespace(observation=np.zeros(4), action=1, reward=1.0)] * 25


@example_of("replay.SequenceWriter", "replay.TrajectoryWriter")
def sequences_are_written(example: Example) -> None:
    replay = replay_of(example, uniform("sequences"))

    example.run(replay=replay, episode=EPISODE)

    assert replay.info()["sequences"].size > 0
