"""Python's collector of cyclic garbage, put off.

A program of a hundred thousand steps is millions of small objects, and none of them refers back to what refers to it:
reference counts free them. The collector looks for cycles among them again and again as their number grows, which takes
longer than to make them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """No search for cycles inside; also a decorator."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
