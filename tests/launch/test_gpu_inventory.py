"""Which GPUs a host has, and which of them CUDA_VISIBLE_DEVICES leaves."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import launchpad as lp
from launchpad.launch.devices import inventory
from launchpad.launch.devices.device import Device, visible

WHOLE = [
    Device(0, "GPU-aa11", "A100"),
    Device(1, "GPU-ab22", "A100"),
    Device(2, "GPU-cc33", "H100"),
]
PARTS = [
    Device(0, "MIG-1111", "A100 MIG 1g", whole="GPU-dd44"),
    Device(0, "MIG-1222", "A100 MIG 2g", whole="GPU-dd44"),
    Device(1, "GPU-ee55", "A100"),
]


def numbers(devices: list[Device]) -> list[str]:
    return [device.id for device in devices]


# --- CUDA_VISIBLE_DEVICES --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("devices", "variable", "ids"),
    [
        (WHOLE, None, ["0", "1", "2"]),
        (WHOLE, "", []),
        (WHOLE, " 2 , 0 ", ["2", "0"]),
        (WHOLE, "GPU-ab22", ["1"]),
        (WHOLE, "GPU-ab,GPU-c", ["1", "2"]),
        (WHOLE, "-1", []),
        (WHOLE, "0,-1,1", ["0"]),
        (WHOLE, "NoDevFiles", []),
        (PARTS, None, ["MIG-1111", "MIG-1222", "1"]),
        (PARTS, "MIG-1222", ["MIG-1222"]),
        (PARTS, "MIG-11,1", ["MIG-1111", "1"]),
        (PARTS, "0", ["MIG-1111", "MIG-1222"]),
        (PARTS, "GPU-dd", ["MIG-1111", "MIG-1222"]),
    ],
)
def test_devices_are_named_by_number_or_uuid_or_its_beginning_and_parts_also_by_their_gpu(
    devices: list[Device], variable: str | None, ids: list[str]
) -> None:
    assert numbers(visible(devices, variable)) == ids


@pytest.mark.parametrize(
    ("variable", "why"),
    [
        ("7", "'7', which is not one of 0 (GPU-aa11, A100), 1"),
        ("0,GPU-zz", "'GPU-zz', which is not one of"),
        ("gpu", "'gpu', which is not one of"),
        ("GPU-a", "'GPU-a', which could be any of 0 (GPU-aa11, A100), 1 (GPU-ab22, A100)"),
        ("0,GPU-aa", "'GPU-aa' twice"),
        ("1,1", "'1' twice"),
    ],
)
def test_what_it_names_wrongly_is_quoted(variable: str, why: str) -> None:
    with pytest.raises(lp.DefinitionError, match="CUDA_VISIBLE_DEVICES") as caught:
        visible(WHOLE, variable)

    assert repr(variable) in str(caught.value)
    assert why in str(caught.value)


# --- GPUs that are not there -----------------------------------------------------------------------


def test_fake_gpus_are_a_number_of_them_or_have_the_names_they_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LP_FAKE_GPUS", "2")
    assert numbers(inventory.installed()) == ["0", "1"]

    monkeypatch.setenv("LP_FAKE_GPUS", "A100:2, A30 MIG 1g.6gb:2 ,H100:1")

    found = inventory.installed()

    assert [(d.id, d.name) for d in found] == [
        ("0", "A100"),
        ("1", "A100"),
        ("MIG-fake-2-0", "A30 MIG 1g.6gb"),
        ("MIG-fake-2-1", "A30 MIG 1g.6gb"),
        ("3", "H100"),
    ]
    assert len({d.uuid for d in found}) == 5


@pytest.mark.parametrize("text", ["many", "A100", "A100:two", ":2", "A100:1,,"])
def test_fake_gpus_that_are_not_understood_are_quoted(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LP_FAKE_GPUS", text)

    with pytest.raises(lp.DefinitionError, match="'A100:2,H100:2'") as caught:
        inventory.installed()

    assert repr(text) in str(caught.value)


# --- what the driver tells -------------------------------------------------------------------------


class NvmlError(Exception):
    pass


@pytest.fixture
def no_fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LP_FAKE_GPUS", raising=False)


@pytest.fixture
def nvml(no_fakes: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The part of nvidia-ml-py that is used; two GPUs, the second in two parts."""

    def mig_mode(handle: str) -> list[int]:
        if handle == "GPU-0":
            raise NvmlError("not supported")
        return [1, 1]

    def part(handle: str, index: int) -> str:
        if index not in (0, 3):
            raise NvmlError("not found")
        return f"MIG-{index}"

    fake: Any = types.ModuleType("pynvml")
    fake.NVML_DEVICE_MIG_ENABLE = 1
    fake.NVMLError = NvmlError
    fake.nvmlInit = Mock()
    fake.nvmlShutdown = Mock()
    fake.nvmlDeviceGetCount = lambda: 2
    fake.nvmlDeviceGetHandleByIndex = lambda index: f"GPU-{index}"
    fake.nvmlDeviceGetUUID = str.encode
    fake.nvmlDeviceGetName = lambda handle: f"name of {handle}"
    fake.nvmlDeviceGetMigMode = mig_mode
    fake.nvmlDeviceGetMaxMigDeviceCount = lambda handle: 7
    fake.nvmlDeviceGetMigDeviceHandleByIndex = part
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_the_library_of_the_driver_is_asked(nvml: Any) -> None:
    found = inventory.installed()

    assert found == [
        Device(0, "GPU-0", "name of GPU-0"),
        Device(1, "MIG-0", "name of MIG-0", "GPU-1"),
        Device(1, "MIG-3", "name of MIG-3", "GPU-1"),
    ]
    assert nvml.nvmlInit.call_count == nvml.nvmlShutdown.call_count == 1


def test_without_a_driver_there_are_no_gpus(nvml: Any) -> None:
    nvml.nvmlInit.side_effect = NvmlError("Driver Not Loaded")

    assert inventory.installed() == []


COMMAND = """
case "$1" in
  -L) echo 'GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c89852c-d268)
  MIG 1g.5gb      Device  0: (UUID: MIG-7089d0f3-293f)
  MIG 2g.10gb     Device  1: (UUID: MIG-8c9f2b1a-1234)
GPU 1: NVIDIA H100 (UUID: GPU-77777777-d268)' ;;
  *) echo '0, GPU-5c89852c-d268, NVIDIA A100-SXM4-40GB, Enabled
1, GPU-77777777-d268, NVIDIA H100, [N/A]' ;;
esac
"""
BY_COMMAND = [
    Device(0, "MIG-7089d0f3-293f", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "GPU-5c89852c-d268"),
    Device(0, "MIG-8c9f2b1a-1234", "NVIDIA A100-SXM4-40GB MIG 2g.10gb", "GPU-5c89852c-d268"),
    Device(1, "GPU-77777777-d268", "NVIDIA H100"),
]


@pytest.mark.usefixtures("no_fakes")
@pytest.mark.parametrize(
    ("script", "found"),
    [
        (COMMAND, BY_COMMAND),
        ("exit 9", []),
        ("echo 'No devices were found'", []),
        ("echo '0, x'", []),
        ("", []),
    ],
    ids=["GPUs", "it fails", "no GPUs", "of no use", "there is no command"],
)
def test_without_the_library_the_command_is_asked_and_what_is_of_no_use_means_no_gpus(
    script: str, found: list[Device], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if script:
        command = tmp_path / "nvidia-smi"
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert inventory.installed() == found


# --- a real one ------------------------------------------------------------------------------------


@pytest.mark.leaks_by_nature  # the driver, once asked, keeps pipes
@pytest.mark.usefixtures("no_fakes")
def test_a_worker_sees_the_real_gpu_that_it_was_given_and_no_other() -> None:
    found = inventory.installed()
    if not found:
        pytest.skip("this host has no GPU: neither nvidia-ml-py nor nvidia-smi found one")
    program = lp.Program("p")
    with program.group("with", resources=lp.Resources(gpus=1)):
        program.add_node(lp.PyNode(count_devices))
    program.add_node(lp.PyNode(count_devices), label="without")

    running = lp.testing.run(program, 60, "test_mp")

    assert "CUDA counts 1" in running.logs("with")
    assert "CUDA counts 0" in running.logs("without")


def count_devices() -> None:
    """What the driver itself says; it looks at CUDA_VISIBLE_DEVICES when it is first asked."""
    import ctypes

    cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0)
    cuda.cuInit(0)
    cuda.cuDeviceGetCount(ctypes.byref(count))
    print(f"CUDA counts {count.value}")
