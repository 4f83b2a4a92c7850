"""What `import launchpad` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import launchpad as lp

EXPECTED_OF_OLD = """
Program launch LaunchType LAUNCH_TYPE flags is_local_launch is_local_launch_or_test PyNode PyClassNode
CourierNode CourierHandle CourierClient MultiThreadingColocation MultiProcessingColocation CacherNode Address
AbstractAddressBuilder SimpleLocalAddressBuilder get_port_from_address stop wait_for_stop stop_event
register_stop_handler unregister_stop_handler make_program_stopper make_program Deferred Dereferenceable
maybe_dereference Node Handle PythonProcess LaunchContext get_context
""".split()


def test_every_public_name_exists() -> None:
    for name in lp.__all__:
        assert getattr(lp, name) is not None


def test_every_public_class_and_function_says_what_it_is() -> None:
    for name in lp.__all__:
        assert (getattr(lp, name).__doc__ or "").strip(), name


def test_programs_written_for_dm_launchpad_find_their_names() -> None:
    missing = [name for name in EXPECTED_OF_OLD if name not in lp.__all__]

    assert missing == []


def test_importing_launchpad_imports_nothing_heavy() -> None:
    code = "import sys, launchpad; print(' '.join(sys.modules))"

    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout

    heavy = {
        "numpy",
        "grpc",
        "ray",
        "rich",
        "cloudpickle",
        "psutil",
        "asyncio",
        "kubernetes",
        "portpicker",
    }
    assert heavy.isdisjoint(modules.split())
