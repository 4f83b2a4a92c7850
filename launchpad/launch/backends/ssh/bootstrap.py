"""The first code on a host, which may have another Python: check it, unpack what is sent, and go on there.

The launcher sends the source of this file, so it imports nothing of launchpad before that is unpacked. On
stdin it gets two frames, its header and an archive of launchpad and the user's project. A frame is a length
of 8 bytes, and then the content. It answers with a line, after which come frames.

Keep to what Python 3.6 understands, so that an old Python can say that it is too old.
"""

import fcntl
import importlib.util
import json
import os
import pickle
import shutil
import sys
import tempfile
import zlib

PREFIX = "launchpad-code-"


def read(n_bytes: int) -> bytes:
    """Read `n_bytes` bytes from stdin, and no more: the frames after them are for the node process."""
    parts = []
    while n_bytes:
        part = os.read(0, min(n_bytes, 1 << 20))
        if not part:
            sys.exit("the launcher is gone")
        parts.append(part)
        n_bytes -= len(part)
    return b"".join(parts)


def read_frame() -> bytes:
    """Read the content of one frame."""
    return read(int.from_bytes(read(8), "big"))


def refusal(header: dict) -> str:  # type: ignore[type-arg]
    """Return why this Python can't run workers; empty if it can."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if version != header["python"]:
        return (
            f"its {sys.executable} is Python {version}, and the launcher's is {header['python']}:"
            " name one with hosts={…: {'python': …}}"
        )
    missing = [name for name in header["needs"] if importlib.util.find_spec(name) is None]
    if missing:
        return (
            f"its {sys.executable} lacks {', '.join(missing)}: install the launcher's packages there, or"
            " name another Python with hosts={…: {'python': …}}"
        )
    return ""


def remove_leftovers(parent: str) -> None:
    """Remove folders of node processes that were killed. A process that runs holds the lock of its folder."""
    for name in os.listdir(parent):
        folder = os.path.join(parent, name)
        if not name.startswith(PREFIX):
            continue
        # Another process may remove the folder at the same moment.
        try:
            if os.lstat(folder).st_uid != os.getuid():
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            pass
        finally:
            os.close(lock)


def make_folder() -> str:
    """Make a folder for the code, and lock it until this process ends."""
    while True:
        folder = tempfile.mkdtemp(prefix=PREFIX)
        # Another process may take the folder for a leftover before it is locked here.
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_SH)
            if os.fstat(lock).st_ino == os.stat(folder).st_ino:
                return folder
            os.close(lock)
        except FileNotFoundError:
            continue


def unpack(archive: bytes, folder: str) -> None:
    """Write the files of an archive: see `connection.archive`."""
    made = set()
    for name, modified, content in pickle.loads(zlib.decompress(archive)):
        path = os.path.join(folder, name)
        parent = os.path.dirname(path)
        if parent not in made:
            os.makedirs(parent, exist_ok=True)
            made.add(parent)
        with open(path, "wb") as file:
            file.write(content)
        # Python uses a compiled module only if its source has the time that it was compiled from.
        os.utime(path, (modified, modified))


def main() -> None:
    """Go on in the node process, or say why this host can't be used."""
    # What the user's shell or workers print must not get between the frames.
    output = os.dup(1)
    os.dup2(2, 1)
    header = json.loads(read_frame())

    def say_hello(refusal: str) -> None:
        os.write(output, (header["hello"] + json.dumps({"refusal": refusal}) + "\n").encode())

    why = refusal(header)
    if why:
        say_hello(why)
        return
    archive = read_frame()
    remove_leftovers(tempfile.gettempdir())
    folder = make_folder()
    try:
        unpack(archive, folder)
        sys.path.insert(0, folder)
        from launchpad.launch.backends.ssh import node_process

        node_process.serve(header, output, say_hello)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
