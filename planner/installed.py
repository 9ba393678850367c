"""Packages installed beside tofu, by pip's records: nothing here imports what it asks for.

ONNX Runtime is one package, ``onnxruntime``, that several distributions bring: ``onnxruntime`` for CPUs,
``onnxruntime-gpu``, ``onnxruntime-directml``, nightly builds. pip knows of no conflict between them: the second one
writes over the files of the first, and removing either takes files of both away.
"""

from __future__ import annotations

import importlib.util
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from planner.errors import UsageError

_RUNTIME_PACKAGE: Final = "onnxruntime"
_NAMES: Final = {"onnx": ("onnx",), _RUNTIME_PACKAGE: ("onnxruntime", "ort"), "cupy": ("cupy",)}
"""How the distributions of a package are called, at the beginning."""
_TITLES: Final = {"onnx": "onnx", _RUNTIME_PACKAGE: "ONNX Runtime", "cupy": "CuPy"}
RUNTIME_VERSION: Final = (1, 31)
"""Its major and minor version, the one whose kernels ``planner/runtime/engine/gpu/cuda_kernels.txt`` tells."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The distribution that pip has installed under a name."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def runtime_for(system: str, machine: str) -> str:
    """The distribution of ONNX Runtime that tofu requires on a machine; pyproject.toml says the same by markers.

    Args:
        system: as in ``sys.platform``.
        machine: as in ``platform.machine()``.
    """
    has_gpu_build = (system, machine) in (("linux", "x86_64"), ("win32", "AMD64"))
    return "onnxruntime-gpu" if has_gpu_build else "onnxruntime"


RUNTIME: Final = runtime_for(sys.platform, platform.machine())


def versions() -> tuple[str, ...]:
    """Python, ONNX, ONNX Runtime and CuPy with their versions, each by the distributions that bring it, in a line."""
    return (f"Python {platform.python_version()}", *(_version(package) for package in _TITLES))


def _version(package: str) -> str:
    distributions = distributions_of(package)
    if distributions:
        return ", ".join(map(str, distributions))
    return f"{_TITLES[package]}: {'of unknown version' if importlib.util.find_spec(package) else 'not installed'}"


def distributions_of(package: str, path: Sequence[str] | None = None) -> tuple[Distribution, ...]:
    """The distributions that have put a package where Python finds it; more than one have overwritten each other.

    Args:
        package: ``onnx``, ``onnxruntime`` or ``cupy``.
        path: folders that Python searches, in order; ``sys.path`` by default.
    """
    for folder in sys.path if path is None else path:
        distributions = []
        for name in _NAMES[package]:
            for info in sorted(Path(folder).glob(f"{name}*.dist-info")):
                if _brings(info, package):
                    written, _, version = info.stem.partition("-")
                    distributions.append(Distribution(written.replace("_", "-"), version))
        if distributions:
            return tuple(distributions)
    return ()


def _brings(info: Path, package: str) -> bool:
    """Whether a distribution has the package; onnxruntime-extensions, say, has another one."""
    try:
        files = (info / "RECORD").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return f"\n{package}/__init__.py," in f"\n{files}"


def require_runtime() -> None:
    """Whether ONNX Runtime can be imported, as far as that is told without doing so.

    Raises:
        UsageError: it is not there, or a part of it has been removed with another distribution.
    """
    spec = importlib.util.find_spec(_RUNTIME_PACKAGE)
    if spec is not None and spec.origin is not None:
        return
    listed = distributions_of(_RUNTIME_PACKAGE)
    if not listed and spec is None:
        raise UsageError("ONNX Runtime is not installed", hint=_install())
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    raise UsageError(
        "the installed ONNX Runtime lacks files",
        facts=(
            *(f"{distribution} is listed as installed" for distribution in listed),
            *(f"there is no __init__.py in {place}" for place in places),
            "its distributions share their files: removing one takes them from another",
        ),
        hint=_instead_of(listed),
    )


def runtime_notes(installed: Sequence[Distribution] | None = None) -> tuple[str, ...]:
    """What a user should know of the ONNX Runtime that is there, in lines; () where it is the one that tofu requires.

    Args:
        installed: its distributions; those that are found by default.
    """
    dists = distributions_of(_RUNTIME_PACKAGE) if installed is None else tuple(installed)
    if len(dists) > 1:
        names = " and ".join(map(str, dists))
        return (f"note: {names} are installed in one folder: what runs is a mixture", f"hint: {_instead_of(dists)}")
    if not dists:
        return ()  # built by the user, who knows
    (dist,) = dists
    wanted = f"{RUNTIME} {_dotted(RUNTIME_VERSION)}"
    if dist.name != RUNTIME:
        lacks = ", which has no CUDA" if dist.name == "onnxruntime" else ""
        return (f"note: ONNX Runtime is {dist}{lacks}; tofu requires {wanted}", f"hint: {_instead_of(dists)}")
    if tuple(dist.version.split(".")[:2]) != tuple(map(str, RUNTIME_VERSION)):
        return (f"note: ONNX Runtime is {dist}; tofu is tried with {_dotted(RUNTIME_VERSION)}", f"hint: {_install()}")
    return ()


def runtime_instead() -> str:
    """How to bring in the ONNX Runtime that tofu requires, in the place of what is there."""
    return _instead_of(distributions_of(_RUNTIME_PACKAGE))


def _instead_of(installed: Sequence[Distribution]) -> str:
    removed = " ".join(distribution.name for distribution in installed)
    return f"pip uninstall -y {removed}, then {_install()}" if removed else _install()


def _install() -> str:
    major, minor = RUNTIME_VERSION
    return f'pip install "{RUNTIME}>={major}.{minor},<{major}.{minor + 1}"'


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))
