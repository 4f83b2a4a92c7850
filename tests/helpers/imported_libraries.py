"""A node in a module that imports nothing, so that its worker has only what the host had imported."""

import sys


def print_numeric_ones() -> None:
    """Print the imported libraries that read the number of threads when they are loaded."""
    print([name for name in ("numpy", "torch", "mkl", "numexpr") if name in sys.modules])
