"""Writes which operators have a CUDA kernel, for which types: ``python tests/tools/cuda_kernel_table.py``.

The table is ``planner/runtime/engine/gpu/cuda_kernels.txt``. It is the registry of ONNX Runtime's CUDA provider
itself, as ``get_all_opkernel_def`` tells it: the provider is loaded over stand-ins (``cuda_stand_in.py``), in a copy of
the package whose TensorRT provider, which asks for libraries of its own, is replaced (``kernel_registry.cpp``).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import cuda_stand_in
from planner.graph.core.model import DType

TABLE: Final = cuda_stand_in.ROOT / "planner" / "runtime" / "engine" / "gpu" / "cuda_kernels.txt"
_ASK: Final = """
import json, sys
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def
json.dump([[d.domain, d.op_name, list(d.version_range), d.type_constraints] for d in get_all_opkernel_def()
           if d.provider == "CUDAExecutionProvider"], open(sys.argv[1], "w"))
"""
_DOMAINS: Final = {"": "ai.onnx", "ai.onnx.ml": "ai.onnx.ml", "com.microsoft": "com.microsoft"}
_SPELLED: Final = {DType.FLOAT32: "float", DType.FLOAT64: "double"}
_TYPES: Final = {f"tensor({_SPELLED.get(dtype, dtype.name.lower())})": dtype.value for dtype in DType}
_NO_END: Final = 2**31 - 1
_HEAD: Final = """\
# Kernels of ONNX Runtime {version}'s CUDA provider: domain, operator, first and last version, types by their names in
# the operator's specification. Written by tests/tools/cuda_kernel_table.py.
"""


def registry(folder: Path) -> list[list[object]]:
    """The provider's kernels: domain, operator, versions, types by constraint."""
    source, copy = cuda_stand_in.installed().parent, folder / "onnxruntime"
    (copy / "capi").mkdir(parents=True)
    for path in source.iterdir():
        if path.name != "capi":
            (copy / path.name).symlink_to(path)
    for path in (source / "capi").iterdir():
        if path.name.startswith("onnxruntime_pybind11_state"):
            shutil.copy(path, copy / "capi")  # it looks for providers in the folder where it is
        elif "tensorrt" not in path.name:
            (copy / "capi" / path.name).symlink_to(path)
    (copy / "__init__.py").unlink()
    shutil.copy(source / "__init__.py", copy)
    replacement = copy / "capi" / "libonnxruntime_providers_tensorrt.so"
    command = ["g++", "-shared", "-fPIC", "-O1", "-o", replacement, cuda_stand_in.SOURCES / "kernel_registry.cpp"]
    subprocess.run(command, check=True)
    variables = cuda_stand_in.environment(cuda_stand_in.build())
    variables["PYTHONPATH"] = os.pathsep.join([str(folder), variables["PYTHONPATH"]])
    answer = folder / "answer.json"
    subprocess.run([sys.executable, "-c", _ASK, answer], env=variables, check=True)
    found: list[list[object]] = json.loads(answer.read_text())
    return found


def lines(kernels: Iterable[list[object]]) -> list[str]:
    """The table's lines, kernels that differ in one type joined."""
    rows: dict[tuple[str, str, int, int], list[dict[str, frozenset[str]]]] = defaultdict(list)
    for domain, name, (first, last), constraints in kernels:  # type: ignore[misc,str-unpack]
        if domain in _DOMAINS:
            types = {key: frozenset(_TYPES[one] for one in types if one in _TYPES)
                     for key, types in constraints.items()}  # fmt: skip
            if types not in (known := rows[_DOMAINS[domain], name, first, last]) and all(types.values()):  # type: ignore[index]
                known.append(types)
    return [
        " ".join([domain, name, f"{first}-{last if last < _NO_END else ''}",
                  *(f"{key}={'|'.join(sorted(kinds))}" for key, kinds in sorted(types.items()))])
        for (domain, name, first, last), found in sorted(rows.items())
        for types in _joined(found)
    ]  # fmt: skip


def _joined(found: list[dict[str, frozenset[str]]]) -> list[dict[str, frozenset[str]]]:
    result: list[dict[str, frozenset[str]]] = []
    for types in sorted(found, key=lambda one: sorted((key, sorted(kinds)) for key, kinds in one.items())):
        for known in result:
            differing = [key for key in types if known.get(key) != types[key]]
            if known.keys() == types.keys() and len(differing) == 1:
                known[differing[0]] |= types[differing[0]]
                break
        else:
            result.append(dict(types))
    return result


def main() -> None:
    """Writes the table."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        found = lines(registry(Path(folder)))
    TABLE.write_text(_HEAD.format(version=onnxruntime.__version__) + "\n".join(found) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
