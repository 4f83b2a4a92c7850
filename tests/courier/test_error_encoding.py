"""The envelope of an exception: opened without unpickling anything, whatever is in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchpad.courier.codec import pickling
from launchpad.courier.errors import ProtocolError

optional = st.none() | st.binary(max_size=50)


@given(st.text(), st.text(), st.text(), optional, optional, st.text())
def test_what_is_encoded_is_decoded_the_same(name, text, traceback, kind, whole, origin) -> None:
    parts = (name, text, traceback, kind, whole, origin)

    assert pickling.open_error(pickling.seal_error(*parts)) == parts


@given(st.binary(max_size=300))
def test_garbage_is_a_protocol_error(data: bytes) -> None:
    try:
        pickling.open_error(data)
    except ProtocolError:
        return

    assert len(data) >= 24


@given(cut=st.integers(1, 200))
def test_a_shortened_error_is_a_protocol_error(cut: int) -> None:
    body = pickling.encode_error(ValueError("x" * 100))

    with pytest.raises(ProtocolError):
        pickling.open_error(body[:-cut])
