"""Which ONNX Runtime is there, told by what pip has noted."""

from __future__ import annotations

import sys
import tomllib
import types
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from planner import api, installed
from planner.errors import UsageError
from planner.installed import Distribution, distributions_of, require_runtime, runtime_for, runtime_notes, versions
from planner.runtime.engine.gpu import devices

ROOT = Path(__file__).parents[1]
GPU, CPU = Distribution("onnxruntime-gpu", "1.31.1"), Distribution("onnxruntime", "1.32.0")
INSTALL = 'pip install "onnxruntime-gpu>=1.31,<1.32"'
MACHINES = [("linux", "x86_64"), ("win32", "AMD64"), ("linux", "aarch64"), ("darwin", "arm64"), ("win32", "ARM64")]


def note(folder: Path, *found: Distribution, package: str = "onnxruntime") -> str:
    """Notes in a folder what pip notes of distributions of a package, without any of its files."""
    for one in found:
        info = folder / f"{one.name.replace('-', '_')}-{one.version}.dist-info"
        info.mkdir(parents=True)
        (info / "RECORD").write_text(f"{package}/__init__.py,sha256=x,1\n{info.name}/RECORD,,\n", encoding="utf-8")
    return str(folder)


def test_all_that_share_a_folder_are_found_and_the_first_folder_hides_others(tmp_path: Path) -> None:
    both = note(tmp_path / "both", GPU, CPU)
    note(tmp_path / "both", Distribution("onnxruntime-extensions", "0.15.2"), package="onnxruntime_extensions")
    nightly = note(tmp_path / "nightly", Distribution("ort-nightly", "1.33.0.dev1"))
    (tmp_path / "damaged" / "onnxruntime-1.0.dist-info").mkdir(parents=True)
    assert distributions_of("onnxruntime", [str(tmp_path / "none"), both, nightly]) == (CPU, GPU)
    assert distributions_of("onnxruntime", [nightly, both]) == (Distribution("ort-nightly", "1.33.0.dev1"),)
    assert distributions_of("onnxruntime", [str(tmp_path / "damaged")]) == ()


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ((), ()),
        ((GPU,), ()),
        (
            (CPU, GPU),
            (
                f"note: {CPU} and {GPU} are installed in one folder: what runs is a mixture",
                f"hint: pip uninstall -y onnxruntime onnxruntime-gpu, then {INSTALL}",
            ),
        ),
        (
            (Distribution("onnxruntime", "1.31.1"),),
            (
                "note: ONNX Runtime is onnxruntime 1.31.1, which has no CUDA; tofu requires onnxruntime-gpu 1.31",
                f"hint: pip uninstall -y onnxruntime, then {INSTALL}",
            ),
        ),
        (
            (Distribution("onnxruntime-gpu", "1.30.0"),),
            ("note: ONNX Runtime is onnxruntime-gpu 1.30.0; tofu is tried with 1.31", f"hint: {INSTALL}"),
        ),
    ],
)
def test_another_runtime_than_the_required_is_named_with_what_to_do(
    found: tuple[Distribution, ...], says: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "RUNTIME", "onnxruntime-gpu")
    assert runtime_notes(found) == says


def test_where_there_is_no_build_for_gpus_that_for_cpus_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "RUNTIME", "onnxruntime")
    assert runtime_notes([Distribution("onnxruntime", "1.31.1")]) == ()


def test_pyproject_requires_on_each_machine_what_is_asked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stated = [one for one in map(Requirement, project["dependencies"]) if one.name.startswith("onnxruntime")]
    assert len(stated) == 2
    major, minor = installed.RUNTIME_VERSION
    assert {str(one.specifier) for one in stated} == {f"<{major}.{minor + 1},>={major}.{minor}"}
    assert all(one.marker is not None for one in stated)
    required = [
        [one.name for one in stated if one.marker and one.marker.evaluate({"sys_platform": a, "platform_machine": b})]
        for a, b in MACHINES
    ]
    assert required == [[runtime_for(*machine)] for machine in MACHINES]
    assert required == [["onnxruntime-gpu"]] * 2 + [["onnxruntime"]] * 3


def test_a_runtime_that_is_not_there_or_lacks_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    monkeypatch.setattr(installed, "RUNTIME", "onnxruntime-gpu")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(UsageError, match="ONNX Runtime is not installed") as refused:
        require_runtime()
    assert refused.value.hint == INSTALL
    note(tmp_path, GPU)
    (tmp_path / "onnxruntime" / "capi").mkdir(parents=True)  # what `pip uninstall onnxruntime` leaves of the two
    with pytest.raises(UsageError, match="the installed ONNX Runtime lacks files") as refused:
        require_runtime()
    assert refused.value.facts[:2] == (
        "onnxruntime-gpu 1.31.1 is listed as installed",
        f"there is no __init__.py in {tmp_path / 'onnxruntime'}",
    )
    assert refused.value.hint == f"pip uninstall -y onnxruntime-gpu, then {INSTALL}"


def test_a_run_tells_of_it_before_anything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("planner.api.running.runtime_notes", lambda: ("note: another one", "hint: do this"))
    with pytest.raises(UsageError, match="holds no plan"):
        api.run(tmp_path, notice=told.append)
    assert told == ["note: another one", "hint: do this"]


def test_gpus_are_refused_where_the_runtime_has_no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "onnxruntime", lambda: types.SimpleNamespace(cuda_version=""))
    monkeypatch.setattr(devices, "distributions_of", lambda _package: (CPU,))
    with pytest.raises(UsageError, match="--device cuda: no GPU can be used") as refused:
        devices.require_cuda()
    assert refused.value.facts == ("the installed ONNX Runtime has no CUDA: onnxruntime 1.32.0",)


def test_versions_say_what_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("onnx", "onnxruntime", "cupy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    note(tmp_path, GPU, CPU)
    note(tmp_path, Distribution("cupy-cuda13x", "14.2.0"), package="cupy")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert versions()[1:] == (
        "onnx: not installed",
        "onnxruntime 1.32.0, onnxruntime-gpu 1.31.1",
        "cupy-cuda13x 14.2.0",
    )
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "__init__.py").touch()
    sys.path_importer_cache.pop(str(tmp_path), None)
    assert versions()[1] == "onnx: of unknown version"
