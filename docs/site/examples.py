"""The examples in docstrings, as code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

from docs.site.names import EXAMPLE


class Fenced(Extension):
    """A griffe extension that makes each example a fenced block, highlighted and easy to copy."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Replace the examples of one module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(_fence, f"{obj.docstring.value}\n").rstrip()


def _fence(match: re.Match[str]) -> str:
    return f"Example:\n    ```python\n{match[1].rstrip()}\n    ```\n\n"
