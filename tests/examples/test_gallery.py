"""The page of all examples, and what their own pages show of their code."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from examples import gallery
from launchpad.graph.svg import svg

FOLDERS = sorted(
    file.parent
    for pattern in ("*/__main__.py", "systems/*/__main__.py")
    for file in gallery.HERE.glob(pattern)
)


def test_the_page_of_all_examples_is_what_the_script_makes_of_files_and_figures() -> None:
    page = (gallery.HERE / "README.md").read_text()

    assert page == gallery.page(), "make it again: python -m examples.gallery"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_example_has_a_page_of_its_own_and_a_row_in_that_of_all(folder: Path) -> None:
    assert (folder / "README.md").is_file()
    assert folder.name in {example.name for example in gallery.EXAMPLES}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_code_in_the_page_of_an_example_is_in_its_files(folder: Path) -> None:
    lines = {line.strip() for file in folder.glob("*.py") for line in file.read_text().splitlines()}
    page = (folder / "README.md").read_text()
    # Whole programs, which test_own_models.py runs.
    without_programs = re.sub(
        r"^## (As a library|With your own model)\n.*?(?=^## |\Z)", "", page, flags=re.M | re.S
    )

    for block in re.findall(r"^```python\n(.*?)^```", without_programs, re.M | re.S):
        assert {line.strip() for line in block.splitlines()} - {"…", "..."} <= lines


@pytest.mark.parametrize(
    ("name", "arguments"), [("hello_world", ()), ("consumer_producers", ()), ("mapreduce", ([],))]
)
def test_the_picture_of_an_example_shows_the_nodes_that_its_program_has_now(
    name: str, arguments: tuple[list[Path], ...]
) -> None:
    program = importlib.import_module(f"examples.{name}.program").make_program(*arguments)

    shown = (gallery.HERE / name / "graph.svg").read_text()
    texts = "<text.*?>(.*?)</text>"
    assert sorted(re.findall(texts, shown)) == sorted(re.findall(texts, svg(program)))


def test_a_claim_that_no_longer_exists_is_missed() -> None:
    (horovod,) = (example for example in gallery.EXAMPLES if example.name == "horovod")

    with pytest.raises(LookupError, match="no claim with 'flies'; make gallery runs horovod"):
        gallery.checked(replace(horovod, shown=("flies",)))
