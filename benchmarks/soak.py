"""A million calls: does anything grow, and is anything left when both sides have closed?

    python benchmarks/soak.py [--rounds N] [--json FILE] [--quick]

benchmarks/calls/soak.py says what is called and what is weighed. The worst of the rounds counts.
"""

from __future__ import annotations

from benchmarks.calls.run import SOAK, run
from benchmarks.harness.command_line import Parser

if __name__ == "__main__":
    run(SOAK, Parser(__doc__, {}, rounds=1).parse_args())
