"""A million calls: does anything grow, and is anything left when both sides have closed?

    python benchmarks/soak.py [--rounds N] [--json FILE] [--quick]

benchmarks/calls/soak.py says what is called and what is weighed. The worst of the rounds counts.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.calls.measurements import SOAK
from benchmarks.calls.run import parser, run

if __name__ == "__main__":
    run(SOAK, parser(__doc__, rounds=1).parse_args())
