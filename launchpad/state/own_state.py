"""A worker's own state: its saved states and its directories."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from launchpad.courier import fork
from launchpad.courier.interruptions import Lock
from launchpad.courier.security import private_directory
from launchpad.errors import NotRunningError
from launchpad.state.fence import Fence
from launchpad.state.places import StatePlaces

if TYPE_CHECKING:
    from launchpad.state.saved_states import SavedStates


class OwnState:
    """The state that one worker keeps from one attempt to the next. Methods may be called from any thread.

    Attributes:
        places: Where the state is.
        fence: Closed when this attempt ends, so that threads of the attempt that go on save nothing more.
    """

    def __init__(self, worker: str, places: StatePlaces, fence: Fence | None = None) -> None:
        self.places = places
        self.fence = fence or Fence()
        self._worker = worker
        # Held to save: two threads that save at once would choose the same number for their versions.
        self._lock = fork.free_in_child(Lock())
        self._has_earlier: bool | None = None

    def child(self, index: int) -> OwnState:
        """Return the state of one of several nodes in this worker. Each node has its own files."""
        own = self.places.own and f"{self.places.own}/{index}"
        saved = self.places.saved and f"{self.places.saved}/{index}"
        return OwnState(self._worker, replace(self.places, own=own, saved=saved), self.fence)

    @contextlib.contextmanager
    def saved_states(self, *, of_object: bool = False) -> Iterator[SavedStates]:
        """Give one thread at a time access to the saved states.

        Args:
            of_object: Use the states that come from the object's own `save()`, which are kept separately.
        """
        from launchpad.state.saved_states import SavedStates

        self.has_earlier()
        place = self._known(self.places.saved)
        with self._lock:
            yield SavedStates(self._worker, f"{place}/object" if of_object else place, self.fence)

    def directory(self) -> Path:
        """Create the worker's directory, and its parents, which may be missing on another host. Return it."""
        self.has_earlier()
        path = Path(self._known(self.places.own))
        private_directory.make_private(path)
        return path

    def group_directory(self, launch_type: str) -> Path:
        """Create the directory that all workers of the group share, and return it.

        Raises:
            NotRunningError: The hosts of the group share no directory.
        """
        if not self.places.group:
            raise NotRunningError(
                f"{self._worker} has no group_dir: on {launch_type} the workers of a group may be on"
                " different hosts. Name a folder that all of them have: lp.launch(program, state='/shared/a')"
            )
        path = Path(self.places.group)
        private_directory.make_private(path)
        return path

    def has_earlier(self) -> bool:
        """True if an earlier launch left state behind. The first answer is cached."""
        if self._has_earlier is None:
            self._has_earlier = False
            if self.places.is_kept:
                from launchpad.state.atomic_folder import folder_of

                places = {self.places.own, self.places.saved} - {""}
                # Ignore errors here. They are raised again when the place is used.
                with contextlib.suppress(OSError):
                    self._has_earlier = any(folder_of(place).has_content() for place in places)
        return self._has_earlier

    def _known(self, place: str) -> str:
        if place:
            return place
        if self.places.saved:
            why = f"no state_dir beside {self.places.saved}: name a folder, no URL"
        else:
            why = "no place for state: give one"
        raise NotRunningError(
            f"{self._worker} has {why}, `with lp.testing.worker(state=tmp_path):`"
        )
