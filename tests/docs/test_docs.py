"""The documentation does what it says: its code runs, its output is real, its pointers lead somewhere."""

from __future__ import annotations

import ast
import functools
import importlib
import re
import shlex
import tomllib
from pathlib import Path

import pytest

import launchpad as lp
from tests.docs import pages, state_picture
from tests.docs.pages import PAGES, ROOT, SNIPPETS, Block, blocks
from tests.spark import sessions

KNOWN_COMMANDS = [
    r"make( (demo|docs|test(-\w+)?|check|flaky|bench))?",
    r"(\.venv/bin/)?(pip|python -m pip) install \S+",
    r"LP_CONTRACT_BACKENDS=\w+ (\.venv/bin/)?python -m pytest tests/contract",
    r"(\.venv/bin/)?python -m examples\.\w+( --\S+)*",
    r"(\.venv/bin/)?python (docs/snippets|benchmarks)/[\w/]+\.py( --\S+)*",
    r"source \.venv/bin/activate",
    r"kind (create cluster|load docker-image \S+)",
    r"docker build -f docs/snippets/\S+ --build-arg \S+ -t \S+ \.",
    r"docker push \S+",
    r"kubectl config (use-context|set-context --current) \S+",
    r'echo "image: \S+" > settings\.yaml',
    r"LP_HOSTS=\S+ launchpad run --ranks 3 --launch_type ssh train\.py",
    r'sbatch --nodes=3 --wrap="exec launchpad run --ranks 3 --launch_type slurm train\.py"',
]
# These run where there is one.
ELSEWHERE = ("frameworks", "on_ray", "on_slurm", "on_spark", "on_ssh", "on_kubernetes", "on_torch")
SCRIPTS = sorted(
    p
    for p in SNIPPETS.rglob("*.py")
    if not p.name.startswith("test_") and p.parent.name not in ELSEWHERE
    if p.name != "deadlock.py"  # it hangs; tests/docs/test_debug_a_worker.py runs it
)
RUN_BY_A_PAGE = {
    match[1]
    for block in blocks("console")
    if not block.marker.startswith("run by: ")
    for match in re.finditer(
        r"^\$ python (docs/snippets/\S+)( --lp_launch_type=local_m\w)?$", block.text, re.M
    )
}
CODE = ("python", "toml", "yaml", "dockerfile")
EXIT_CODES = {"failing.py": 1, "step3_bug.py": 1}
ON_RAY = [block for block in blocks("console") if "--lp_launch_type=ray" in block.text]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --- code ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", blocks(*CODE), ids=str)
def test_code_in_a_page_is_the_text_of_a_file_that_runs(block: Block) -> None:
    assert block.marker.startswith("snippet: "), "put <!-- snippet: docs/snippets/… --> before it"

    assert block.text.strip() == pages.snippet(block.marker.removeprefix("snippet: "))


@pytest.mark.parametrize(
    "script", [script for script in SCRIPTS if _name(script) not in RUN_BY_A_PAGE], ids=_name
)
def test_a_snippet_runs_whose_output_no_page_shows(script: Path) -> None:
    flag = " --lp_launch_type=local_mp" if _takes_flag(script) else ""

    code, output = pages.run(f"python {_name(script)}{flag}")

    assert code == EXIT_CODES.get(script.name, 0), output


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted((SNIPPETS / "on_ray").glob("*.py")), ids=_name)
def test_a_snippet_for_ray_runs(script: Path, ray_cluster: object) -> None:
    code, output = pages.run(f"python {_name(script)}")

    assert code == 0, output


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize("script", sorted((SNIPPETS / "on_spark").glob("*.py")), ids=_name)
def test_a_snippet_for_spark_runs(script: Path) -> None:
    sessions.skip_without_spark()
    code, output = pages.run(f"python {_name(script)}", timeout_s=280)

    assert code == 0, output
    assert "4950\n" in output


def _takes_flag(script: Path) -> bool:
    text = script.read_text()
    runs = re.search(r"lp\.(launch|run)\(", text)
    return runs is not None and not re.search(r'launch_type=|"local_mp"', text)


def test_the_tests_among_the_snippets_pass() -> None:
    code, output = pages.run(
        "cd docs/snippets && python -m pytest -q -c /dev/null --rootdir . -p no:cacheprovider ."
    )

    assert code == 0, output


def test_every_snippet_is_shown_in_a_page() -> None:
    shown = {block.marker.removeprefix("snippet: ").partition("#")[0] for block in blocks(*CODE)}
    files = {
        _name(path) for kind in ("*.py", "*.yaml", "Dockerfile") for path in SNIPPETS.rglob(kind)
    }

    assert files <= shown


# --- commands and their output -------------------------------------------------------------------


@pytest.mark.parametrize("block", blocks("console"), ids=str)
def test_a_command_prints_what_the_page_shows(block: Block) -> None:
    if block.marker.startswith("run by: "):
        assert (ROOT / block.marker.removeprefix("run by: ")).is_file()
        return
    assert_prints(block)


@pytest.mark.slow
@pytest.mark.parametrize("block", ON_RAY, ids=str)
def test_a_command_on_ray_prints_what_the_page_shows(block: Block, ray_cluster: object) -> None:
    assert_prints(block)


def assert_prints(block: Block) -> None:
    """Each command of a block exits with 0, and prints what the block shows below it."""
    for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        command, _, shown = part.partition("\n")

        code, printed = pages.run(command)

        assert code == 0, printed
        assert not (why := pages.difference(shown, printed)), why


@pytest.mark.parametrize("block", blocks("sh"), ids=str)
def test_commands_without_output_are_known_ones(block: Block) -> None:
    for line in block.text.splitlines():
        command = line.partition(" #")[0].strip()

        assert not command or any(re.fullmatch(known, command) for known in KNOWN_COMMANDS), command
        assert all((ROOT / word).exists() for word in shlex.split(command) if _is_path(word))


def _is_path(word: str) -> bool:
    return word.startswith(("docs/", "tests/", "benchmarks/", "examples/"))


def test_no_block_escapes_these_tests() -> None:
    kinds = {
        match for page in PAGES for match in re.findall(r"^```(\w*)$", page.read_text(), flags=re.M)
    }

    assert kinds <= {"", *CODE, "console", "sh", "mermaid", "text"}


# --- pointers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", pages.prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page

        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", pages.prose(page), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_files_and_functions_that_a_page_names_exist(page: Path) -> None:
    pointers = re.findall(
        r"`((?:launchpad|examples|tests|benchmarks|docs)/[\w/.-]+)(?::([\w.]+))?`",
        pages.prose(page),
    )
    for path, name in pointers:
        assert (ROOT / path).exists(), path
        assert not name or name in _names_in(ROOT / path), f"{path} has no {name}"


@functools.cache
def _names_in(path: Path) -> frozenset[str]:
    """The functions and classes of a file, methods as `Class.method`."""
    found: set[str] = set()

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                found.add(prefix + child.name)
                visit(child, f"{prefix}{child.name}.")

    visit(ast.parse(path.read_text()), "")
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_names_of_launchpad_that_a_page_uses_exist(page: Path) -> None:
    for dotted in re.findall(r"`lp\.([A-Za-z_][\w.]*)", pages.prose(page)):
        functools.reduce(getattr, dotted.split("."), lp)


def test_every_page_can_be_reached_from_the_index() -> None:
    seen: set[Path] = set()
    left = [ROOT / "docs" / "README.md"]
    while left:
        page = left.pop().resolve()
        if page in seen or not page.is_file():
            continue
        seen.add(page)
        links = re.findall(r"\]\(([^)\s#]+\.md)[^)]*\)", page.read_text())
        left += [page.parent / link for link in links if "://" not in link]

    assert {page.resolve() for page in (ROOT / "docs").rglob("*.md")} <= seen


# --- pictures ------------------------------------------------------------------------------------


def test_the_picture_of_a_worker_s_life_is_the_table_of_the_code() -> None:
    (picture,) = (b for b in blocks("mermaid") if b.text.startswith("stateDiagram"))

    assert picture.text.strip() == state_picture.draw()


# --- a backend of one's own ----------------------------------------------------------------------


SOME_OF_THE_CONTRACT = " or ".join(
    "runs_to_its_end hash_seed waited_for unwinds prints on_request_and clients_find_it".split()
)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "tests",
    [
        pytest.param(f"tests/contract -k '{SOME_OF_THE_CONTRACT}'", id="some"),
        pytest.param("tests/contract -m 'not browser'", id="all", marks=pytest.mark.endurance),
    ],
)
def test_the_backend_that_the_docs_build_passes_the_contract(tests: str, tmp_path: Path) -> None:
    folder = SNIPPETS / "one_python_each"
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    installed = tmp_path / "one_python_each-1.0.dist-info"  # what pip would leave behind
    installed.mkdir()
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: one-python-each\nVersion: 1\n"
    )
    points = project["entry-points"]["launchpad.backends"]
    lines = [f"{name} = {target}" for name, target in points.items()]
    (installed / "entry_points.txt").write_text("\n".join(["[launchpad.backends]", *lines, ""]))

    code, output = pages.run(
        f"export PYTHONPATH={tmp_path}:{folder}:. LP_CONTRACT_BACKENDS=one_python_each;"
        f" python -m pytest -q {tests} -p no:cacheprovider",
        timeout_s=880,
    )

    assert code == 0, output


def test_modules_that_pages_name_can_be_imported() -> None:
    for page in PAGES:
        for name in re.findall(r"`(launchpad(?:\.[a-z_]+)+)`", pages.prose(page)):
            if name != "launchpad.backends":  # an entry point
                importlib.import_module(name)
