"""`--lp_view`: the page of a program beside its script."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from tests.helpers import scripts
from tests.helpers.programs import single
from tests.waiting import until

SCRIPT = """
import launchpad as lp

program = lp.Program("demo")
program.add_node(lp.PyNode(lp.wait_for_stop), label="waiter")
if __name__ == "__main__":
    lp.launch(program, "local_mp")
"""


def status_of(url: str) -> int:
    """Of the answer; 0 where there is none."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@pytest.mark.slow
def test_the_page_is_there_for_as_long_as_the_script_runs(tmp_path: Path) -> None:
    pytest.importorskip("nicegui")
    with scripts.start(scripts.write(tmp_path, SCRIPT), "--lp_view") as process:
        assert process.stdout is not None
        printed = iter(process.stdout.readline, "")
        url = next(found[0] for line in printed if (found := re.search(r"http://\S+", line)))
        assert status_of(url.partition("/open")[0]) == 403
        process.terminate()

    until(lambda: status_of(url) == 0)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"view": "terminl", "launch_type": "test_mt"}, "no view='terminl'"),
        (
            {"view": "browser", "launch_type": "kubernetes", "detach": True, "image": "a:b"},
            r"`python -m launchpad view` shows it",
        ),
    ],
)
def test_no_view_of_another_name_or_of_a_detached_run(options: dict[str, Any], why: str) -> None:
    with pytest.raises(lp.DefinitionError, match=why):
        lp.launch(single(lp.PyNode(print)), **options)
