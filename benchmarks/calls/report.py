"""What a benchmark writes down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.calls import machine


def write(path: Path, found: dict[str, Any]) -> None:
    """Beside what was found stands where, when and with what, if it is not there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine.describe()} | found, indent=1) + "\n")
