"""A check that memory does not grow over a million calls, and that nothing is left after the close.

    python benchmarks/soak.py [--rounds N] [--json FILE] [--quick]

benchmarks/calls/soak.py describes the calls and the figures. The worst of the rounds counts.
"""

from __future__ import annotations

from benchmarks.calls.run import SOAK, run
from benchmarks.harness.command_line import Parser

if __name__ == "__main__":
    run(SOAK, Parser(__doc__, {}, rounds=1).parse_args())
