"""The costs of calls, beside those of other libraries.

    python benchmarks/rpc.py [--only latency,pipelined] [--rounds N] [--json FILE] [--quick]
    python benchmarks/rpc.py --backend ray      between two actors of a Ray cluster, beside Ray's own calls

Every contender has a client process and a server process of its own, new in every round. All contenders
take turns in one run. A figure is the median over the rounds, with the range; a ratio compares figures of
the same round. The last table has our promises, beside the measured figures. benchmarks/calls/ has a
file for each measurement and for each contender, with a description.
"""

from __future__ import annotations

from benchmarks.calls.run import ON_RAY, SPEED, run
from benchmarks.harness.command_line import Parser


def main() -> None:
    parser = Parser(__doc__, {}, rounds=5, only=list(SPEED))
    parser.add_argument("--backend", choices=["processes", "ray"], default="processes")
    options = parser.parse_args()
    unknown = set(options.only) - set(SPEED)
    if unknown:
        parser.error(
            f"no measurement is called {' or '.join(unknown)}; there are {', '.join(SPEED)}"
        )
    chosen = {name: SPEED[name] for name in options.only}
    run(ON_RAY if options.backend == "ray" else chosen, options)


if __name__ == "__main__":
    main()
