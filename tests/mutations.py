"""Breaks rules on purpose, one at a time, and checks that a test notices each of them.

    python -m tests.mutations                       all rules
    python -m tests.mutations queues/ "only once"   those whose file or rule contains one of these texts

For each rule it changes one line of this checkout, runs the tests that guard the rule as `make` does, and
puts the line back. It exits with 1 if a broken rule went unnoticed.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_TIMEOUT_S = 600.0
_HANGS = "hangs"


@dataclass(frozen=True)
class Mutation:
    """A rule, the line that keeps it, what breaks it, and the tests that should fail then.

    Attributes:
        file: Its path in `launchpad/`. It contains `old` exactly once.
        tests: The files and folders that pytest is given.
        lane: The target of the Makefile that runs these tests: `test`, or `ray` for `test-ray`.
    """

    rule: str
    file: str
    old: str
    new: str
    tests: str
    lane: str = "test"

    def path(self) -> Path:
        return ROOT / "launchpad" / self.file


MUTATIONS = (
    # Root modules.
    Mutation(
        "a node inside a colocation cannot be added to the program a second time",
        "program.py",
        "member.added_at = added_at",
        "node.added_at = added_at",
        "tests/test_program.py",
    ),
    Mutation(
        "a handle in a copied configuration still stands for its node",
        "handle.py",
        "__deepcopy__ = __copy__",
        "",
        "tests/test_program.py",
    ),
    Mutation(
        "a handle among the keyword arguments of a functools.partial is found",
        "traverse.py",
        'yield ".keywords", value.keywords',
        'yield ".keywords", None',
        "tests/test_traverse.py",
    ),
    Mutation(
        "the second restart waits for the backoff, and each further one twice as long",
        "restart_policy.py",
        "min(n_before - 1, 60)",
        "min(n_before, 60)",
        "tests/launch/test_restart_policy.py",
    ),
    Mutation(
        "a run() that has asked for the stop event is not interrupted",
        "runtime/stopping.py",
        "me.stop.is_watched = True",
        "me.stop.is_watched = False",
        "tests/launch/test_processes.py",
    ),
    Mutation(
        "a worker that gives up at a barrier is told who was absent",
        "runtime/barriers.py",
        "marks.wait_for(lambda: is_over() or marks.get(left_mark) >= number, _REPLY_S)",
        "marks.wait_for(is_over, 0.0)",
        "tests/contract/test_groups.py",
    ),
    Mutation(
        "a wait at a work queue or a counter raises Stopped when the program stops",
        "services/waiting.py",
        "raise Stopped from None",
        "return",
        "tests/work_queues/test_work_queue.py",
    ),
    Mutation(
        "a worker acts only once on an end that it is told of twice",
        "runtime/watermarks.py",
        "if v > self._values.get(n, 0)",
        "if v >= self._values.get(n, 0)",
        "tests/runtime/test_watermarks.py",
    ),
    # nodes
    Mutation(
        "a cached answer counts its age from the call, not from the arrival of the answer",
        "nodes/cacher.py",
        "entry.answer = (value, called_at)",
        "entry.answer = (value, self._clock())",
        "tests/test_cacher.py",
    ),
    # queues
    Mutation(
        "items of dead consumers go back to the queue in the order in which they were put",
        "queues/contents.py",
        "self._returned = deque(sorted([*self._returned, *items]))",
        "self._returned = deque([*self._returned, *items])",
        "tests/queues/test_contents.py",
    ),
    Mutation(
        "a late duplicate of a put adds nothing to the queue",
        "queues/server.py",
        "if number < session.number:",
        "if number < 0:",
        "tests/queues/test_queue.py",
    ),
    # work_queues
    Mutation(
        "the late result of a worker that has lost its lease is refused",
        "work_queues/job_table.py",
        "if job is None or job.done_by or lease in job.ended_leases:",
        "if job is None or job.done_by:",
        "tests/work_queues/test_job_table.py",
    ),
    # counters
    Mutation(
        "a report that arrives late takes nothing back from a count",
        "counters/counts_by_client.py",
        "if value > own.get(name, -1)",
        "if value != own.get(name, -1)",
        "tests/counters",
    ),
    # pools
    Mutation(
        "a function that is not idempotent does not run again when its worker dies",
        "pools/pool_thread.py",
        "if chunk.function.is_idempotent and chunk.times_lost < MAX_LOST:",
        "if chunk.times_lost < MAX_LOST:",
        "tests/pools/test_pool_workers.py",
    ),
    # state
    Mutation(
        "a saved state whose bytes have changed is not loaded",
        "state/saved_states.py",
        "trailer == _MAGIC + length + content_hash.digest()",
        "trailer[:-_HASH_BYTES] == _MAGIC + length",
        "tests/state/test_saved_states.py",
    ),
    # edges
    Mutation(
        "the server's counts stand in for those of a caller that was killed",
        "telemetry/edge_stats.py",
        "is_complete = caller in known and caller not in lacking",
        "is_complete = caller in known",
        "tests/telemetry/test_edge_stats.py",
    ),
    # metrics
    Mutation(
        "the CPU time of a restarted worker is not compared with that of its earlier process",
        "telemetry/program_metrics.py",
        "self.attempt != earlier.attempt",
        "self.attempt < earlier.attempt",
        "tests/telemetry",
    ),
    # replay
    Mutation(
        "samples do not run ahead of inserts beyond the error buffer",
        "replay/rate_limiters.py",
        "return self.diff - 1 >= self.min_diff",
        "return self.diff >= self.min_diff",
        "tests/replay/test_rate_limiters.py",
    ),
    Mutation(
        "an item leaves its table when it was sampled max_times_sampled times",
        "replay/table.py",
        "if 0 < self.max_times_sampled <= item.times_sampled:",
        "if 0 < self.max_times_sampled < item.times_sampled:",
        "tests/replay/test_table.py",
    ),
    # collectives
    Mutation(
        "an elastic group does not go on with fewer than min_replicas",
        "collectives/membership.py",
        "if len(waiting) < (self.min_replicas or self._size):",
        "if len(waiting) + 1 < (self.min_replicas or self._size):",
        "tests/collectives/test_membership.py",
    ),
    Mutation(
        "a report about an earlier generation does not end the present one",
        "collectives/membership.py",
        "if event.generation == self.generation",
        "if event.generation <= self.generation",
        "tests/collectives/test_membership.py",
    ),
    # courier
    Mutation(
        "a call made while serving another one ends by the deadline of that one",
        "courier/call_stack.py",
        "return min(self.deadline, deadline)",
        "return deadline",
        "tests/courier/test_deadlines.py",
    ),
    Mutation(
        "courier does not import launch",
        "courier/errors.py",
        "class CourierError(",
        "def _launch():\n    from launchpad.launch import launch\n\n\nclass CourierError(",
        "tests/test_layers.py",
    ),
    Mutation(
        "names use the words of the field",
        "courier/promise.py",
        "def result(",
        "def farewell(self):\n        pass\n\n    def result(",
        "tests/test_words.py",
    ),
    # courier/protocol
    Mutation(
        "a read that is as long as the frame it continues is not taken for a whole frame",
        "courier/protocol/framing.py",
        "            or not self.is_between_frames",
        "",
        "tests/courier/test_framing.py",
    ),
    # courier/codec
    Mutation(
        "a compressed part that is longer than it claims is refused",
        "courier/codec/compression.py",
        'if len(data) != size or (not inflater.eof and inflater.decompress(b"", 1)):',
        "if len(data) != size:",
        "tests/courier/test_compression.py",
    ),
    # courier/security
    Mutation(
        "the token and the certificates of the longest matching prefix are used",
        "courier/security/keyring.py",
        "key=len, reverse=True",
        "key=len",
        "tests/courier/test_certificates.py",
    ),
    # courier/transport
    Mutation(
        "a frame that was written in part is written again on the next connection",
        "courier/transport/write_queue.py",
        "if end > self._n_written]",
        "if end > self._n_written and not self._n_written]",
        "tests/courier/test_write_queue.py tests/courier/test_pipeline.py",
    ),
    Mutation(
        "a peer that is silent because it was asked nothing is not cut off",
        "courier/transport/peer_liveness.py",
        "unanswered = info.repeats - self._repeats + info.probes",
        "unanswered = info.repeats + info.probes",
        "tests/courier/test_tcp.py",
    ),
    Mutation(
        "a peer is cut off although our own cable is out, so that the kernel repeats nothing",
        "courier/transport/peer_liveness.py",
        "unanswered = max(unanswered, info.timeouts - self._timeouts)",
        "unanswered = max(unanswered, 0)",
        "tests/courier/test_tcp.py",
    ),
    # courier/shm
    Mutation(
        "memory that its sender could shrink is not mapped",
        "courier/shm/segments.py",
        "if not seals & fcntl.F_SEAL_SHRINK:",
        "if not seals:",
        "tests/courier/test_segments.py",
    ),
    Mutation(
        "shared memory is not written over while its message may have to be sent again",
        "courier/shm/sender.py",
        "return self.is_returned and self.holder is None",
        "return self.is_returned",
        "tests/courier/test_segments.py",
    ),
    # courier/streams
    Mutation(
        "a sender is no more than a window ahead of what the consumer has taken",
        "courier/streams/receiver.py",
        "items = max(0, n_taken + self._window.n_items - self._allowed)",
        "items = max(0, self.n_items + self._window.n_items - self._allowed)",
        "tests/courier/test_stream_parts.py",
    ),
    # courier/client
    Mutation(
        "a client does not repeat a call that may have run, unless the method is idempotent",
        "courier/client/call.py",
        "if not may_repeat(peer, method, channel.options):",
        "if False:",
        "tests/courier/test_death.py",
    ),
    Mutation(
        "a sharded call asks the shard whose range contains the key",
        "courier/client/partition.py",
        "if shard > larger or (shard == larger and quotient):",
        "if shard > larger:",
        "tests/courier/test_partition.py",
    ),
    # courier/server
    Mutation(
        "a server refuses a client without the token",
        "courier/server/handshake.py",
        "hmac.compare_digest(hello.token, core.token)",
        "hmac.compare_digest(hello.token, hello.token)",
        "tests/courier/test_handshake.py tests/courier/test_hostile_peers.py",
    ),
    Mutation(
        "a server does not send a result that is larger than the caller takes",
        "courier/server/replies.py",
        "if size <= max_bytes:",
        "if size <= 1 << 60:",
        "tests/courier/test_pipeline.py tests/courier/test_inprocess.py",
    ),
    Mutation(
        "a call of a priority method overtakes calls that wait for a thread",
        "courier/server/thread_pool.py",
        "self._jobs.appendleft(job)",
        "self._jobs.append(job)",
        "tests/courier/test_decorators.py",
    ),
    # courier/grpc
    Mutation(
        "a server does not run a gRPC call that was meant for its predecessor",
        "courier/grpc/courier_service.py",
        "if caller_metadata.incarnation != self._core.incarnation:",
        "if not caller_metadata.incarnation:",
        "tests/courier/test_grpc.py",
    ),
    # courier/batching
    Mutation(
        "a batch that raised is not repeated, unless the method is idempotent",
        "courier/batching/batch.py",
        "if len(requests) > 1 and self._is_idempotent():",
        "if len(requests) > 1:",
        "tests/courier/test_batching.py",
    ),
    # courier/telemetry
    Mutation(
        "calls of methods that do not exist take no memory for each name",
        "courier/telemetry/counters.py",
        "is_own = len(self) < self.MAX_METHODS and self._is_known(method)",
        "is_own = len(self) < self.MAX_METHODS",
        "tests/courier/test_stats.py",
    ),
    # launch/planning
    Mutation(
        "an environment variable that two sources set to different values is refused",
        "launch/planning/planner.py",
        "if name in env:",
        "if name in env and env[name] == str(value):",
        "tests/launch/test_resources.py",
    ),
    # launch/supervision
    Mutation(
        "a worker whose work is done is not restarted while the program stops",
        "launch/supervision/restart.py",
        "(policy.mode != ALWAYS or is_stopping)",
        "policy.mode != ALWAYS",
        "tests/launch/test_restart_policy.py",
    ),
    Mutation(
        "groups are asked to stop in reverse order of start",
        "launch/supervision/shutdown.py",
        "(s.is_last, ranks[s.group])",
        "(s.is_last, -ranks[s.group])",
        "tests/launch/test_supervisor.py",
    ),
    Mutation(
        "what a replaced attempt still reports does not change the state of the next one",
        "launch/supervision/supervisor.py",
        "case _ if is_late or not worker.is_alive:",
        "case _ if not worker.is_alive:",
        "tests/launch/test_supervisor.py",
    ),
    # launch/worker
    Mutation(
        "a worker that crashes does not save its state",
        "launch/worker/worker.py",
        "if not in_good_order or self._crash:",
        "if not in_good_order:",
        "tests/testing/test_chaos.py",
    ),
    # launch/rundir
    Mutation(
        "the logs of a program that still runs are not deleted, however old they are",
        "launch/rundir/directory.py",
        "if are_old_logs and not (run is not None and run.is_running):",
        "if are_old_logs:",
        "tests/launch/test_log_cleanup.py",
    ),
    # launch/logs
    Mutation(
        "a log is rotated when it is full",
        "launch/logs/log_writer.py",
        "if 0 < self._rotation.max_bytes < os.fstat(self.fd).st_size:",
        "if self._rotation.max_bytes < 0:",
        "tests/launch/test_logs.py",
    ),
    Mutation(
        "a log has no more parts than LAUNCHPAD_LOG_FILES allows",
        "launch/logs/rotation.py",
        "max(0, len(full) + 1 - self.files)",
        "max(0, len(full) - self.files)",
        "tests/launch/test_logs.py",
    ),
    # launch/output
    Mutation(
        "the output of a worker cannot take over the terminal",
        "courier/formatting.py",
        r"\x0b-\x1f",
        r"\x0b-\x1a",
        "tests/courier/test_formatting.py",
    ),
    # launch/devices
    Mutation(
        "the shares of one GPU add up to a whole one at most",
        "launch/devices/allocation.py",
        "if free[i] >= request.units]",
        "if free[i] > 0]",
        "tests/launch/test_gpu_allocation.py",
    ),
    # launch/backends
    Mutation(
        "a worker host with another version of launchpad, Python or cloudpickle is refused",
        "launch/backends/launcher_info.py",
        "if ours != theirs:",
        'if name == "Python" and ours != theirs:',
        "tests/kubernetes tests/launch",
    ),
    Mutation(
        "two programs that run at once do not get the same GPU",
        "launch/backends/local_backend.py",
        "assignment = allocate(devices, requests, table.taken())",
        "assignment = allocate(devices, requests)",
        "tests/launch/test_gpu_claims.py",
    ),
    # launch/backends/processes
    Mutation(
        "a worker that was killed after its work was done has failed",
        "launch/backends/processes/exit_status.py",
        "(report.is_failure or not name)",
        "True",
        "tests/launch/test_processes.py tests/faults",
    ),
    Mutation(
        "a number of threads that the user has set in the environment holds in workers",
        "launch/backends/processes/worker_process.py",
        "for name in _THREADS if name not in os.environ",
        "for name in _THREADS",
        "tests/launch/test_local_backend.py",
    ),
    # launch/backends/ray: none of these tests starts a cluster.
    Mutation(
        "Ray places the processes of a colocation on one node",
        "launch/backends/ray/placement_group.py",
        "placement = STRICT_PACK if first.colocation else first.resources.placement or PACK",
        "placement = first.resources.placement or PACK",
        "tests/ray/test_placement.py",
        lane="ray",
    ),
    Mutation(
        "a group that wants a node for each worker is refused where there are fewer nodes",
        "launch/backends/ray/feasibility.py",
        "len(group.workers) > len(nodes):",
        "len(group.workers) > len(nodes) + 1:",
        "tests/ray/test_placement.py",
        lane="ray",
    ),
    # launch/backends/remote
    Mutation(
        "a worker on a node does not get a GPU that another program has taken",
        "launch/backends/remote/device_claims.py",
        "return own if all(taken[uuid] + n_units <= UNIT for uuid in gpus) else None",
        "return own",
        "tests/remote",
    ),
    Mutation(
        "a worker host that is closed while it opens starts nothing",
        "launch/backends/remote/worker_host.py",
        "if self._closing is not None:",
        "if self._closing is not None and not is_held:",
        "tests/remote/test_worker_host.py",
    ),
    # launch/backends/spark: this test does not start Spark.
    Mutation(
        "two workers of one Spark task do not get the same GPU",
        "launch/backends/remote/node_host.py",
        "free = [gpu for gpu in self._gpus if gpu not in in_use]",
        "free = list(self._gpus)",
        "tests/spark/test_placement.py",
        lane="spark",
    ),
    # launch/backends/kubernetes
    Mutation(
        "of two launches that find a stale lock on a state folder, only one gets the folder",
        "launch/backends/kubernetes/create_run.py",
        'cluster.delete("ConfigMap", name, uid=metadata["uid"])',
        'cluster.delete("ConfigMap", name)',
        "tests/kubernetes/test_state_lock.py",
    ),
    Mutation(
        "a line that a user prints is not taken for a report of the pod",
        "launch/backends/kubernetes/pod_messages.py",
        "return MARK + line if line.startswith(MARK) else line",
        "return line",
        "tests/kubernetes/test_pod_messages.py",
    ),
    # testing
    Mutation(
        "History.check() finds a call that ran twice",
        "testing/call_history.py",
        "if call.runs > 1:",
        "if call.runs > 2:",
        "tests/testing/test_call_history.py",
    ),
    # cli
    Mutation(
        "`launchpad logs --since` leaves out an old line together with its traceback",
        "cli/records.py",
        "self._at = time_of(text) or self._at",
        "self._at = time_of(text)",
        "tests/cli/test_logs.py",
    ),
    # view
    Mutation(
        "the page of `launchpad view` refuses a websocket that does not name its origin",
        "view/access.py",
        "if origin is None and may_lack_it:",
        "if origin is None:",
        "tests/view/test_access.py",
    ),
)


def first_failure(tests: str, lane: str) -> str:
    """Run these tests until one fails. Return its name, "hangs", or "" if all of them pass."""
    target = "test" if lane == "test" else f"test-{lane}"
    command = ["make", target, f"PYTEST_ARGS=-q -x --no-header {tests}"]
    # A file and not a pipe, since a process that a test leaves behind would keep a pipe open.
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        # A session of its own, so that all processes of pytest can be killed with make.
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return _HANGS
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        lines = output.read().splitlines()
    failures = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    if failures:
        return failures[0].partition(" - ")[0]
    return f"make {target} exits with {status}" if status else ""


@functools.cache
def failure_before(tests: str, lane: str) -> str:
    """Return what fails while no rule is broken. Tests that guard several rules run once for all of them."""
    return first_failure(tests, lane)


def break_rule(mutation: Mutation) -> tuple[bool, str]:
    """Break the rule while its tests run. Return whether they noticed it, and a text that says how."""
    failure = failure_before(mutation.tests, mutation.lane)
    if failure:
        return False, f"UNKNOWN, since this fails with the rule unbroken: {failure}"
    text = mutation.path().read_text()
    mutation.path().write_text(text.replace(mutation.old, mutation.new))
    try:
        failure = first_failure(mutation.tests, mutation.lane)
    finally:
        mutation.path().write_text(text)
    if failure:
        return True, f"noticed: {failure}"
    return False, "NOT NOTICED: no test fails"


def selected(texts: Sequence[str]) -> list[Mutation]:
    """Return the mutations whose file or rule contains one of these texts; without texts, all of them."""
    chosen = [m for m in MUTATIONS if not texts or any(t in m.file or t in m.rule for t in texts)]
    if not chosen:
        sys.exit(f"no file or rule of a mutation contains any of {', '.join(texts)}")
    for mutation in chosen:
        count = mutation.path().read_text().count(mutation.old)
        assert count == 1, f"{mutation.file} contains {mutation.old!r} {count} times, not once"
    return chosen


def main(texts: Sequence[str]) -> int:
    """Break the rules that these texts select. Return the exit status."""
    mutations = selected(texts)
    n_noticed = 0
    for mutation in mutations:
        print(f"{mutation.file}: {mutation.rule}", flush=True)
        started = time.monotonic()
        is_noticed, how = break_rule(mutation)
        n_noticed += is_noticed
        print(f"    {how} ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{n_noticed} of {len(mutations)} broken rules were noticed")
    return int(n_noticed < len(mutations))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
