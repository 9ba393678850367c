"""Run by Python at its start: where stand-ins are to be found, CUDA's own libraries from PyPI are not."""

from __future__ import annotations

import ctypes
from typing import Any

_load = ctypes.CDLL.__init__


def _load_other(library: ctypes.CDLL, name: Any, *arguments: Any, **options: Any) -> None:
    if "/nvidia/" in str(name):
        raise OSError(f"{name}: hidden, since a stand-in is to be found")
    _load(library, name, *arguments, **options)


ctypes.CDLL.__init__ = _load_other  # type: ignore[method-assign]
