"""Stand-ins for CUDA's libraries, over which ONNX Runtime's own CUDA provider loads on a machine without a GPU.

    python tests/tools/cuda_stand_in.py [--version 1.31.1]

builds them into ``build/cuda-stand-in/VERSION`` and tries them: which functions the provider names is read from its
file, so that another version of it gets other stand-ins. Memory is the host's; what is launched, copied, allocated and
waited for is noted and not executed (``cuda_libraries/*.cpp``). So the provider partitions, looks kernels up, makes
sessions and runs them as it would on a GPU; only the numbers are none.

A process must have loaded them before ONNX Runtime loads its provider, and keeps them to its end: tests start a child
with ``environment`` and call ``preload`` there first.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = Path(__file__).parent / "cuda_libraries"
TOOLS: Final = ("g++", "readelf")
CUPY: Final = Path(__file__).parent / "over_stand_ins"
"""A folder with a module ``cupy`` that uses them."""
NOTES: Final = "libstandnotes.so"
CUDNN: Final = "libcudnn.so.9"
WRITTEN: Final = {
    "libcudart": "cudart.cpp",
    "libcublas": "cublas.cpp",
    "libcublasLt": "cublas.cpp",
    "libcudnn": "cudnn.cpp",
}
"""By the library's name before ``.so``: what is written by hand of it."""


def missing_tool() -> str:
    """What the machine lacks for building them; "" if nothing."""
    return ", ".join(tool for tool in TOOLS if shutil.which(tool) is None)


def installed() -> Path:
    """The folder of ONNX Runtime's libraries in this environment."""
    found = importlib.util.find_spec("onnxruntime")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "capi"


def wanted_functions(provider: Path) -> dict[str, tuple[str, ...]]:
    """By library, the functions that a provider's file wants of CUDA's libraries."""
    lines = subprocess.run(["readelf", "--dyn-syms", "-W", provider], capture_output=True, text=True, check=True).stdout
    found: dict[str, list[str]] = {}
    for name, library in re.findall(r"UND (\S+?)@(libcu\w+\.so\.\d+)", lines):
        found.setdefault(library, []).append(name)
    needed = subprocess.run(["readelf", "-d", "-W", provider], capture_output=True, text=True, check=True).stdout
    for library in re.findall(r"\[(libcu\w+\.so\.\d+)\]", needed):
        found.setdefault(library, [])
    # The driver's functions have no versions.
    (driver,) = (library for library in found if library.startswith("libcuda.so"))
    found[driver] += re.findall(r"UND (cu[A-Z]\w+)$", lines, re.MULTILINE)
    # cuDNN is opened while it runs, and its functions are asked for by name.
    found[CUDNN] = sorted({name.decode() for name in re.findall(rb"\0(cudnn[A-Z]\w+)(?=\0)", provider.read_bytes())})
    return {library: tuple(sorted(names)) for library, names in sorted(found.items())}


def build(capi: Path | None = None, into: Path | None = None) -> Path:
    """Builds the stand-ins, unless they are there, and returns their folder.

    Args:
        capi: the folder with ONNX Runtime's libraries; None: of this environment.
        into: the parent of their folder.
    """
    provider = (capi or installed()) / "libonnxruntime_providers_cuda.so"
    content = [path.read_bytes() for path in sorted(SOURCES.iterdir())] + [Path(__file__).read_bytes()]
    status = provider.stat()
    made_of = hashlib.sha256(b"\0".join(content) + f"{status.st_size} {status.st_mtime_ns}".encode()).hexdigest()[:16]
    folder = (into or ROOT / "build" / "cuda-stand-in") / made_of
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        unfinished = Path(name) / "libraries"
        unfinished.mkdir()
        _compile(["notes.cpp"], NOTES, unfinished, [f"-Wl,-soname,{NOTES}"])
        for library, functions in wanted_functions(provider).items():
            _stand_in(library, functions, unfinished)
        try:
            unfinished.rename(folder)
        except OSError:
            assert folder.is_dir(), "another process was faster, or nothing is there"
    return folder


def _stand_in(library: str, functions: Sequence[str], folder: Path) -> None:
    stem = library.split(".so")[0]
    by_hand = SOURCES / WRITTEN[stem] if stem in WRITTEN else None
    text = by_hand.read_text() if by_hand is not None else ""
    there = set(re.findall(r'^(?:FUNCTION|extern "C" [\w* ]+?)\s*\**(\w+)\(', text, re.MULTILINE))
    rest = [f'extern "C" int {name}() {{ return stand_in_note("{name}", nullptr, 0), 0; }}' for name in functions
            if name not in there]  # fmt: skip
    generated = folder / f"{stem}.cpp"
    generated.write_text("\n".join(['#include "notes.h"', f'#include "{by_hand.name}"' if by_hand else "", *rest, ""]))
    script = folder / f"{stem}.map"
    script.write_text(f"{library} {{ global: {' '.join(f'{name};' for name in functions)} local: *; }};\n")
    linked = [f"-Wl,--version-script={script}", f"-Wl,-soname,{library}", str(folder / NOTES), "-Wl,-rpath,$ORIGIN"]
    _compile([str(generated)], library, folder, linked if functions else linked[1:])


def _compile(sources: Sequence[str], library: str, folder: Path, linked: Sequence[str] = ()) -> None:
    command = ["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", f"-I{SOURCES}", "-o", str(folder / library),
               *sources, *linked]  # fmt: skip
    subprocess.run(command, check=True, cwd=SOURCES)


def environment(folder: Path, *, gpus: int = 1, without: str = "") -> dict[str, str]:
    """The environment of a process that finds the stand-ins where it looks for CUDA's libraries.

    Args:
        folder: that ``build`` returned.
        gpus: how many there are to be.
        without: a library that is not to load.
    """
    known = os.environ.get("PYTHONPATH")
    if without:
        assert (folder / without).is_file()
        lacking = folder.parent / f"{folder.name}-without-{without}"
        lacking.mkdir(exist_ok=True)
        for file in folder.glob("*.so*"):
            if file.name != without and not (lacking / file.name).exists():
                (lacking / file.name).symlink_to(file)
        (lacking / without).touch()  # no library, whatever else the machine has under that name
        folder = lacking
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "STAND_IN_GPUS": str(gpus),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(CUPY), *([known] if known else [])]),
    }


@functools.cache
def _library() -> Any:
    library = ctypes.CDLL(NOTES)
    library.stand_in_report.restype = ctypes.c_char_p
    return library


@dataclass(frozen=True, slots=True)
class Calls:
    """What was called of the libraries, since the last time that it was forgotten."""

    by_stream: Mapping[tuple[str, int], tuple[int, int]]
    """By function or kind of call, and stream (0: none): how many calls, and their bytes."""

    def count(self, *names: str) -> int:
        """Calls of some kinds; a name that ends in ``*`` stands for all that begin like it."""
        return sum(calls for (found, _), (calls, _) in self.by_stream.items() if _is_one(found, names))

    def bytes(self, *names: str) -> int:
        """Their bytes."""
        return sum(size for (found, _), (_, size) in self.by_stream.items() if _is_one(found, names))

    def streams(self, *names: str) -> dict[int, int]:
        """Calls of some kinds by stream."""
        found: Counter[int] = Counter()
        for (name, stream), (calls, _) in self.by_stream.items():
            if _is_one(name, names):
                found[stream] += calls
        return dict(found)

    def names(self) -> dict[str, int]:
        """All that was called, but for the kernels' own names."""
        found: Counter[str] = Counter()
        for (name, _), (calls, _) in self.by_stream.items():
            if not name.startswith("kernel "):
                found[name] += calls
        return dict(found)


def _is_one(name: str, wanted: Sequence[str]) -> bool:
    return any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in wanted)


def calls() -> Calls:
    """What was called in this process."""
    found = {}
    for line in _library().stand_in_report().decode().splitlines():
        count, size, stream, name = line.split("\t")
        found[name, int(stream)] = (int(count), int(size))
    return Calls(found)


def forget() -> None:
    """Begins the list of calls anew."""
    _library().stand_in_forget()


def _try(folder: Path, packages: Path | None) -> int:
    """Makes one session in a process of its own; 0 if the provider takes it."""
    code = (
        "import onnxruntime, numpy as np\n"
        "from onnx import TensorProto as T, helper as h\n"
        "value = lambda name: h.make_tensor_value_info(name, T.FLOAT, [8, 8])\n"
        "graph = h.make_graph([h.make_node('MatMul', ['x', 'x'], ['y'])], 'g', [value('x')], [value('y')])\n"
        "model = h.make_model(graph, opset_imports=[h.make_opsetid('', 21)], ir_version=10)\n"
        "options = onnxruntime.SessionOptions()\n"
        "options.add_session_config_entry('session.disable_cpu_ep_fallback', '1')\n"
        "session = onnxruntime.InferenceSession(model.SerializeToString(), options,"
        " providers=['CUDAExecutionProvider'], enable_fallback=0)\n"
        "session.run(None, {'x': np.zeros((8, 8), np.float32)})\n"
        "import cuda_stand_in\n"
        "found = cuda_stand_in.calls()\n"
        "assert found.count('launch') == 1, found.names()\n"
        "print(onnxruntime.__version__, session.get_providers(), found.names())\n"
    )
    variables = environment(folder)
    if packages is not None:
        variables["PYTHONPATH"] = os.pathsep.join([str(packages), variables["PYTHONPATH"]])
    return subprocess.run([sys.executable, "-c", code], env=variables, check=False).returncode


def main() -> int:
    """Builds the stand-ins of a version, and tries them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--version", help="of onnxruntime-gpu, downloaded into build/  [default: the installed one]")
    version = parser.parse_args().version
    packages = None
    if version:
        packages = ROOT / "build" / "cuda-stand-in" / f"onnxruntime-{version}"
        if not packages.is_dir():
            install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(packages)]
            subprocess.run([*install, f"onnxruntime-gpu=={version}"], check=True)
    folder = build(None if packages is None else packages / "onnxruntime" / "capi")
    print(f"built: {folder}")
    return _try(folder, packages)


if __name__ == "__main__":
    sys.exit(main())
