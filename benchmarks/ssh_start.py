"""The time from launch() on three hosts to the answers of all workers: `python benchmarks/ssh_start.py`.

    ours   lp.launch(ssh), then one call to each of N CourierNodes
    bare   an `ssh` to each host, which starts multiprocessing's forkserver there. N processes that it forks
           connect, and answer. The forkserver preloads the modules that a worker of ours has

The hosts are those of the tests: namespaces of this machine, with an sshd on each. So it needs root, and
Debian's openssh-server. A user on the first host starts both contenders, which take turns.

It fails if ours takes more than twice as long as bare.
"""

from __future__ import annotations

import compileall
import json
import sys
from functools import partial

from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import Table, in_turns, spread
from benchmarks.harness.processes import ROOT, command_apart
from benchmarks.launch import ours
from tests.hosts import requirements
from tests.hosts.host import Host
from tests.hosts.network import Network
from tests.hosts.sshd import USER, Sshd, why_not

BARE = str(ROOT / "benchmarks" / "peers" / "bare_ssh.py")
HOSTS = ["h1", "h2", "h3"]
MOST = 2.0
"""How many times as long as bare ours may take."""

_LIMIT_S = 120.0


class User:
    """A user on the first host, who starts programs from there."""

    def __init__(self, host: Host) -> None:
        self._host = host
        _, modules = self._run_ours(1)
        # What is there before any import, and what belongs to the script, is no module of launchpad's.
        self._preload = [name for name in modules if not name.startswith(("__m", "benchmarks"))]

    def seconds(self, contender: str, nodes: int) -> float:
        if contender == "ours":
            return self._run_ours(nodes)[0]
        return float(self._run([sys.executable, BARE, ",".join(HOSTS), str(nodes), *self._preload]))

    def _run_ours(self, nodes: int) -> tuple[float, list[str]]:
        seconds, modules = json.loads(
            self._run(command_apart(ours, nodes, "ssh", HOSTS)).splitlines()[-1]
        )
        return seconds, modules

    def _run(self, command: list[str]) -> str:
        return self._host.run(command, user=USER, timeout_s=_LIMIT_S).stdout


def main() -> None:
    options = Parser(__doc__, {"nodes": 2, "rounds": 1}, nodes=32, rounds=5).parse_args()
    refusal = requirements.why_not() or why_not()
    if refusal:
        raise SystemExit(refusal)
    # The user on the hosts may not write bytecode into this checkout.
    for folder in ("launchpad", "benchmarks"):
        compileall.compile_dir(ROOT / folder, quiet=1)
    with Network(3) as network:
        Sshd(network)
        user = User(network.hosts[0])
        ways = {name: partial(user.seconds, name, options.nodes) for name in ("ours", "bare")}
        times = in_turns(ways, options.rounds, warm_up=1)
    spreads = {name: spread(seconds) for name, seconds in times.items()}
    ratio = spreads["ours"]["median"] / spreads["bare"]["median"]
    print("seconds until all workers on three hosts have answered")
    table = Table(
        "workers", {**dict.fromkeys(["ours (range)", "bare (range)"], ".2f"), "ours/bare": ".2f"}
    )
    table.row(options.nodes, spreads["ours"], spreads["bare"], ratio)
    faults = [f"ours takes {ratio:.2f} times as long as bare: at most {MOST:g}"] * (ratio > MOST)
    finish(options, {"nodes": options.nodes, "seconds": times, "ratio": ratio}, faults)


if __name__ == "__main__":
    main()
