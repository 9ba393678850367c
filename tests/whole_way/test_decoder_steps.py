"""Steps of decoders as ONNX Runtime's tools write them: caches, groups of heads, weights of few bits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from planner import api

MICROSOFT = "com.microsoft"
WIDTH, HEADS, GROUPS, SIZE, INNER, WORDS, ROOM, BLOCK = 64, 8, 4, 16, 96, 48, 8, 16
Arrays = Mapping[str, np.ndarray]
WORKERS = [2, 3, *(pytest.param(workers, marks=pytest.mark.slow) for workers in (4, 8))]


class Decoder:
    """A model under construction, in the manner of the exporters for language models."""

    def __init__(self, bits: int, **product: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.rng = np.random.default_rng(0)
        self.bits, self.product = bits, product

    def weight(self, name: str, value: np.ndarray) -> str:
        self.weights[name] = value
        return name

    def normal(self, name: str, *shape: int) -> str:
        return self.weight(name, (self.rng.normal(size=shape) / shape[0] ** 0.5).astype(np.float32))

    def op(self, op_type: str, inputs: list[str], *outputs: str, domain: str = "", **attributes: object) -> str:
        named = f"{op_type} of {outputs[0]}"
        self.nodes.append(helper.make_node(op_type, inputs, list(outputs), named, domain=domain, **attributes))
        return outputs[0]

    def dense(self, x: str, name: str, depth: int, columns: int) -> str:
        """A product: with numbers, or with blocks of a few bits, their scales and zero points."""
        if not self.bits:
            return self.op("MatMul", [x, self.normal(f"{name}.weight", depth, columns)], name)
        blocks = -(-depth // BLOCK)
        packed = (columns, blocks, BLOCK * self.bits // 8)
        inputs = [
            x,
            self.weight(f"{name}.bits", self.rng.integers(0, 256, packed).astype(np.uint8)),
            self.weight(f"{name}.scale", (self.rng.random((columns, blocks)) / 40 + 0.01).astype(np.float32)),
            self.weight(f"{name}.zero", np.full((columns, -(-blocks * self.bits // 8)), 0x87, np.uint8)),
        ]
        stated = {"K": depth, "N": columns, "bits": self.bits, "block_size": BLOCK, **self.product}
        return self.op("MatMulNBits", inputs, name, domain=MICROSOFT, **stated)

    def layer(self, x: str, normal: str, number: int) -> tuple[str, str]:
        """One layer; gives the sum that goes on, and its normalisation for the next."""
        at = f"layer{number}"
        q = self.dense(normal, f"{at}.q", WIDTH, HEADS * SIZE)
        k, v = (self.dense(normal, f"{at}.{part}", WIDTH, GROUPS * SIZE) for part in "kv")
        inputs = [q, k, v, f"past.{number}.key", f"past.{number}.value", "lengths", "total", "cos", "sin"]
        outputs = (f"{at}.attended", f"present.{number}.key", f"present.{number}.value")
        stated = {"num_heads": HEADS, "kv_num_heads": GROUPS, "do_rotary": 1}
        attended = self.op("GroupQueryAttention", inputs, *outputs, domain=MICROSOFT, **stated)
        x, normal = self.add(x, self.dense(attended, f"{at}.o", HEADS * SIZE, WIDTH), f"{at}.middle")
        gate, up = (self.dense(normal, f"{at}.{part}", WIDTH, INNER) for part in ("gate", "up"))
        active = self.op("Mul", [gate, self.op("Sigmoid", [gate], f"{at}.sigmoid")], f"{at}.silu")
        down = self.dense(self.op("Mul", [active, up], f"{at}.inner"), f"{at}.down", INNER, WIDTH)
        return self.add(x, down, f"{at}.end")

    def add(self, x: str, more: str, name: str) -> tuple[str, str]:
        inputs = [x, more, self.weight(f"{name}.scale", np.ones(WIDTH, np.float32))]
        outputs = (f"{name}.normal", "", "", f"{name}.sum")
        self.op("SkipSimplifiedLayerNormalization", inputs, *outputs, domain=MICROSOFT, epsilon=1e-5)
        return f"{name}.sum", f"{name}.normal"


def decoder(path: Path, *, batch: int, room: int, bits: int = 0, layers: int = 2, **product: int) -> Path:
    """A step: the next word's scores, and caches of ``room`` positions of which a mask says how many are there."""
    model = Decoder(bits, **product)
    angles = np.arange(2 * ROOM)[:, None] * 0.5 ** np.arange(SIZE // 2)
    model.weight("cos", np.cos(angles).astype(np.float32))
    model.weight("sin", np.sin(angles).astype(np.float32))
    # How exporters have it: lengths are of the data, the number of positions of the mask's shape.
    one = model.weight("one", np.array([1], np.int64))
    summed = model.op("ReduceSum", ["mask", one], "summed", keepdims=0)
    model.op("Cast", [model.op("Sub", [summed, one], "less")], "lengths", to=TensorProto.INT32)
    size = model.op("Gather", [model.op("Shape", ["mask"], "shape"), model.weight("1", np.array(1))], "size")
    model.op("Cast", [size], "total", to=TensorProto.INT32)
    x = model.op("Gather", [model.normal("words", WORDS, WIDTH), "ids"], "x")
    scale = model.weight("first.scale", np.ones(WIDTH, np.float32))
    normal = model.op("SimplifiedLayerNormalization", [x, scale], "first", axis=-1, epsilon=1e-5)
    for number in range(layers):
        x, normal = model.layer(x, normal, number)
    model.dense(normal, "scores", WIDTH, WORDS)
    total = max(room, ROOM)
    caches = [f"{number}.{part}" for number in range(layers) for part in ("key", "value")]
    value, number = helper.make_tensor_value_info, TensorProto.FLOAT
    graph = helper.make_graph(
        model.nodes,
        "step",
        [
            value("ids", TensorProto.INT64, [batch, 1]),
            value("mask", TensorProto.INT64, [batch, ROOM]),
            *(value(f"past.{cache}", number, [batch, GROUPS, room, SIZE]) for cache in caches),
        ],
        [
            value("scores", number, [batch, 1, WORDS]),
            *(value(f"present.{cache}", number, [batch, GROUPS, total, SIZE]) for cache in caches),
        ],
        [numpy_helper.from_array(array, name) for name, array in model.weights.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    return path


def given(batch: int, room: int, there: int, layers: int = 2) -> dict[str, np.ndarray]:
    """Words, and caches of all positions before; of two samples the first is a position behind."""
    rng = np.random.default_rng(there)
    mask = (np.arange(ROOM) < there).astype(np.int64)[None].repeat(batch, 0)
    if batch > 1:
        mask[0, there - 1] = 0
    made: dict[str, np.ndarray] = {"ids": rng.integers(0, WORDS, (batch, 1)), "mask": mask}
    for number in range(layers):
        for part in ("key", "value"):
            made[f"past.{number}.{part}"] = rng.normal(size=(batch, GROUPS, room, SIZE)).astype(np.float32)
    return made


def stock(file: Path, inputs: Arrays) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # the runtime does not know the cache's size beforehand, and says so
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def held_against_the_runtime(
    file: Path, inputs: Arrays, workers: int, folder: Path, tolerance: float = 2e-5
) -> dict[str, np.ndarray]:
    planned = api.plan(file, gpus=workers, out=folder / "plan", effort="quick")
    # The place of one sample's new word is one number.
    unsplit = [name for name in planned.plan.unsplit if not name.endswith("positions.index")]
    assert not any("Attention" in name or "MatMul" in name for name in unsplit), "attention and products are cut"
    np.savez(folder / "given.npz", **inputs)
    ran = api.run(folder / "plan", inputs=folder / "given.npz", verify=True, result=folder / "made.npz")
    assert ran.verified, ran.comparisons
    assert (ran.no_reference, ran.own_precision) == ("", ())
    assert ran.moved_bytes == ran.predicted_bytes
    made = np.load(folder / "made.npz")
    for name, expected in stock(file, inputs).items():
        assert made[name].shape == expected.shape
        np.testing.assert_allclose(made[name], expected, rtol=0, atol=tolerance * np.abs(expected).max())
    return dict(made)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize(("batch", "room"), [(1, 7), (2, 8)], ids=["a cache that grows", "a cache with room"])
def test_a_step_with_a_cache(batch: int, room: int, workers: int, tmp_path: Path) -> None:
    file = decoder(tmp_path / "step.onnx", batch=batch, room=room)
    held_against_the_runtime(file, given(batch, room, ROOM), workers, tmp_path)


@pytest.mark.parametrize("workers", WORKERS)
def test_a_step_with_weights_of_four_bits(workers: int, tmp_path: Path) -> None:
    file = decoder(tmp_path / "step.onnx", batch=1, room=7, bits=4)
    held_against_the_runtime(file, given(1, 7, ROOM), workers, tmp_path)


def test_products_that_may_round_to_bytes_are_as_near_to_the_exact_ones(tmp_path: Path) -> None:
    inputs = given(1, 7, ROOM, layers=1)
    exact = stock(decoder(tmp_path / "exact.onnx", batch=1, room=7, bits=4, layers=1), inputs)["scores"]
    file = decoder(tmp_path / "step.onnx", batch=1, room=7, bits=4, layers=1, accuracy_level=4)
    made = held_against_the_runtime(file, inputs, 2, tmp_path, tolerance=0.05)["scores"]
    assert np.abs(made - exact).max() <= 1.1 * np.abs(stock(file, inputs)["scores"] - exact).max()


def test_caches_are_state_of_the_next_step(tmp_path: Path) -> None:
    file = decoder(tmp_path / "step.onnx", batch=2, room=ROOM, layers=1)
    caches = {f"past.0.{part}": f"present.0.{part}" for part in ("key", "value")}
    (tmp_path / "pairs.yaml").write_text("".join(f"{past}: {present}\n" for past, present in caches.items()))
    (tmp_path / "words").mkdir()
    known = {name: array for name, array in given(2, ROOM, 3, layers=1).items() if name in caches}
    expected: dict[str, np.ndarray] = {}
    for there in (3, 4, 5):
        step = {name: array for name, array in given(2, ROOM, there, layers=1).items() if name not in caches}
        np.savez(tmp_path / "words" / f"{there}.npz", **step)
        expected = stock(file, {**step, **known})
        known = {past: expected[present] for past, present in caches.items()}
    first = {name: array for name, array in given(2, ROOM, 3, layers=1).items() if name in caches}
    np.savez(tmp_path / "caches.npz", **first)
    planned = api.plan(file, gpus=3, out=tmp_path / "plan", effort="quick", state=tmp_path / "pairs.yaml")
    assert {str(planned.plan.tilings[name]) for pair in caches.items() for name in pair} == {"S(1)/3"}
    ran = api.run(
        tmp_path / "plan", inputs=tmp_path / "words", weights=tmp_path / "caches.npz", steps=3, verify=True,
        result=tmp_path / "made.npz",
    )  # fmt: skip
    assert ran.verified, ran.comparisons
    made = np.load(tmp_path / "made.npz")
    for name, whole in expected.items():
        np.testing.assert_allclose(made[name], whole, rtol=0, atol=2e-5 * np.abs(whole).max())
