"""Sender: on whose behalf a run is made: of a script that launches, or of one that has left."""

from __future__ import annotations

from dataclasses import dataclass

from launchpad import flags
from launchpad.launch.backends.kubernetes import project
from launchpad.launch.backends.kubernetes.objects.run import Owner
from launchpad.launch.backends.kubernetes.settings import Settings
from launchpad.launch.backends.origin import Origin, folder_of_script


@dataclass(frozen=True)
class Sender:
    """What a run takes over from its script.

    Attributes:
      code: The modules beside it, zipped; nothing where they are not to be sent.
      notice_s: How long workers may take to stop; negative: as long as they like.
      run: The name of the run, if it was chosen beforehand.
      owner: What the run goes with, if it is not the first of all.
    """

    origin: Origin
    code: bytes
    notice_s: float
    run: str = ""
    owner: Owner | None = None

    @classmethod
    def here(cls, settings: Settings) -> Sender:
        """This process."""
        code = project.zipped(folder_of_script()) if settings.send_code else b""
        return cls(Origin.here(), code, flags.termination_notice_s())
