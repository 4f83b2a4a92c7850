"""What a launching script defines belongs to the `__main__` of its workers on other hosts, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import scripts
from tests.ray.clusters import Cluster

pytestmark = pytest.mark.slow

SCRIPT = """
import inspect, pickle
import launchpad as lp

class Net:
    pass

def run():
    print(type(pickle.loads(pickle.dumps(Net()))) is Net, inspect.getsource(Net).splitlines()[0])

program = lp.Program("main")
program.add_node(lp.PyNode(run), label="worker")
lp.launch(program, "ray")
"""


def test_sound_06_what_the_script_defines_can_be_pickled_on_a_node_and_its_source_is_there(
    ray_cluster: Cluster, tmp_path: Path
) -> None:
    done = scripts.run(scripts.write(tmp_path, SCRIPT))

    assert done.returncode == 0, done.stderr
    assert "worker-0  | True class Net:" in done.stdout
