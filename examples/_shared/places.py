"""Folders of examples. Those that teach are in `examples/`; systems of papers are in `examples/systems/`."""

from pathlib import Path

EXAMPLES = Path(__file__).parents[1]


def folder_of(name: str) -> Path:
    """Return the folder of an example."""
    system = EXAMPLES / "systems" / name
    return system if system.is_dir() else EXAMPLES / name


def module_of(name: str) -> str:
    """Return the module that `python -m` runs: `examples.ps`, `examples.systems.horovod`."""
    return ".".join(folder_of(name).relative_to(EXAMPLES.parent).parts)
