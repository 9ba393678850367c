"""Trained weights back in the module that was exported; PyTorch's own is tried by `make test-pytorch`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import planner
from planner.errors import UsageError
from planner.features.zoo.models import mlp
from planner.graph.core.model import DType, Tensor
from planner.graph.files.to_onnx import to_model
from planner.runtime.values.safetensors import write_safetensors


@dataclass(eq=False)
class FakeTensor:
    """What the loader needs of ``torch.Tensor``."""

    array: np.ndarray
    requires_grad: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def new_tensor(self, array: np.ndarray) -> FakeTensor:
        assert array.dtype.kind in "biuf"
        return FakeTensor(array.astype(self.array.dtype), False)


@dataclass
class FakeModule:
    """What the loader needs of ``torch.nn.Module``."""

    state: dict[str, FakeTensor]
    loaded: dict[str, np.ndarray] = field(default_factory=dict)

    def state_dict(self, *, keep_vars: bool) -> dict[str, FakeTensor]:
        assert keep_vars
        return self.state

    def load_state_dict(self, state_dict: dict[str, FakeTensor], strict: bool) -> None:
        assert strict
        assert state_dict.keys() == self.state.keys()
        self.loaded = {name: value.array for name, value in state_dict.items()}


def module() -> FakeModule:
    """A square weight under two names, a bias, a frozen weight and a buffer."""
    tied = FakeTensor(np.zeros((3, 3), np.float32))
    rest = {
        "fc.bias": FakeTensor(np.zeros(3, np.float32)),
        "base.weight": FakeTensor(np.full((2, 2), 7, np.float32), requires_grad=False),
        "count": FakeTensor(np.array(5), requires_grad=False),
    }
    return FakeModule({"fc.weight": tied, "head.weight": tied, **rest})


WEIGHT, BIAS = np.arange(9, dtype=np.float32).reshape(3, 3), np.ones(3, np.float32)
STATES = {"fc.weight": WEIGHT, "fc.bias": BIAS}
OPTIMIZER = {"fc.weight.momentum": WEIGHT, "updates": np.array(3)}


def written(path: Path, arrays: dict[str, np.ndarray], dtype: DType = DType.FLOAT32) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        tensors = {name: Tensor(name, array.shape, dtype) for name, array in arrays.items()}
        write_safetensors(path, tensors, lambda name: arrays[name].astype(dtype.array_dtype))
    return path


def check(loaded: dict[str, np.ndarray]) -> None:
    expected = {"fc.weight": WEIGHT, "head.weight": WEIGHT, "fc.bias": BIAS, "base.weight": np.full((2, 2), 7)}
    for name, array in expected.items():
        np.testing.assert_array_equal(loaded[name], array)
    assert loaded["count"] == 5


@pytest.mark.parametrize(
    ("file", "dtype"), [("w.npz", DType.FLOAT32), ("w.safetensors", DType.FLOAT32), ("w.safetensors", DType.BFLOAT16)]
)
def test_a_file_of_weights(tmp_path: Path, file: str, dtype: DType) -> None:
    network = module()
    names = planner.load_into(network, written(tmp_path / file, {**STATES, **OPTIMIZER}, dtype))
    assert names == ("fc.weight", "head.weight", "fc.bias")
    check(network.loaded)


def test_weights_that_the_exporter_transposed(tmp_path: Path) -> None:
    signature = "p_fc_weight: PARAMETER target='fc.weight'\np_fc_bias: PARAMETER target='fc.bias'"
    nodes = [helper.make_node("MatMul", ["x", "val_0"], ["m"]), helper.make_node("Add", ["m", "fc.bias"], ["y"])]
    for node in nodes:
        entry = node.metadata_props.add()
        entry.key, entry.value = "pkg.torch.onnx.fx_node", "%linear = linear(%x, %p_fc_weight, %p_fc_bias)"
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(WEIGHT.T.copy(), "val_0"), numpy_helper.from_array(BIAS, "fc.bias")],
    )  # fmt: skip
    entry = graph.metadata_props.add()
    entry.key, entry.value = "pkg.torch.export.ExportedProgram.graph_signature", signature
    model = helper.make_model(graph, producer_name="pytorch", opset_imports=[helper.make_opsetid("", 21)])
    onnx.save(model, tmp_path / "m.onnx")
    source = written(tmp_path / "w.npz", {"val_0": WEIGHT.T, "fc.bias": BIAS, "val_0.momentum": WEIGHT})
    network = module()
    with pytest.raises(UsageError, match="does not fit") as caught:
        planner.load_into(network, source)
    facts = ("fc.weight [3, 3]: is not in it", "head.weight [3, 3]: is not in it", "val_0 [3, 3]: is not in the module")
    assert (caught.value.facts, network.loaded) == (facts, {})
    planner.load_into(network, source, forward=tmp_path / "m.onnx")
    check(network.loaded)


def test_what_does_not_fit(tmp_path: Path) -> None:
    source = written(tmp_path / "w.npz", {"fc.weight": WEIGHT[:2], "other.bias": BIAS})
    with pytest.raises(UsageError, match="does not fit the module") as caught:
        planner.load_into(module(), source)
    assert caught.value.facts == (
        "fc.bias [3]: is not in it",
        "fc.weight: is [2, 3] in it, and [3, 3] in the module",
        "head.weight: is [2, 3] in it, and [3, 3] in the module",
        "other.bias [3]: is not in the module",
    )


def test_the_newest_checkpoint(tmp_path: Path) -> None:
    planner.plan(to_model(mlp(2, 12, 8)), gpus=2, out=tmp_path / "plan")
    result = planner.run(tmp_path / "plan", steps=2, checkpoint_dir=tmp_path / "ck", checkpoint_every=1)
    names = [name.removesuffix(".next") for name in result.results if name.endswith(".next")]
    network = FakeModule({name: FakeTensor(np.zeros((12, 12), np.float32)) for name in names})
    assert planner.load_into(network, tmp_path / "ck") == tuple(names) != ()
    for name in names:
        np.testing.assert_array_equal(network.loaded[name], result.results[f"{name}.next"])
    planner.load_into(network, tmp_path / "ck" / "step-00000001")
    assert not np.array_equal(network.loaded[names[0]], result.results[f"{names[0]}.next"])
