"""The promises about calls, with the paths of their figures in the reports of `rpc.py` and `soak.py`."""

from __future__ import annotations

from benchmarks.harness import bars

# In this table, PINNED stands for `one core` and `two cores`, SHARED for `one core` and `unpinned`.
_TABLE = """
p50 to raw, unpinned, with token, deadline, counters  | latency/unpinned/courier guarded/p50_to_raw  | ≤ 1.3
p50 to raw, two cores, with token, deadline, counters | latency/two cores/courier guarded/p50_to_raw | ≤ 1.4
p99 to raw, unpinned, with token, deadline, counters  | latency/unpinned/courier guarded/p99_to_raw  | ≤ 3
p99 to raw, two cores, with token, deadline, counters | latency/two cores/courier guarded/p99_to_raw | ≤ 3
20,000 futures, to raw batched, PINNED    | pipelined/PINNED/courier/to_raw_batched            | ≥ 0.8
20,000 futures, to uvloop, PINNED         | pipelined/PINNED/courier/to_uvloop                 | ≥ 0.7
200 coroutines, to uvloop, PINNED         | coroutines/PINNED/courier/to_uvloop                | ≥ 0.6
4 threads, to raw with a lock, PINNED     | threads/4 threads/PINNED/courier/to_raw_locked     | ≥ 1.5
16 clients, one call each, to uvloop, SHARED | many_to_one/one call each, SHARED/courier/to_uvloop | ≥ 0.8
16 clients, 50 calls each, to uvloop, SHARED | many_to_one/50 calls each, SHARED/courier/to_uvloop | ≥ 0.8
broadcast of 1 MB to 8, to a call, SHARED | broadcast/unix, SHARED/to_one_call                 | ≤ 2.5
p50 in process                            | latency/unpinned/courier in-process/p50_us         | ≤ 45 µs
1 MB there and back                       | arrays/GB_per_s/courier/1 MB                       | ≥ 5 GB/s
16 MB there and back                      | arrays/GB_per_s/courier/16 MB                      | ≥ 8 GB/s
256 MB there and back                     | arrays/GB_per_s/courier/256 MB                     | ≥ 8 GB/s
peak memory, to the least possible        | arrays/peak_in_arrays/courier/to_least             | ≤ 1.2
1 MB over TCP                             | arrays/GB_per_s/courier tcp/1 MB                   | ≥ 3 GB/s
16 MB over TCP                            | arrays/GB_per_s/courier tcp/16 MB                  | ≥ 3 GB/s
256 MB over TCP                           | arrays/GB_per_s/courier tcp/256 MB                 | ≥ 3 GB/s
256 MiB argument over TLS, to raw TLS     | tls/courier tls/up_to_raw                          | ≥ 0.5
256 MiB result over TLS, to raw TLS       | tls/courier tls/down_to_raw                        | ≥ 0.5
1 GiB argument                            | arrays/one_gib_argument/courier/next_s             | ≤ 1 s
1 GiB argument, the first                 | arrays/one_gib_argument/courier/first_s            | ≤ 1 s
large future to a call                    | futures/one future/worst_to_blocking               | ≤ 1.1
8 large futures to 8 calls                | futures/8 futures/worst_to_blocking                | ≤ 1.1
large broadcast to calls                  | futures/broadcast/worst_to_blocking                | ≤ 1.1
small items of a stream                   | streams/least_items_per_s                          | ≥ 400000
small items to calls                      | streams/least_to_calls                             | ≥ 10 times
a lone item to a lone call                | streams/worst_to_call                              | ≤ 1.2
errors of 100,000 futures                 | crowd/outstanding/courier/errors                   | ≤ 0
errors of 1,000 clients                   | crowd/clients/courier/errors                       | ≤ 0
server's memory for 1,000 clients         | crowd/clients/courier/server_mib                   | ≤ 100 MiB
calls at once, one at a time              | one_at_a_time/most_at_once                         | ≤ 1
p50 with TLS, unpinned                    | latency/unpinned/courier tls/p50_us                | ≤ 80 µs
p50 with TLS, two cores                   | latency/two cores/courier tls/p50_us               | ≤ 80 µs
p50 of a Ray actor's call to courier's    | on_ray/times_lower_latency                         | ≥ 8 times
courier's calls/s to a Ray actor's        | on_ray/times_more_calls                            | ≥ 5 times
client's growth over 1,000,000 calls      | soak/client_mib                                    | ≤ 1 MiB
server's growth over 1,000,000 calls      | soak/server_mib                                    | ≤ 1 MiB
threads left after close                  | soak/left/threads                                  | ≤ 0
descriptors left after close              | soak/left/descriptors                              | ≤ 0
shared mappings left after close          | soak/left/mappings                                 | ≤ 0
"""
_PLACES = {"PINNED": ("two cores", "one core"), "SHARED": ("unpinned", "one core")}


def _placed(line: str) -> list[str]:
    """Return a line for each placement that a line of the table stands for."""
    for places, names in _PLACES.items():
        if places in line:
            return [line.replace(places, name) for name in names]
    return [line]


_LINES = [placed for line in _TABLE.strip().splitlines() for placed in _placed(line)]
BARS = bars.parse("\n".join(_LINES))
