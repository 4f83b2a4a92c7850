"""The numbers that ranks keep and send: bfloat16, which is the upper half of float32.

numpy doesn't know bfloat16. So its bits are kept as uint16, and are widened for all arithmetic.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Half = npt.NDArray[np.uint16]


def to_half(values: npt.NDArray[Any]) -> Half:
    """Round to the nearest bfloat16. Of two that are equally near, take the one whose last bit is 0."""
    bits = values.astype(np.float32).view(np.uint32)
    last_bit = bits >> 16 & 1
    return ((bits + 0x7FFF + last_bit) >> 16).astype(np.uint16)


def to_float(half: Half) -> npt.NDArray[np.float32]:
    """Return the same values as float32."""
    return (half.astype(np.uint32) << 16).view(np.float32)
