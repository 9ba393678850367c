"""What stands behind the command line, replaced."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

import planner
import planner.printing
from command_line import COMMANDS, Door, take_as_there


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Door:
    """``planner.api`` and what prints results replaced for one test; tracebacks go to its folder.

    Models and plans that lines name are taken to be there.
    """
    take_as_there(monkeypatch)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    door = Door()
    api, tables, gate = (types.ModuleType(name) for name in ("api", "tables", "gate"))
    gate.print_check = lambda _result, sheet: sheet.line("table")  # type: ignore[attr-defined]
    for command in (*COMMANDS, "check", "memory", "simulate"):
        setattr(api, command, lambda *args, _command=command, **options: door.call(_command, *args, **options))
        setattr(tables, command, lambda _result, out: door.shown(out))
    api.show = lambda _result: door.shown(sys.stdout)  # type: ignore[attr-defined]
    for parent, name, module in (
        (planner, "api", api),
        (planner.printing, "tables", tables),
        (planner.printing, "gate", gate),
    ):
        monkeypatch.setitem(sys.modules, f"{parent.__name__}.{name}", module)
        monkeypatch.setattr(parent, name, module, raising=False)
    return door
