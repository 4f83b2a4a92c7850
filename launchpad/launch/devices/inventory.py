"""The inventory: which GPUs this host has. Looked at only when somebody asks for one.

LP_FAKE_GPUS        GPUs that are not there, for tests: `4`, or `A100:2,H100:2`
nvidia-ml-py        the driver's own library (`pip install launchpad[gpu]`)
nvidia-smi          the driver's own command
else                none
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any

from launchpad.errors import DefinitionError
from launchpad.launch.devices.device import Device

FAKE = "LP_FAKE_GPUS"

_FAKE_MEMORY = 80 << 30
_SMI_S = 20.0
_QUERY = "index,uuid,name,memory.total,mig.mode.current"


def installed() -> list[Device]:
    """The devices of this host, in the order of their numbers; GPUs in MIG mode by their parts."""
    fake = os.environ.get(FAKE)
    if fake:
        return _fake(fake)
    try:
        import pynvml
    except ImportError:
        return _asked_of_command()
    return _asked_of_library(pynvml)


def _fake(text: str) -> list[Device]:
    """`4`, or names with numbers; a name with `MIG` in it stands for parts of one GPU."""
    kinds = text.split(",") if not text.isdigit() else [f"Fake GPU:{text}"]
    devices: list[Device] = []
    for kind in kinds:
        name, _, count = (part.strip() for part in kind.rpartition(":"))
        if not name or not count.isdigit():
            raise DefinitionError(
                f"{FAKE}={text!r} was not understood at {kind!r}: expected a number such as '4', or names"
                " with numbers such as 'A100:2,H100:2'"
            )
        devices += _fakes(name, int(count), len({d.gpu for d in devices}))
    return devices


def _fakes(name: str, count: int, index: int) -> list[Device]:
    """So many of a name, numbered from `index`, or so many parts of one."""
    if "MIG" in name:
        gpu = f"GPU-fake-{index}"
        parts = [f"MIG-fake-{index}-{part}" for part in range(count)]
        return [Device(index, part, name, _FAKE_MEMORY, gpu) for part in parts]
    numbers = range(index, index + count)
    return [Device(i, f"GPU-fake-{i}", name, _FAKE_MEMORY) for i in numbers]


def _asked_of_library(nvml: Any) -> list[Device]:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:  # there is no driver here
        return []
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        return [d for i, handle in enumerate(handles) for d in _devices_at(nvml, i, handle)]
    finally:
        nvml.nvmlShutdown()


def _devices_at(nvml: Any, index: int, handle: Any) -> list[Device]:
    whole = _device(nvml, index, handle)
    try:
        is_divided = nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE
    except nvml.NVMLError:  # it cannot be divided
        return [whole]
    return list(_parts(nvml, index, handle, whole.uuid)) if is_divided else [whole]


def _parts(nvml: Any, index: int, handle: Any, whole: str) -> Iterator[Device]:
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with contextlib.suppress(nvml.NVMLError):  # there is no part with this number
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            yield _device(nvml, index, part, whole)


def _device(nvml: Any, index: int, handle: Any, whole: str = "") -> Device:
    name, uuid = nvml.nvmlDeviceGetName(handle), nvml.nvmlDeviceGetUUID(handle)
    memory = 0
    with contextlib.suppress(nvml.NVMLError):  # where GPU and host share theirs
        memory = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    return Device(index, _text(uuid), _text(name), memory, whole)


def _text(value: str | bytes) -> str:
    """Older releases give bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _asked_of_command() -> list[Device]:
    try:
        table = _output("nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits")
        rows = [[cell.strip() for cell in line.split(",")] for line in table.splitlines() if line]
        is_divided = any(row[4] == "Enabled" for row in rows)
        parts = _parts_in(_output("nvidia-smi", "-L")) if is_divided else {}
    except (OSError, subprocess.SubprocessError, IndexError):  # there is no driver here
        return []
    return [device for row in rows for device in _devices_in(row, parts)]


def _output(*command: str) -> str:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        timeout=_SMI_S,
        stdin=subprocess.DEVNULL,
    ).stdout


def _devices_in(row: list[str], parts: dict[str, list[tuple[str, str]]]) -> list[Device]:
    index, uuid, name, memory, mode = row
    if mode == "Enabled":
        named = parts.get(uuid, [])
        return [Device(int(index), part, f"{name} MIG {size}", 0, uuid) for part, size in named]
    return [Device(int(index), uuid, name, int(memory) << 20 if memory.isdigit() else 0)]


def _parts_in(listing: str) -> dict[str, list[tuple[str, str]]]:
    """GPU → its parts and their sizes, of what `nvidia-smi -L` prints."""
    parts: dict[str, list[tuple[str, str]]] = {}
    whole = ""
    for line in listing.splitlines():
        uuid = re.search(r"UUID: ([\w-]+)", line)
        size = re.match(r"\s+MIG\s+(\S+)", line)
        if uuid and size:
            parts.setdefault(whole, []).append((uuid[1], size[1]))
        elif uuid:
            whole = uuid[1]
    return parts
