"""Run an example, and draw the largest program that it launches, as graph.svg in its folder.

python -m examples._shared.drawn NAME FLAG …
"""

import importlib
import runpy
import sys
from typing import Any

import launchpad as lp
from examples._shared.places import folder_of, module_of
from launchpad.graph.svg import svg


def main(name: str) -> None:
    """Run the example as `python -m` would."""
    launched: list[lp.Program] = []
    real = lp.launch

    def launch(programs: Any, *args: Any, **kwargs: Any) -> Any:
        launched.append(programs)
        return real(programs, *args, **kwargs)

    for module in ("launchpad", real.__module__):  # lp.run calls the one of the second module
        importlib.import_module(module).launch = launch  # type: ignore[attr-defined]
    try:
        runpy.run_module(module_of(name), run_name="__main__", alter_sys=True)
    finally:
        largest = max(launched, key=lambda program: len(program.graph().nodes))
        (folder_of(name) / "graph.svg").write_text(f"{svg(largest)}\n")


if __name__ == "__main__":
    del sys.argv[0]
    main(sys.argv[0])
