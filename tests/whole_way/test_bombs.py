"""Files that are small and declare much: refused, within little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from planner.graph.core.model import Graph

ROOT = Path(__file__).parents[2]
MOST_BYTES = 200 * 2**20
SCRIPT = """
import json, re, sys
from planner.commands import main as cli
codes = [cli.main(line) for line in json.load(sys.stdin)]
peak = re.search(r"VmHWM:\\s+([0-9]+) kB", open("/proc/self/status").read())
print(json.dumps([codes, 1024 * int(peak[1])]))
"""


def model(path: Path, *initializers: TensorProto, nodes: str = "Add") -> Path:
    """A model of one op, with something wrong in its initializers."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 6]) for name in ("x", "y")]
    node = helper.make_node(nodes, ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", values[:1], values[1:], list(initializers))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def header(shape: str) -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def npz(path: Path, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", content)
    return path


def safetensors(path: Path, text: bytes) -> Path:
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    return path


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc, which says how much memory was taken")
def test_bombs_are_refused_within_little_memory(plan_of: Callable[..., Any], mlp_step: Graph, tmp_path: Path) -> None:
    plan = str(plan_of(mlp_step, 2).directory)
    huge = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**20, 2**20], raw_data=b"1234")
    typed = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**16, 2**16], float_data=[1.0])
    packed = TensorProto(name="w", data_type=TensorProto.INT4, dims=[2**40], raw_data=b"1")
    many = b'{"a":' + b"[" + b"[]," * 6_000_000 + b"[]]}"
    aliases = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{'abcdefgh'[level]}: &{'abcdefgh'[level]} [{', '.join(['*' + 'abcdefgh'[level - 1]] * 9)}]\n"
        for level in range(1, 8)
    )
    topology = tmp_path / "t.yaml"
    topology.write_text(aliases)
    baseline = tmp_path / "costs.json"
    baseline.write_bytes(many)
    lied = b'{"w": {"dtype": "F32", "shape": [4294967296], "data_offsets": [0, 17179869184]}}'
    arrays = [
        header("(17179869184,)") + b"1234",
        header(f"({2**26},)") + bytes(2**28),
        b"\x93NUMPY\x02\0" + b"\xff" * 4,
    ]
    lines = [["plan", str(tmp_path / "m.onnx"), "--topology", str(topology)]]
    for tensor in (huge, typed, packed):
        file = model(tmp_path / f"{tensor.dims}.onnx", tensor)
        lines.append(["plan", str(file), "--gpus", "2", "-o", str(tmp_path / "p")])
    lines.append(["check", "mlp-2x16", "--gpus", "2", "--baseline", str(baseline)])
    for number, content in enumerate(arrays):
        lines.append(["run", plan, "--inputs", str(npz(tmp_path / f"{number}.npz", content))])
    for number, text in enumerate([b"[" * 500_000, many, lied]):
        lines.append(["run", plan, "--weights", str(safetensors(tmp_path / f"{number}.safetensors", text))])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(lines),
        text=True,
        capture_output=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    codes, peak_bytes = json.loads(done.stdout.splitlines()[-1])
    assert codes == [2] * len(lines), done.stderr
    assert peak_bytes < MOST_BYTES, f"{peak_bytes:,} bytes\n{done.stderr}"
    for says in (
        "initializer 'w' has 4 bytes of data; its shape [1048576, 1048576] of float32 needs 4398046511104",
        "initializer 'w' has data that does not fill its shape [65536, 65536] of float32",
        "x: it declares 68,719,476,736 bytes, which are not there",
        f"x: has the shape [{2**26}], the input has",
        "it is nested too deeply",
        "it holds more than 1,000,000 values",
        "it holds more than 5,000,000 values",
        "tensor 'w' does not lie in the file",
    ):
        assert says in done.stderr, done.stderr
