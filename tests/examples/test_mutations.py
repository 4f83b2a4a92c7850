"""The wrong programs that the examples' own checks must refuse: `python -m tests.examples.mutations`."""

from __future__ import annotations

from examples import gallery
from examples._shared.places import EXAMPLES
from tests.examples.mutations import __main__ as script


def test_each_line_that_is_broken_on_purpose_is_in_its_file_once() -> None:
    for name, mutation in script.selected([]):
        text = (EXAMPLES / script.file_of(name, mutation)).read_text()

        assert text.count(mutation.old) == 1, f"{name}: {mutation.rule}"


def test_each_system_of_a_paper_has_mutations() -> None:
    systems = {example.name for example in gallery.EXAMPLES if example.source}

    assert set(script.all_names()) == systems
