"""The error tree, and the envelope of an exception: opened without unpickling anything in it."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchpad import courier
from launchpad.courier import errors
from launchpad.courier.codec import pickling

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


def test_errors_are_caught_by_what_they_also_are() -> None:
    assert issubclass(courier.Refused, courier.NotSent)
    assert issubclass(courier.MethodNotFound, courier.RemoteError)


@pytest.mark.parametrize(
    "kind", [OSError, UnicodeDecodeError, KeyError, ExceptionGroup, StopIteration]
)
def test_builtin_types_combine_or_stay_plain_but_never_fail(kind) -> None:
    plain = courier.RemoteError("what happened", server="s")

    combined = errors.as_remote_kind(kind, {}, plain)

    assert isinstance(combined, courier.RemoteError)
    assert str(combined) == "what happened"
    assert pickle.loads(pickle.dumps(combined)).server == "s"


# --- the envelope ---------------------------------------------------------------------------------

optional = st.none() | st.binary(max_size=50)


@given(st.text(), st.text(), st.text(), optional, optional, st.text())
def test_what_is_encoded_is_decoded_the_same(name, text, traceback, kind, whole, origin) -> None:
    parts = (name, text, traceback, kind, whole, origin)

    assert pickling.open_error(pickling.seal_error(*parts)) == parts


@given(st.binary(max_size=300))
def test_garbage_is_a_protocol_error(data: bytes) -> None:
    try:
        pickling.open_error(data)
    except courier.ProtocolError:
        return

    assert len(data) >= 24


@given(cut=st.integers(1, 200))
def test_a_shortened_error_is_a_protocol_error(cut: int) -> None:
    body = pickling.encode_error(ValueError("x" * 100))

    with pytest.raises(courier.ProtocolError):
        pickling.open_error(body[:-cut])
