"""Imports point down; this is the order, lowest first."""

from __future__ import annotations

import ast
from pathlib import Path

import launchpad

PACKAGE = Path(launchpad.__file__).parent

LAYERS = [
    ["courier", "outcome"],
    ["errors", "flags"],
    ["resources", "restart_policy"],
    ["interruption"],
    ["context"],
    ["address", "stopping"],
    ["handle", "executable", "traverse"],
    ["nodes"],
    ["graph"],
    ["program"],
    ["launch"],
    ["testing", "cli"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imports_of(path: Path) -> set[str]:
    """The modules of launchpad that a file imports at run time, as dotted names below the package."""
    found: set[str] = set()
    for node in _run_time(ast.parse(path.read_text()).body):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module} | {f"{node.module}.{a.name}" for a in node.names}
    return {name.removeprefix("launchpad.") for name in found if name.startswith("launchpad.")}


def _run_time(body: list[ast.stmt]) -> list[ast.AST]:
    """All statements, those inside functions too, but none under `if TYPE_CHECKING`."""
    nodes: list[ast.AST] = []
    for statement in body:
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test):
            continue
        nodes += ast.walk(statement)
    return nodes


def test_every_module_belongs_to_a_layer() -> None:
    modules = {
        p.stem if p.suffix else p.name for p in PACKAGE.iterdir() if not p.name.startswith("_")
    }

    assert modules - {"py"} == set(LEVEL)


def test_imports_point_down() -> None:
    for path in PACKAGE.rglob("*.py"):
        top = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for name in imports_of(path) if top in LEVEL else ():
            imported = name.partition(".")[0]
            if imported in LEVEL and imported != top:
                assert LEVEL[imported] < LEVEL[top], (
                    f"{path} imports launchpad.{name}, which is above it"
                )


def test_courier_imports_nothing_else_of_launchpad() -> None:
    for path in (PACKAGE / "courier").rglob("*.py"):
        assert all(name.startswith("courier") for name in imports_of(path)), path


def test_backends_and_nodes_do_not_know_each_other() -> None:
    for path in (PACKAGE / "launch" / "backends").rglob("*.py"):
        assert not [n for n in imports_of(path) if n.startswith(("nodes", "program"))], path
    for path in (PACKAGE / "nodes").rglob("*.py"):
        assert not [n for n in imports_of(path) if n.startswith("launch")], path


def test_only_the_registry_names_backends() -> None:
    for path in PACKAGE.rglob("*.py"):
        inside = "backends" in path.relative_to(PACKAGE).parts
        reaches = [n for n in imports_of(path) if n.startswith("launch.backends")]
        assert inside or not reaches, f"{path} imports {reaches}"
