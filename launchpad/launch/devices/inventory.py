"""The GPUs of this host. launchpad looks for them only if a worker asks for one.

LP_FAKE_GPUS        GPUs that do not exist, for tests: `4`, or `A100:2,H100:2`
nvidia-ml-py        the driver's own library (`pip install 'launchpad-graph[gpu]'`)
nvidia-smi          the driver's own command
otherwise           no GPUs
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from typing import Any

from launchpad.errors import DefinitionError
from launchpad.launch.devices.device import Device

FAKE = "LP_FAKE_GPUS"

_SMI_S = 20.0
_QUERY = "index,uuid,name,mig.mode.current"


def installed() -> list[Device]:
    """Return this host's devices, in the order of their numbers. A GPU in MIG mode counts as its parts."""
    fake = os.environ.get(FAKE)
    if fake:
        return _fake(fake)
    try:
        import pynvml
    except ImportError:
        return _from_command()
    return _from_library(pynvml)


def _fake(text: str) -> list[Device]:
    """Parse `4`, or names with numbers. A name with `MIG` in it stands for parts of one GPU."""
    kinds = text.split(",") if not text.isdigit() else [f"Fake GPU:{text}"]
    devices: list[Device] = []
    for kind in kinds:
        name, _, count = (part.strip() for part in kind.rpartition(":"))
        if not name or not count.isdigit():
            raise DefinitionError(
                f"{FAKE}={text!r} was not understood at {kind!r}: expected a number such as '4', or names"
                " with numbers such as 'A100:2,H100:2'"
            )
        index = len({d.gpu for d in devices})
        for n in range(int(count)):
            if "MIG" in name:
                part = f"MIG-fake-{index}-{n}"
                gpu = f"GPU-fake-{index}"
                devices.append(Device(index, part, name, gpu))
            else:
                devices.append(Device(index + n, f"GPU-fake-{index + n}", name))
    return devices


def _from_library(nvml: Any) -> list[Device]:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:  # there is no driver here
        return []
    devices = []
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            gpu = _describe(nvml, index, handle)
            is_divided = False
            with contextlib.suppress(nvml.NVMLError):  # the GPU cannot be divided
                is_divided = nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE
            if not is_divided:
                devices.append(gpu)
                continue
            for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
                with contextlib.suppress(nvml.NVMLError):  # there is no part with this number
                    part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
                    devices.append(_describe(nvml, index, part, gpu.uuid))
    finally:
        nvml.nvmlShutdown()
    return devices


def _describe(nvml: Any, index: int, handle: Any, whole: str = "") -> Device:
    texts = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle)
    # Older releases give bytes.
    uuid, name = (text.decode() if isinstance(text, bytes) else text for text in texts)
    return Device(index, uuid, name, whole)


def _from_command() -> list[Device]:
    try:
        table = _output("nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits")
        rows = [[cell.strip() for cell in line.split(",")] for line in table.splitlines() if line]
        is_divided = any(row[3] == "Enabled" for row in rows)
        listing = _output("nvidia-smi", "-L") if is_divided else ""
    except (OSError, subprocess.SubprocessError, IndexError):  # there is no driver here
        return []
    devices: list[Device] = []
    parts: dict[str, list[tuple[str, str]]] = {}  # GPU → the uuid and the size of each
    gpu = ""
    for line in listing.splitlines():
        uuid_match = re.search(r"UUID: ([\w-]+)", line)
        size_match = re.match(r"\s+MIG\s+(\S+)", line)
        if uuid_match and size_match:
            parts.setdefault(gpu, []).append((uuid_match[1], size_match[1]))
        elif uuid_match:
            gpu = uuid_match[1]
    for index, uuid, name, mode in rows:
        if mode == "Enabled":
            parts_of_gpu = parts.get(uuid, [])
            devices += [
                Device(int(index), part, f"{name} MIG {s}", uuid) for part, s in parts_of_gpu
            ]
        else:
            devices.append(Device(int(index), uuid, name))
    return devices


def _output(*command: str) -> str:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        timeout=_SMI_S,
        stdin=subprocess.DEVNULL,
    ).stdout
