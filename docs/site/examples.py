"""The examples in docstrings, as code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

from docs.site.names import EXAMPLE


class Fenced(Extension):
    """Makes each a fenced block, which is highlighted and can be copied."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(_fence, f"{obj.docstring.value}\n").rstrip()


def _fence(match: re.Match[str]) -> str:
    return f"Example:\n    ```python\n{match[1].rstrip()}\n    ```\n\n"
