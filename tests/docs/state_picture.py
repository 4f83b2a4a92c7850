"""The life of a worker as a picture, drawn from the table that the supervisor goes by.

Print it with: python -m tests.docs.state_picture
"""

from __future__ import annotations

from launchpad.launch.supervision.worker_state import TRANSITIONS, State

WORDS = {
    "start": "its turn to start",
    "ready": "built, and serving",
    "ask": "asked to stop",
    "end": "its end",
    "restart": "its policy says so",
    "give up": "the program stops",
}


def draw() -> str:
    """A Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"  [*] --> {State.PENDING}"]
    lines += [f"  {a} --> {b}: {WORDS[event]}" for (a, event), b in TRANSITIONS.items()]
    return "\n".join([*lines, f"  {State.ENDED} --> [*]"])


if __name__ == "__main__":
    print(draw())
