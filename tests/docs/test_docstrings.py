"""What the reference says of the public names: each has an example, which runs, and lists what it raises."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.site.names import PublicName, public_names
from tests.docs.examples import calls, flows, programs, reports, workers  # noqa: F401
from tests.docs.examples.runner import SETUPS, Example
from tests.docs.raising import undocumented

NAMES = public_names()


@pytest.mark.parametrize("public", NAMES, ids=lambda public: public.name)
def test_the_example_of_a_public_name_runs(
    public: PublicName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert public.example, f"{public.path} has no `Example:` in its docstring"
    example = Example(public.example, tmp_path, monkeypatch)

    with example.stack:
        SETUPS.get(public.name, Example.run)(example)

    assert example.printed != [] or "print(" not in public.example, "it has not come to its print()"


def test_every_setup_is_for_a_public_name() -> None:
    assert set(SETUPS) <= {public.name for public in NAMES}


def test_what_public_names_raise_is_in_their_docstrings() -> None:
    found = {public.name: [*undocumented(public)] for public in NAMES}

    assert not {name: errors for name, errors in found.items() if errors}, "give it a `Raises:`"
