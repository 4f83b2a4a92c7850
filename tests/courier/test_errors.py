"""The error tree."""

from __future__ import annotations

import pickle

import pytest

from launchpad import courier
from launchpad.courier import errors

KINDS = [
    courier.CourierError,
    courier.NotSent,
    courier.Refused,
    courier.OutcomeUnknown,
    courier.WorkerFailed,
    courier.DeadlineExceeded,
    courier.ProtocolError,
    courier.RemoteError,
    courier.MethodNotFound,
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_survives_pickling(kind) -> None:
    error = kind("what happened", server="learner-0", address="unix:/x", method="step")

    copied = pickle.loads(pickle.dumps(error))

    assert type(copied) is kind
    assert str(copied) == str(error) == "what happened"
    assert vars(copied) == vars(error)
    assert pickle.loads(pickle.dumps(courier.RemoteTraceback("line 1"))).text == "line 1"


def test_all_errors_are_drawn_in_the_tree() -> None:
    drawing = errors.__doc__ or ""

    assert all(kind.__name__ in drawing for kind in KINDS)


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (courier.Refused, courier.NotSent),
        (courier.DeadlineExceeded, TimeoutError),
        (courier.MethodNotFound, AttributeError),
        (courier.MethodNotFound, courier.RemoteError),
    ],
)
def test_errors_are_caught_by_what_they_also_are(kind, base) -> None:
    assert issubclass(kind, base)


@pytest.mark.parametrize(
    "kind", [OSError, UnicodeDecodeError, KeyError, ExceptionGroup, StopIteration]
)
def test_builtin_types_combine_or_stay_plain_but_never_fail(kind) -> None:
    plain = courier.RemoteError("what happened", server="s")

    combined = errors.as_remote_kind(kind, {}, plain)

    assert isinstance(combined, courier.RemoteError)
    assert str(combined) == "what happened"
    assert pickle.loads(pickle.dumps(combined)).server == "s"
