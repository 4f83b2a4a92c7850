"""A fuzzer of everything in courier that reads from a socket.

    python benchmarks/fuzz.py [--inputs N] [--seed S] [--json FILE] [--quick]

atheris (libFuzzer) makes the inputs, guided by the code that they reach. The first byte of an input chooses
one reader: the frames (cut into pieces at random), the greeting, the welcome, the notes, the envelope of an
exception, a compressed message, a shared-memory descriptor. A reader may return or raise ProtocolError.
Anything else is a crash; so is an input that takes more than a second of processor time.

The fuzzer keeps inputs in memory, so its own memory grows. To check that courier's does not, the script
replays these inputs at the end, many times, in a process without atheris, whose memory may grow by at most
16 MiB.
"""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import holdings
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.processes import command_apart

MAX_BYTES = 1 << 20
MAX_GROWTH = 16 << 20


def readers() -> list[Callable[[bytes], object]]:
    """Return the functions that read bytes that a peer has sent."""
    from launchpad.courier.codec import compression, pickling
    from launchpad.courier.protocol import framing, handshake
    from launchpad.courier.shm import segments

    def read_frames(data: bytes) -> None:
        decoder = framing.FrameDecoder(max_bytes=MAX_BYTES, scratch_bytes=1024)
        cut = data[0] + 1 if data else 1
        at = 1
        while at < len(data):
            n = min(cut, len(decoder.buffer), len(data) - at)
            decoder.buffer[:n] = data[at : at + n]
            decoder.received(n)
            at += n

    def read_greeting(data: bytes) -> None:
        padded = data.ljust(handshake.CLIENT_HELLO_SIZE, b"\0")[: handshake.CLIENT_HELLO_SIZE]
        handshake.read_version(padded)
        handshake.decode_client_hello(padded)

    def read_welcome(data: bytes) -> None:
        handshake.decode_server_hello(
            data.ljust(handshake.SERVER_HELLO_SIZE, b"\0")[: handshake.SERVER_HELLO_SIZE]
        )

    def read_compressed(data: bytes) -> None:
        n = data[0] % 40 if data else 0
        compression.unpack(data[1 : 1 + n], data[1 + n :], [], MAX_BYTES)

    return [
        read_frames,
        read_greeting,
        read_welcome,
        framing.decode_headers,
        pickling.open_error,
        read_compressed,
        segments.decode_descriptor,
    ]


def seeds() -> list[bytes]:
    """Return valid inputs, for the fuzzer to begin with."""
    from launchpad.courier.caller import Peer
    from launchpad.courier.codec import compression, pickling
    from launchpad.courier.protocol import framing, handshake

    frames = b"".join(
        b"".join(
            map(bytes, framing.encode(kind, 7, b"name", b"body", [memoryview(b"abc")] * i, 9, b"n"))
        )
        for i, kind in enumerate(framing.KINDS)
    )
    small = b"".join(framing.encode_small(kind, 7, b"name", b"body") for kind in framing.KINDS)
    packed, _, note = compression.pack(b"x" * 1000, [])
    return [
        b"\0\x0f" + frames,
        b"\0\xff" + small,
        b"\x01" + handshake.encode_client_hello(b"token", Peer("peer")),
        b"\x02" + handshake.encode_server_hello(0, bytes(16), "server"),
        b"\x03" + framing.encode_headers({1: b"abc", 200: b"", 3: b"x" * 300}),
        b"\x04" + pickling.encode_error(ValueError("x")),
        b"\x05" + bytes([len(note)]) + note + packed,
        b"\x06" + bytes(24),
    ]


def read(data: bytes, into: list[Callable[[bytes], object]]) -> float:
    """Read one input; return the processor time that it took, in seconds."""
    from launchpad.courier.errors import ProtocolError

    began = time.process_time()
    if data:
        with contextlib.suppress(ProtocolError):
            into[data[0] % len(into)](data[1:])
    took_s = time.process_time() - began
    if took_s > 1:
        raise TimeoutError(f"an input took {took_s} s")
    return took_s


def fuzz(directory: str, inputs: int, seed: int) -> None:
    """Fuzz. This needs a process of its own, because libFuzzer ends the process it runs in."""
    import atheris

    with atheris.instrument_imports(include=["launchpad.courier"]):
        targets = readers()
    for i, data in enumerate(seeds()):
        Path(directory, f"seed{i}").write_bytes(data)
    limits = [
        f"-runs={inputs}",
        f"-seed={seed}",
        "-max_len=2048",
        "-timeout=20",
        "-rss_limit_mb=2048",
    ]
    crashes = f"-artifact_prefix={directory}/crash-"
    atheris.Setup([sys.argv[0], directory, *limits, crashes], lambda data: read(data, targets))
    atheris.Fuzz()


def replay(directory: str, inputs: int) -> dict[str, float]:
    """Read the inputs that the fuzzer kept, again and again; return memory growth and the longest time."""
    targets = readers()
    corpus = [path.read_bytes() for path in sorted(Path(directory).iterdir())]
    for data in corpus * 3:
        read(data, targets)
    before = holdings.resident("self")
    slowest = 0.0
    for i in range(inputs):
        slowest = max(slowest, read(corpus[i % len(corpus)], targets))
    return {
        "kept": len(corpus),
        "growth_bytes": holdings.resident("self") - before,
        "slowest_s": slowest,
    }


def main() -> None:
    options = Parser(__doc__, {"inputs": 20_000}, inputs=1_000_000, seed=1).parse_args()
    if importlib.util.find_spec("atheris") is None:
        raise SystemExit("atheris is not installed, and it makes the inputs: pip install atheris")
    inputs = options.inputs
    with tempfile.TemporaryDirectory() as directory:
        command = command_apart(fuzz, directory, inputs, options.seed)
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        crashes = [path.name for path in Path(directory).glob("crash-*")]
        result: dict[str, Any] = {"inputs": inputs, "exit": process.returncode, "crashes": crashes}
        result |= replay(directory, inputs)
    grown_mib = result["growth_bytes"] / 2**20
    slowest_ms = result["slowest_s"] * 1e3
    print(f"{inputs:,} inputs made, {result['kept']} of them kept; {len(crashes)} crashes or hangs")
    print(
        f"replayed {inputs:,} times: memory grew by {grown_mib:.1f} MiB,"
        f" the slowest took {slowest_ms:.1f} ms"
    )
    is_well = not process.returncode and not crashes and result["growth_bytes"] <= MAX_GROWTH
    finish(options, result, [] if is_well else [process.stderr[-4000:]])


if __name__ == "__main__":
    main()
