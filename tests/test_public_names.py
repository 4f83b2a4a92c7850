"""What `import launchpad` gives, and what it costs."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import launchpad as lp


def test_no_public_name_is_that_of_a_module_which_an_import_would_put_in_its_place() -> None:
    folder = Path(lp.__file__).parent
    modules = {path.stem for path in folder.iterdir()}
    alike = {
        name for name in lp.__all__ if name in modules and not inspect.ismodule(getattr(lp, name))
    }

    assert alike == {"launch"}, "which is imported with the package"


def test_importing_launchpad_imports_nothing_heavy_and_no_public_name_numpy() -> None:
    """It would have started threads before torch."""
    code = (
        "import sys, launchpad as lp; print(*sys.modules); [getattr(lp, n) for n in lp.__all__];"
        " print('numpy' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    modules, has_numpy = done.stdout.splitlines()
    heavy = "absl asyncio cloudpickle grpc kubernetes numpy portpicker psutil pyspark ray rich"
    assert set(heavy.split()).isdisjoint(modules.split())
    assert has_numpy == "False"
