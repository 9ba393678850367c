"""A model whose weights lie elsewhere and are not there: 65 GB declared, planned in a few hundred MB."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from planner.graph.reading.from_onnx import read_model
from planner.training.build import build_training_graph

HIDDEN, LAYERS = 16384, 15
"""Of a network of 15 blocks of 4 matrices of 1 GiB each, 64.4 GB in all."""
SCRIPT = """
import sys
from pathlib import Path
from planner import api
folder = Path(sys.argv[1])
api.grad(folder / "large.onnx", loss="mse", optimizer="adam", output=folder / "train.onnx")
api.plan(folder / "train.onnx", gpus=8, effort=sys.argv[2], out=folder / "plan")
# Not ru_maxrss: what the parent held when it forked counts in that.
print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))
"""


def declared(path: Path) -> None:
    nodes, weights = [], []
    x = "x"
    for layer in range(LAYERS):
        for part in range(4):
            name = f"w{layer}.{part}"
            proto = TensorProto(name=name, dims=[HIDDEN, HIDDEN], data_type=TensorProto.FLOAT)
            proto.data_location = TensorProto.EXTERNAL
            proto.external_data.add(key="location", value="weights.bin")
            proto.external_data.add(key="offset", value=str(len(weights) * 4 * HIDDEN * HIDDEN))
            proto.external_data.add(key="length", value=str(4 * HIDDEN * HIDDEN))
            weights.append(proto)
            nodes.append(helper.make_node("MatMul", [x, name], [f"h{layer}.{part}"]))
            nodes.append(helper.make_node("Relu", [f"h{layer}.{part}"], [f"r{layer}.{part}"]))
            x = f"r{layer}.{part}"
    graph = helper.make_graph(
        nodes, "large", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, HIDDEN])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [64, HIDDEN])], weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path.write_bytes(model.SerializeToString())


def test_a_step_of_absent_weights(tmp_path):
    declared(tmp_path / "large.onnx")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    forward = read_model(tmp_path / "large.onnx")
    assert sum(forward.tensors[name].size_bytes for name in forward.constants) == 60 * 4 * HIDDEN**2
    step = build_training_graph(forward, loss="mse", optimizer="adam", learning_rate=0.1)
    assert len(step.state) == 3 * 60 + 1
    assert all(step.initial[pair.current] is None for pair in step.state if pair.current != "updates")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


@pytest.mark.slow
@pytest.mark.parametrize("effort", ["quick", "normal"])
def test_grad_and_plan_in_a_few_hundred_megabytes(tmp_path, effort):
    declared(tmp_path / "large.onnx")
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), effort]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) < 500_000, "kB"
    assert onnx.load(tmp_path / "train.onnx", load_external_data=False).graph.node
