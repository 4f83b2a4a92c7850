"""The input of a pod: bytes that are packed into as few Secrets as possible, each of at most a MiB.

payload ──compressed──▶ [part-000, part-001, …] ──one projected volume──▶ files of one folder ──▶ payload

There should be few Secrets because a kubelet requests each one separately, and waits long between two
requests.
"""

from __future__ import annotations

import json
import pickle
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launchpad.launch.backends import launcher_info
from launchpad.launch.backends.launcher_info import LauncherInfo, RunSecrets

PART_BYTES = 1_000_000
"""The most bytes of content in a Secret, which may have 1,048,576 bytes. The rest is for names."""

VERSIONS = "versions"
SHARED = "shared"
"""Files of the first Secret that every pod gets. The first has the launcher's versions as text, which any
Python can read. A pod checks them before it unpickles anything."""
FILES = (VERSIONS, SHARED)

Places = Mapping[str, Sequence[tuple[int, str]]]
"""Content → for each of its parts, the number of the Secret and the file in it."""

VERSION_HINT = (
    "make an image with the launcher's versions, since what they pickle is not always the same"
)


def packed(content: bytes) -> list[bytes]:
    """Return a content as compressed parts. The same content always gives the same parts."""
    compressed = zlib.compress(content, 6)
    return [compressed[i : i + PART_BYTES] for i in range(0, len(compressed), PART_BYTES)]


def pack_secrets(
    first: Mapping[str, bytes], contents: Mapping[str, bytes]
) -> tuple[list[dict[str, bytes]], Places]:
    """Pack contents into Secrets. Return the files of each Secret, and the places of the contents.

    The first Secret begins with the files `first`. A part that doesn't fit into the last Secret begins a new
    one.
    """
    secret_files: list[dict[str, bytes]] = [dict(first)]
    places: dict[str, list[tuple[int, str]]] = {name: [] for name in contents}
    for name, content in contents.items():
        for i, part in enumerate(packed(content)):
            if sum(map(len, secret_files[-1].values())) + len(part) > PART_BYTES:
                secret_files.append({})
            file = file_name(name, i)
            secret_files[-1][file] = part
            places[name].append((len(secret_files) - 1, file))
    return secret_files, places


def unpacked(folder: Path, name: str) -> bytes:
    """Return the content of the files `name-000`, `name-001`, … of a folder; empty without them."""
    parts: list[bytes] = []
    while True:
        path = folder / file_name(name, len(parts))
        if not path.exists():
            break
        parts.append(path.read_bytes())
    return zlib.decompress(b"".join(parts)) if parts else b""


def file_name(name: str, index: int) -> str:
    """Return the name of the file with one part."""
    return f"{name}-{index:03d}"


@dataclass(frozen=True)
class RunConfig:
    """The configuration that all workers of a run share.

    Attributes:
        places: Address name → its endpoint for other pods.
        grace_s: How long a worker may take to stop.
        state: The folder or URL in which workers save; empty if nothing is kept.
        run_id: The run, by which saves of an attempt are refused once the next one has begun.
    """

    program: str
    launch_type: str
    keys: RunSecrets
    origin: LauncherInfo
    places: Mapping[str, str]
    grace_s: float
    state: str = ""
    run_id: str = ""

    def files(self) -> dict[str, bytes]:
        versions = json.dumps(launcher_info.versions()).encode()
        return {VERSIONS: versions, SHARED: pickle.dumps(self, protocol=5)}


def mismatch(mounted: Path) -> str:
    """Return a sentence with the versions that differ between pod and launcher; empty if all agree."""
    differs = launcher_info.differences(json.loads((mounted / VERSIONS).read_text()))
    return f"the image is not like the launcher: {differs}" if differs else ""
