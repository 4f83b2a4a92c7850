"""Importing courier is cheap; tests/test_layers.py knows that it stands alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from launchpad import courier

PACKAGE = Path(courier.__file__).parent
HEAVY = {
    "asyncio",
    "cloudpickle",
    "concurrent.futures",
    "hmac",
    "logging",
    "numpy",
    "tempfile",
    "uuid",
}


def test_no_heavy_module_is_imported() -> None:
    # The package above has imports of its own, so it is stood in for.
    source = f"""
import sys, types
package = types.ModuleType("launchpad"); package.__path__ = [{str(PACKAGE.parent)!r}]
sys.modules["launchpad"] = package
import launchpad.courier
print(*sys.modules)
"""

    loaded = subprocess.run(
        [sys.executable, "-I", "-S", "-c", source], capture_output=True, text=True, check=True
    ).stdout.split()

    assert HEAVY.isdisjoint(loaded)


def test_every_public_name_is_there() -> None:
    assert all(hasattr(courier, name) for name in courier.__all__)
