"""The names of courier's own methods, which every server has beside its object's.

They have a slash, so none can be written as `client.name`.
"""

from __future__ import annotations

BUILTIN_PREFIX = b"courier/"
LIST_METHODS = BUILTIN_PREFIX + b"list_methods"
HEALTH = BUILTIN_PREFIX + b"health"
STATS = BUILTIN_PREFIX + b"stats"
WAITS = BUILTIN_PREFIX + b"waits"
ATTACH = BUILTIN_PREFIX + b"attach"
