"""A DQN on CartPole in the manner of Acme: replay in Reverb, learner and counter under checkpoints.

    actor ×2 ──insert──▶ replay ──▶ learner ◀── cacher ◀── actor ×2, evaluator
    actor ×2 ──▶ counter ◀── steps_limiter ── lp.stop()

The learner and the counter are wrapped: what wraps them saves them from time to time and at the stop, and has
the methods of what it wraps (`__dir__`, `__getattr__`), which are what others call. The learner is killed
half way, and goes on from its checkpoint. At the end the policy that was saved plays twenty episodes.
(Mnih et al. 2015; van Hasselt et al. 2016; Hoffman et al., "Acme", arXiv 2006.00979.)
"""

import contextlib
import itertools
import pickle
import random
import threading
import time
from pathlib import Path

import gymnasium
import numpy as np
import reverb
import tensorflow as tf
from absl import app, flags

import launchpad as lp

FLAGS = flags.FLAGS
flags.DEFINE_string("directory", None, "Where checkpoints are.", required=True)
flags.DEFINE_integer("num_actors", 2, "How many act.")
flags.DEFINE_integer("max_steps", 30_000, "After so many steps the program ends.")

SIZES = (4, 128, 128, 2)
GAMMA, NUM_STEPS, BATCH, LEARNING_RATE, TARGET_EVERY = 0.99, 3, 64, 1e-3, 50
SAMPLES_PER_INSERT, REWARD_SCALE = 32.0, 0.1
BEST_RETURN = 500  # an episode of CartPole ends after as many steps


def make_tables():
    """One table of transitions over a few steps; each is sampled so many times, in the mean."""
    spec = {
        "s": tf.TensorSpec((4,), tf.float32),
        "a": tf.TensorSpec((), tf.int32),
        "r": tf.TensorSpec((), tf.float32),
        "d": tf.TensorSpec((), tf.float32),
        "n": tf.TensorSpec((4,), tf.float32),
    }
    ratio = reverb.rate_limiters.SampleToInsertRatio(
        SAMPLES_PER_INSERT, min_size_to_sample=1000, error_buffer=1000 * SAMPLES_PER_INSERT
    )
    return [
        reverb.Table(
            "replay",
            sampler=reverb.selectors.Uniform(),
            remover=reverb.selectors.Fifo(),
            max_size=50_000,
            rate_limiter=ratio,
            signature=spec,
        )
    ]


def forward(weights, x):
    """The values of the actions, and what each layer was given."""
    inputs = []
    for i, (w, b) in enumerate(weights):
        inputs.append(x)
        x = x @ w + b
        x = np.maximum(x, 0) if i < len(weights) - 1 else x
    return x, inputs


def act(weights, state, epsilon):
    """An action, greedy but for so many."""
    if random.random() < epsilon:
        return random.randrange(2)
    return int(np.argmax(forward(weights, state[None])[0]))


class Learner:
    """Double DQN with Adam; in numpy, so that the program needs no more than Reverb does."""

    def __init__(self, replay):
        self._replay = replay
        rng = np.random.default_rng(lp.current().seed)
        self.weights = [
            ((rng.normal(size=(m, n)) * np.sqrt(2 / m)).astype(np.float32), np.zeros(n, np.float32))
            for m, n in itertools.pairwise(SIZES)
        ]
        self.target = self.weights
        zeros = [[np.zeros_like(part) for part in layer] for layer in self.weights]
        self.moments = zeros, [[np.zeros_like(part) for part in layer] for layer in zeros]
        self.num_steps = 0
        self.best = 0.0, self.weights

    def get_variables(self, names):
        """The weights, for actors."""
        return [self.weights for _ in names]

    def report(self, mean_return, weights):
        """The evaluator's word; the best are kept."""
        if mean_return >= self.best[0]:
            self.best = mean_return, weights

    def best_return(self):
        """The evaluator's best."""
        return self.best[0]

    def step(self, batch):
        """One step on a batch of transitions."""
        s, a, r, d, n = (batch[name] for name in "sardn")
        best = np.argmax(forward(self.weights, n)[0], axis=1)
        rows = np.arange(len(a))
        goal = r + d * forward(self.target, n)[0][rows, best]
        values, inputs = forward(self.weights, s)
        grad = np.zeros_like(values)
        grad[rows, a] = np.clip(values[rows, a] - goal, -1, 1) / len(a)
        self.num_steps += 1
        rate = LEARNING_RATE * np.sqrt(1 - 0.999**self.num_steps) / (1 - 0.9**self.num_steps)
        fresh = []
        for i in reversed(range(len(self.weights))):
            w, b = self.weights[i]
            grads = inputs[i].T @ grad, grad.sum(0)
            grad = (grad @ w.T) * (inputs[i] > 0)
            layer = []
            for j, (part, g) in enumerate(zip((w, b), grads, strict=True)):
                first, second = self.moments[0][i], self.moments[1][i]
                first[j] = 0.9 * first[j] + 0.1 * g
                second[j] = 0.999 * second[j] + 0.001 * g * g
                layer.append(
                    (part - rate * first[j] / (np.sqrt(second[j]) + 1e-8)).astype(np.float32)
                )
            fresh.append(tuple(layer))
        self.weights = fresh[::-1]
        if self.num_steps % TARGET_EVERY == 0:
            self.target = self.weights

    def run(self):
        dataset = reverb.TimestepDataset.from_table_signature(
            self._replay.server_address,
            "replay",
            max_in_flight_samples_per_worker=4 * BATCH,
            rate_limiter_timeout_ms=500,  # or it could not be stopped while there is nothing to sample
        ).batch(BATCH, drop_remainder=True)
        options = tf.data.Options()
        options.autotune.enabled = (
            False  # its thread may sleep for a minute, and the stop waits for it
        )
        dataset = dataset.with_options(options)
        while not lp.stop_event().is_set():
            for sample in dataset.as_numpy_iterator():
                self.step(sample.data)

    def save(self):
        return self.weights, self.target, self.moments, self.num_steps, self.best

    def restore(self, state):
        self.weights, self.target, self.moments, self.num_steps, self.best = state


class Counter:
    """How many steps all actors have made."""

    def __init__(self):
        self.steps = 0

    def increment(self, steps):
        self.steps += steps
        return self.steps

    def get_steps(self):
        return self.steps

    def save(self):
        return self.steps

    def restore(self, steps):
        self.steps = steps


class CheckpointingRunner:
    """As Acme's: what it wraps is seen through it, and is saved."""

    def __init__(self, make, path, *args, every_s=1.0):
        self._wrapped, self._path, self._every_s = make(*args), Path(path), every_s
        if self._path.exists():
            self._wrapped.restore(pickle.loads(self._path.read_bytes()))
            print(f"restored from {self._path.name}", flush=True)
        lp.register_stop_handler(self.checkpoint)
        self._saved_at = time.monotonic()
        self._saving = threading.Lock()  # the handler has a thread of its own

    def __dir__(self):
        return [*dir(self._wrapped), "checkpoint"]

    def __getattr__(self, name):
        return getattr(self.__dict__["_wrapped"], name)

    def checkpoint(self):
        with self._saving:
            aside = self._path.with_suffix(".new")
            aside.write_bytes(pickle.dumps(self._wrapped.save()))
            aside.rename(self._path)

    def run(self):
        run = getattr(self._wrapped, "run", None)
        if run is None:
            while not lp.wait_for_stop(self._every_s):
                self.checkpoint()
            return
        step = self._wrapped.step

        def step_and_save(batch):
            step(batch)
            if time.monotonic() - self._saved_at > self._every_s:
                self.checkpoint()
                self._saved_at = time.monotonic()
            if lp.stop_event().is_set():
                raise lp.Stopped

        self._wrapped.step = step_and_save
        run()


def transition(last, state, is_done):
    """From the first of these steps to the state after the last: what the replay holds."""
    discounts = GAMMA ** np.arange(len(last) + 1)
    rewards = [reward for _, _, reward in last]
    return {
        "s": last[0][0].astype(np.float32),
        "a": np.int32(last[0][1]),
        "r": np.float32(discounts[:-1] @ rewards),
        "d": np.float32(0 if is_done else discounts[-1]),
        "n": state.astype(np.float32),
    }


class Actor:
    """Plays, and inserts what it sees."""

    def __init__(self, replay, variables, counter):
        self._replay, self._variables, self._counter = replay, variables, counter

    def run(self):
        env = gymnasium.make("CartPole-v1")
        me, stop, episode = lp.current(), lp.stop_event(), 0
        random.seed(me.seed)
        while not stop.is_set():
            try:
                (weights,) = self._variables.get_variables(["policy"])
            except lp.StaleError:
                stop.wait(0.05)  # the learner starts again
                continue
            state, _ = env.reset(seed=me.seed % 10_000 + episode)
            epsilon, steps, is_over, last = max(0.05, 1 - episode / 40), 0, False, []
            while not is_over and not stop.is_set():
                action = act(weights, state, epsilon)
                following, reward, is_done, is_late, _ = env.step(action)
                last.append((state, action, REWARD_SCALE * reward))
                state, steps, is_over = following, steps + 1, is_done or is_late
                while len(last) == NUM_STEPS or (is_over and last):
                    self._replay.insert(transition(last, state, is_done), {"replay": 1.0})
                    del last[0]
            episode += 1
            self._counter.increment(steps)


def mean_return(weights, seed, episodes=20):
    """Of greedy play."""
    env, total = gymnasium.make("CartPole-v1"), 0.0
    for episode in range(episodes):
        state, _ = env.reset(seed=seed + episode)
        is_over = False
        while not is_over:
            state, reward, is_done, is_late, _ = env.step(act(weights, state, 0.0))
            total += reward
            is_over = is_done or is_late
    return total / episodes


class Evaluator:
    def __init__(self, variables, learner):
        self._variables, self._learner = variables, learner

    def run(self):
        while not lp.wait_for_stop(0.5):
            try:
                (weights,) = self._variables.get_variables(["policy"])
            except lp.StaleError:
                continue
            mean = mean_return(weights, seed=1000)
            print(f"mean return {mean:.0f}", flush=True)
            with contextlib.suppress(lp.courier.CourierError):  # it is killed just now
                self._learner.report(mean, weights)


class StepsLimiter:
    """As Acme's: ends the program. It gives a policy that is not perfect yet up to four times the steps.

    How many it takes varies, since on a busy machine the evaluator looks more rarely.
    """

    def __init__(self, counter, learner, max_steps):
        self._counter, self._learner, self._max_steps = counter, learner, max_steps

    def run(self):
        while not lp.wait_for_stop(0.2):
            steps = self._counter.get_steps()
            if steps < self._max_steps:
                continue
            if steps >= 4 * self._max_steps or self._learner.best_return() >= BEST_RETURN:
                print(f"the limit of {self._max_steps} steps is reached", flush=True)
                lp.stop()


def make_program(directory, num_actors, max_steps):
    program = lp.Program("dqn")
    again = lp.RestartPolicy(max_restarts=3, backoff=0.1)
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    with program.group("replay"):
        replay = program.add_node(lp.ReverbNode(make_tables))
    with program.group("counter"):
        node = lp.CourierNode(CheckpointingRunner, Counter, folder / "counter.pickle")
        counter = program.add_node(node)
    with program.group("learner", restart=again):
        node = lp.CourierNode(CheckpointingRunner, Learner, folder / "learner.pickle", replay)
        learner = program.add_node(node)
    with program.group("cacher"):
        cached = program.add_node(
            lp.CacherNode(learner, refresh_interval_ms=100, stale_after_ms=2000)
        )
    with program.group("actor"):
        for _ in range(num_actors):
            program.add_node(lp.PyClassNode(Actor, replay, cached, counter))
    program.add_node(lp.PyClassNode(Evaluator, cached, learner), label="evaluator")
    program.add_node(
        lp.PyClassNode(StepsLimiter, counter, learner, max_steps), label="steps_limiter"
    )
    return program


def main(_):
    running = lp.launch(make_program(FLAGS.directory, FLAGS.num_actors, FLAGS.max_steps))
    counter = running.client("counter")
    while counter.get_steps() < FLAGS.max_steps // 2:
        time.sleep(0.2)
    with lp.testing.KillWorkers(running, ["learner"], at_most=1) as kills:
        running.wait()
    print(kills)
    with open(Path(FLAGS.directory) / "learner.pickle", "rb") as file:
        *_, num_steps, (_, weights) = pickle.load(file)
    print(f"saved after {num_steps} steps; return {mean_return(weights, seed=0):.0f}")
    return running.exit_status()


if __name__ == "__main__":
    app.run(main)
