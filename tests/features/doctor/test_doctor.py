"""``tofu doctor`` says whether plans run here, and what is missing where they do not."""

from __future__ import annotations

import pytest

from planner.commands.main import main
from planner.installed import versions
from planner.runtime.engine.gpu import devices


@pytest.mark.parametrize(
    ("probe", "lines"),
    [
        (devices.Probe(2, ""), ["GPUs: 2 usable"]),
        (
            devices.Probe(0, "CuPy finds no GPU", "use a CPU"),
            ["GPUs: none usable: CuPy finds no GPU", "hint: use a CPU"],
        ),
    ],
)
def test_gpus(
    probe: devices.Probe, lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(devices, "probe_cuda", lambda: probe)
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert set(versions()) <= set(printed)
    assert printed[-len(lines) :] == lines


def test_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert ("GPUs: none usable" in capsys.readouterr().out) == bool(devices.probe_cuda().missing)


def test_no_runtime(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("planner.installed.importlib.util.find_spec", lambda _name: None)
    assert main(["doctor"]) == 2
    assert "error: " in capsys.readouterr().err
