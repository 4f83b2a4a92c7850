"""The names that users of other RPC systems type, and what to write here; see `courier/explained.py`."""

from __future__ import annotations

_FUTURES = "client.futures.method(…), which returns a Future; client.method(…) waits for the answer"
_OPTIONS = "client.with_options(timeout_s=…).method(…)"

METHOD = {
    "remote": _FUTURES,
    "future": _FUTURES,
    "submit": _FUTURES,
    "call": "client.method(…) itself",
    "aio": "await client.aio.method(…)",
    "options": _OPTIONS,
    "with_options": _OPTIONS,
}

OPTIONS = {
    "timeout": "timeout_s=",
    "deadline": "timeout_s=",
    "retries": "idempotent=True, so that courier may repeat a call",
}

SERVED = {
    "ping": "lp.courier.health(client)",
    "close": "lp.courier.close(client)",
    "shutdown": "running.stop() in the launching script, or lp.stop() in a worker",
}
