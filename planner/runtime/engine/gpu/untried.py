"""Code for GPUs that has run over stand-ins alone, and is refused until it has run on one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planner.errors import UsageError

_UNTRIED: Final[Mapping[str, str]] = {
    "mpi": "leave --device out; on the GPUs of one machine, leave --engine out",
}
"""By engine, what to do instead."""


def refuse_untried(engine: str, device: str) -> None:
    """Refuses an engine on devices on which it has never run.

    Raises:
        UsageError: it has not run there.
    """
    if device != "cpu" and engine in _UNTRIED:
        raise UsageError(f"--engine {engine} --device {device}: not yet tried on a GPU", hint=_UNTRIED[engine])
