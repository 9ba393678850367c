"""One network, written in several ways: what its plans cost, over the cheapest of its group.

    python bench/twins.py [--workers 2 4 8] [--only NAME ...] [--run]
    python bench/twins.py --drawn 40 [--seed 0] [--run]     pairs that rewriting at random makes of committed networks

Cost is bytes moved and excess, in kB. All spellings of a group compute the same numbers; "step" groups are training
steps with SGD (``tofu grad``), the others run forward. ``--run`` runs each plan on 3 workers and verifies it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from drawn_twins import drawn
from onnx import ModelProto, TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from planner import api


@dataclass
class Network:
    """Nodes and weights of a network with one input ``x`` and one output ``y``."""

    x: tuple[int, ...]
    y: tuple[int, ...]
    opset: int = 21
    nodes: list[Any] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    def weight(self, name: str, *shape: int) -> str:
        """A drawn weight, the same in every spelling that asks for this name and size."""
        drawn = np.random.default_rng(sum(map(ord, name))).normal(size=shape) / np.sqrt(shape[0])
        return self.constant(name, drawn.astype(np.float32))

    def constant(self, name: str, value: Any) -> str:
        """A given array."""
        self.weights[name] = np.asarray(value)
        return name

    def ints(self, name: str, *values: int) -> str:
        """A list of int64."""
        return self.constant(name, np.array(values, np.int64))

    def add(self, op_type: str, inputs: str, outputs: str, **attributes: Any) -> str:
        """A node of operands that are named with blanks between; gives the first output."""
        self.nodes.append(helper.make_node(op_type, inputs.split(), outputs.split(), **attributes))
        return outputs.split()[0]

    def model(self) -> ModelProto:
        """As a message."""
        graph = helper.make_graph(
            self.nodes, "twin",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.x)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, self.y)],
            [numpy_helper.from_array(value, name) for name, value in self.weights.items()],
        )  # fmt: skip
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)],
            ir_version=9,
        )


def gated(*, packed: bool) -> Network:
    """silu(x Wg) * (x Wu), [Wg | Wu] as one matrix or as two, and a product behind it."""
    net = Network((256, 64), (256, 64))
    net.add("Identity", gate_and_up(net, "x", "", 256, packed=packed), "y")
    return net


def gate_and_up(net: Network, x: str, layer: str, width: int, *, packed: bool) -> str:
    """A gated layer over 64 dims."""
    both = net.weights.pop(net.weight(f"{layer}gate_up", 64, 2 * width))
    project(net, x, layer, {"g": both[:, :width], "u": both[:, width:]}, packed=packed)
    net.add("Sigmoid", f"{layer}g", f"{layer}s"), net.add("Mul", f"{layer}g {layer}s", f"{layer}silu")
    net.add("Mul", f"{layer}silu {layer}u", f"{layer}h")
    return net.add("MatMul", f"{layer}h {net.weight(f'{layer}down', width, 64)}", f"{layer}mlp")


def project(net: Network, x: str, layer: str, matrices: Mapping[str, np.ndarray], *, packed: bool) -> None:
    """Products with matrices, which may lie beside each other in one."""
    names = [layer + name for name in matrices]
    if packed:
        packs = net.constant(f"{layer}w{''.join(matrices)}", np.concatenate([*matrices.values()], axis=1))
        sizes = net.ints(f"{layer}{''.join(matrices)}.sizes", *(value.shape[1] for value in matrices.values()))
        all_of = net.add("MatMul", f"{x} {packs}", f"{layer}{''.join(matrices)}")
        net.add("Split", f"{all_of} {sizes}", " ".join(names), axis=-1)
    else:
        for name, matrix in matrices.items():
            net.add("MatMul", f"{x} {net.constant(f'{layer}w{name}', matrix)}", layer + name)


def attention(*, packed: bool, order: Sequence[int] = (0, 1, 2)) -> Network:
    """An attention of 4 heads over samples, positions and width, in this order, q, k, v by one matrix or by three."""
    shape = tuple((2, 32, 64)[dim] for dim in order)
    net = Network(shape, shape)
    net.add("Identity", attended(net, "x", "", 4, packed=packed, is_turned=tuple(order) != (0, 1, 2)), "y")
    return net


def attended(net: Network, x: str, layer: str, groups: int, *, packed: bool, is_turned: bool = False) -> str:
    """An attention of 4 heads with keys and values of some, over [2, 32, 64] or, turned, [32, 2, 64]."""
    own = net.weights.pop(net.weight(f"{layer}qkv", 64, 64 + 32 * groups))
    ends = 64, 64 + 16 * groups
    project(net, x, layer, dict(zip("qkv", np.split(own, ends, axis=1), strict=True)), packed=packed)
    first, second = (1, 0) if is_turned else (0, 1)
    lead = (32, 2) if is_turned else (2, 32)
    net.ints("flat", *lead, 64), net.ints("together", 2, 4, 32, 16), net.ints("group", 2)
    for name, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
        heads = 4 if name == "q" else groups
        net.ints(f"{heads} heads".replace(" ", "."), *lead, heads, 16)
        net.add("Reshape", f"{layer}{name} {heads}.heads", f"{layer}{name}r")
        turn = tuple({0: first, 1: second}.get(dim, dim) for dim in perm)
        net.add("Transpose", f"{layer}{name}r", f"{layer}{name}h", perm=turn)
        if heads < 4:
            shape = (2, groups, 4 // groups, 16, 32) if name == "k" else (2, groups, 4 // groups, 32, 16)
            net.ints(f"{name}.every", *shape), net.ints(f"{name}.four", 2, 4, *shape[3:])
            net.add("Unsqueeze", f"{layer}{name}h group", f"{layer}{name}u")
            net.add("Expand", f"{layer}{name}u {name}.every", f"{layer}{name}e")
            net.add("Reshape", f"{layer}{name}e {name}.four", f"{layer}{name}h4")
    more = "4" if groups < 4 else ""
    net.add("MatMul", f"{layer}qh {layer}kh{more}", f"{layer}scores")
    net.add("Softmax", f"{layer}scores", f"{layer}p", axis=-1)
    net.add("MatMul", f"{layer}p {layer}vh{more}", f"{layer}o")
    net.add("Transpose", f"{layer}o", f"{layer}ot", perm=(2, 0, 1, 3) if is_turned else (0, 2, 1, 3))
    net.add("Reshape", f"{layer}ot flat", f"{layer}of")
    return net.add("MatMul", f"{layer}of {net.weight(f'{layer}out', 64, 64)}", f"{layer}attended")


def layers(*, packed: bool) -> Network:
    """Two layers of grouped attention and a gated product, normalised and added, as Llama's or as Phi-3's."""
    net = Network((2, 32, 64), (2, 32, 64), 23)
    x = "x"
    for layer in ("first/", "second/"):
        for part in ("a", "m"):
            scale = net.constant(f"{layer}{part}.scale", np.ones(64, np.float32))
            normal = net.add("RMSNormalization", f"{x} {scale}", f"{layer}{part}.normal")
            if part == "a":
                made = attended(net, normal, layer, 2, packed=packed)
            else:
                made = gate_and_up(net, normal, layer, 128, packed=packed)
            x = net.add("Add", f"{x} {made}", f"{layer}{part}.sum")
    net.add("Identity", x, "y")
    return net


def leading(*, order: tuple[int, int]) -> Network:
    """Two layers over the last dim of samples and positions, in either order."""
    shape = tuple((64, 8)[dim] for dim in order)
    net = Network((*shape, 32), (*shape, 32))
    net.weight("a", 32, 64), net.weight("b", 64, 32)
    net.add("MatMul", "x a", "h"), net.add("Relu", "h", "r"), net.add("MatMul", "r b", "y")
    return net


def normalised(*, opset: int) -> Network:
    """Convolutions around a normalisation of groups, as PyTorch's exporter writes it at an opset."""
    net = Network((2, 3, 32, 32), (2, 3, 32, 32), opset)
    net.weight("first", 16, 3, 3, 3), net.weight("last", 3, 16, 3, 3)
    scale, bias = (net.weights.pop(net.weight(name, 16)) for name in ("scale", "bias"))
    net.add("Conv", "x first", "c", pads=[1] * 4)
    if opset >= 21:
        net.constant("scale", scale), net.constant("bias", bias)
        net.add("GroupNormalization", "c scale bias", "n", num_groups=4)
    else:
        net.constant("scale", scale.reshape(16, 1, 1)), net.constant("bias", bias.reshape(16, 1, 1))
        net.constant("ones", np.ones(4, np.float32)), net.constant("zeros", np.zeros(4, np.float32))
        net.ints("merged", 0, 4, -1), net.ints("whole", 2, 16, 32, 32)
        net.add("Reshape", "c merged", "m"), net.add("InstanceNormalization", "m ones zeros", "i")
        net.add("Reshape", "i whole", "w"), net.add("Mul", "w scale", "ws"), net.add("Add", "ws bias", "n")
    net.add("Relu", "n", "r"), net.add("Conv", "r last", "y", pads=[1] * 4)
    return net


def between(body: Callable[[Network], object], size: int = 32) -> Network:
    """Two convolutions, and between them what a body makes of ``h``, as ``m``."""
    net = Network((2, 3, 32, 32), (2, 3, size, 32))
    net.weight("first", 8, 3, 3, 3), net.weight("last", 3, 8, 3, 3)
    net.add("Conv", "x first", "h", pads=[1] * 4)
    body(net)
    net.add("Conv", "m last", "y", pads=[1] * 4)
    return net


def looked_up(places: np.ndarray) -> Callable[[Network], object]:
    """A Gather of rows."""
    return lambda net: net.add("Gather", f"h {net.constant('places', places.astype(np.int64))}", "m", axis=2)


def repeated(net: Network) -> None:
    """Every row twice, by a Resize."""
    scales = net.constant("scales", np.array([1, 1, 2, 1], np.float32))
    net.nodes.append(
        helper.make_node("Resize", ["h", "", scales], ["m"], mode="nearest", nearest_mode="floor",
                         coordinate_transformation_mode="asymmetric")
    )  # fmt: skip


def sliced(net: Network) -> None:
    """Every second row."""
    net.ints("start", 0), net.ints("end", 32), net.ints("axis", 2), net.ints("step", 2)
    net.add("Slice", "h start end axis step", "m")


def halves(net: Network, *, swaps: int) -> None:
    """Rows in two halves, which are put together again, swapped so many times."""
    name = "h"
    for number in range(swaps):
        net.add("Split", name, f"a{number} b{number}", axis=2, num_outputs=2)
        name = net.add("Concat", f"b{number} a{number}", f"s{number}", axis=2)
    net.add("Identity", name, "m")


def depthwise(*, by_shifts: bool) -> Network:
    """A depthwise convolution over 3 positions between two layers, as one op or as shifted products."""
    net = Network((16, 8, 64), (16, 8, 64))
    net.weight("mix", 8, 8, 1)
    taps = net.weights.pop(net.weight("taps", 8, 1, 3))
    net.add("Conv", "x mix", "c")
    if by_shifts:
        net.ints("pads", 0, 0, 1, 0, 0, 1), net.ints("axis", 2), net.add("Pad", "c pads", "p")
        for tap in range(3):
            (
                net.ints(f"s{tap}", tap),
                net.ints(f"e{tap}", tap + 64),
                net.constant(f"w{tap}", taps[:, :, tap : tap + 1][:, 0]),
            )
            net.add("Slice", f"p s{tap} e{tap} axis", f"v{tap}"), net.add("Mul", f"v{tap} w{tap}", f"t{tap}")
        net.add("Sum", "t0 t1 t2", "y")
    else:
        net.constant("taps", taps), net.add("Conv", "c taps", "y", group=8, pads=[1, 1])
    return net


def grouped(*, together: bool) -> Network:
    """A convolution of 4 groups of channels between two layers, as one op or as one of each group."""
    net = Network((2, 3, 32, 32), (2, 3, 32, 32))
    net.weight("first", 16, 3, 3, 3), net.weight("last", 3, 16, 3, 3)
    net.add("Conv", "x first", "c", pads=[1] * 4)
    kernels = net.weights.pop(net.weight("kernels", 16, 4, 3, 3))
    if together:
        net.constant("kernels", kernels), net.add("Conv", "c kernels", "g", group=4, pads=[1] * 4)
    else:
        net.add("Split", "c", "c0 c1 c2 c3", axis=1, num_outputs=4)
        for group in range(4):
            kernel = net.constant(f"k{group}", kernels[4 * group : 4 * group + 4])
            net.add("Conv", f"c{group} {kernel}", f"g{group}", pads=[1] * 4)
        net.add("Concat", "g0 g1 g2 g3", "g", axis=1)
    net.add("Relu", "g", "r"), net.add("Conv", "r last", "y", pads=[1] * 4)
    return net


def summed(net: Network) -> None:
    """Rows added up from above."""
    net.add("CumSum", f"h {net.constant('axis', np.array(2, np.int64))}", "m")


def summed_by_hand(net: Network) -> None:
    """Of each 4 rows, and then what those before them come to."""
    net.ints("apart", 2, 8, 8, 4, 32), net.ints("whole", 2, 8, 32, 32), net.ints("rows", 3)
    inner, outer = (net.constant(f"axis{dim}", np.array(dim, np.int64)) for dim in (3, 2))
    net.add("Reshape", "h apart", "a"), net.add("CumSum", f"a {inner}", "own")
    net.add("ReduceSum", "a rows", "sums"), net.add("CumSum", f"sums {outer}", "before", exclusive=1)
    net.add("Add", "own before", "both"), net.add("Reshape", "both whole", "m")


def cached(*, by_positions: bool) -> Network:
    """New rows of a cache of keys, which a query is multiplied with."""
    net = Network((1, 1, 8, 64), (1, 1, 8, 2048), 24)
    net.ints("flat", 1, 512), net.add("Reshape", "x flat", "xf"), net.add("ArgMax", "xf", "at", axis=1, keepdims=0)
    net.weight("cache", 1, 1, 2048, 64), net.weight("wk", 64, 64), net.weight("wq", 64, 64)
    net.add("MatMul", "x wk", "k"), net.add("MatMul", "x wq", "q")
    if by_positions:
        net.add("TensorScatter", "cache k at", "keys", axis=2)
    else:
        net.constant("line", np.arange(8, dtype=np.int64)[:, None]), net.ints("new", 1, 1, 8, 64)
        net.add("Add", "line at", "rows"), net.add("Expand", "rows new", "places")
        net.add("ScatterElements", "cache places k", "keys", axis=2)
    net.add("Transpose", "keys", "turned", perm=(0, 1, 3, 2)), net.add("MatMul", "q turned", "s")
    net.add("Softmax", "s", "y", axis=-1)
    return net


def put_together(net: Network, *, dim: int | None) -> None:
    """Two functions of rows, perhaps put together and taken apart again before they are added."""
    net.add("Relu", "h", "a"), net.add("Tanh", "h", "b")
    if dim is not None:
        net.add("Concat", "a b", "ab", axis=dim), net.add("Split", "ab", "a2 b2", axis=dim, num_outputs=2)
    net.add("Add", "a b" if dim is None else "a2 b2", "m")


def multiplied(net: Network, *, side: int | None) -> None:
    """A product with the identity on a side, or nothing."""
    if side is None:
        net.add("Identity", "h", "m")
    else:
        eye = net.constant("eye", np.eye(32, dtype=np.float32))
        net.add("MatMul", f"{eye} h" if side == 0 else f"h {eye}", "m")


def convolved(net: Network, form: str) -> None:
    """A convolution of 3x3 as one op, as a product of columns, or as nine products of what is shifted."""
    kernel = net.weights.pop(net.weight("kernel", 8, 8, 3, 3))
    if form == "Conv":
        net.constant("kernel", kernel), net.add("Conv", "h kernel", "m", pads=[1] * 4)
        return
    net.ints("pads", 0, 0, 1, 1, 0, 0, 1, 1), net.ints("axes", 2, 3), net.add("Pad", "h pads", "p")
    net.ints("columns", 2, -1, 1024), net.ints("image", 2, 8, 32, 32)
    taps = [(row, column) for row in range(3) for column in range(3)]
    for row, column in taps:
        name = f"{row}{column}"
        net.ints(f"s{name}", row, column), net.ints(f"e{name}", row + 32, column + 32)
        net.add("Slice", f"p s{name} e{name} axes", f"v{name}")
    if form == "im2col":
        net.add("Concat", " ".join(f"v{row}{column}" for row, column in taps), "v", axis=1)
        net.add("Reshape", "v columns", "vc")
        net.constant("kernel", kernel.transpose(0, 2, 3, 1).reshape(8, 72)), net.add("MatMul", "kernel vc", "mc")
        net.add("Reshape", "mc image", "m")
        return
    for row, column in taps:
        name = f"{row}{column}"
        net.constant(f"w{name}", kernel[:, :, row, column]), net.add("Reshape", f"v{name} columns", f"vc{name}")
        net.add("MatMul", f"w{name} vc{name}", f"t{name}")
    net.add("Sum", " ".join(f"t{row}{column}" for row, column in taps), "mc"), net.add("Reshape", "mc image", "m")


def experts(*, stacked: bool) -> Network:
    """Four experts of stacked weights, weighed by a gate, one after the other or in one product."""
    net = Network((64, 32), (64, 32))
    net.weight("router", 32, 4), net.weight("up", 4, 32, 64), net.weight("down", 4, 64, 32)
    net.add("MatMul", "x router", "logits"), net.add("Softmax", "logits", "gate", axis=-1)
    if stacked:
        net.ints("first", 0), net.ints("last", 2)
        net.add("Unsqueeze", "x first", "xs"), net.add("MatMul", "xs up", "h"), net.add("Relu", "h", "r")
        net.add("MatMul", "r down", "o"), net.add("Transpose", "gate", "turned")
        net.add("Unsqueeze", "turned last", "g")
        net.add("Mul", "o g", "weighed"), net.add("ReduceSum", "weighed first", "y", keepdims=0)
        return net
    for number in range(4):
        at = net.constant(f"at{number}", np.array(number, np.int64))
        column = net.ints(f"column{number}", number)
        net.add("Gather", f"up {at}", f"up{number}", axis=0), net.add("Gather", f"down {at}", f"down{number}", axis=0)
        net.add("Gather", f"gate {column}", f"g{number}", axis=1)
        net.add("MatMul", f"x up{number}", f"h{number}"), net.add("Relu", f"h{number}", f"r{number}")
        net.add("MatMul", f"r{number} down{number}", f"o{number}"), net.add("Mul", f"o{number} g{number}", f"w{number}")
        net.add("Add", f"y{number - 1} w{number}" if number else "w0 zero", f"y{number}" if number < 3 else "y")
    net.constant("zero", np.zeros((), np.float32))
    return net


def in_parts(count: int) -> Network:
    """Two layers over tokens, so many at a time."""
    net = Network((128, 64), (128, 64))
    net.weight("a", 64, 64), net.weight("b", 64, 64)
    names = ["x"] if count == 1 else [f"x{part}" for part in range(count)]
    if count > 1:
        net.add("Split", "x", " ".join(names), axis=0, num_outputs=count)
    for name in names:
        net.add("MatMul", f"{name} a", f"h{name}"), net.add("Relu", f"h{name}", f"r{name}")
        net.add("MatMul", f"r{name} b", f"y{name}" if count > 1 else "y")
    if count > 1:
        net.add("Concat", " ".join(f"y{name}" for name in names), "y", axis=0)
    return net


def resized(net: Network, rows: int, *, mode: str, where: str = "half_pixel") -> None:
    """So many rows, by a Resize."""
    net.ints("sizes", 2, 8, rows, 32)
    inputs = ["h", "", "", "sizes"]
    net.nodes.append(helper.make_node("Resize", inputs, ["m"], mode=mode, coordinate_transformation_mode=where))


def near(*, by_mask: bool) -> Network:
    """An attention of one head over 1,024 positions, of which a query sees 64: by an attribute, or a constant mask."""
    net = Network((1, 1024, 64), (1, 1024, 64), 23)
    for name in "qkv":
        net.weight(f"w{name}", 64, 64)
        net.add("MatMul", f"x w{name}", name)
    if by_mask:
        far = np.arange(1024)[:, None] - np.arange(1024)
        net.constant("mask", (far >= 0) & (far < 64))
        net.add("Attention", "q k v mask", "a", q_num_heads=1, kv_num_heads=1)
    else:
        net.constant("ends", np.array([1023], np.int32)), net.constant("total", np.array([1024], np.int32))
        net.nodes.append(
            helper.make_node(
                "GroupQueryAttention", ["q", "k", "v", "", "", "ends", "total"], ["a"], domain="com.microsoft",
                num_heads=1, kv_num_heads=1, local_window_size=64,
            )
        )  # fmt: skip
    net.weight("out", 64, 64)
    net.add("MatMul", "a out", "y")
    return net


GROUPS: Mapping[str, Mapping[str, Callable[[], Network]]] = {
    "gate and up, step": {"separate": lambda: gated(packed=False), "packed": lambda: gated(packed=True)},
    "q, k, v, step": {"separate": lambda: attention(packed=False), "packed": lambda: attention(packed=True)},
    "samples, step": {"first dim": lambda: leading(order=(0, 1)), "second dim": lambda: leading(order=(1, 0))},
    "group norm": {f"opset {opset}": lambda opset=opset: normalised(opset=opset) for opset in (21, 20, 17)},  # type: ignore[misc]
    "group norm, step": {f"opset {opset}": lambda opset=opset: normalised(opset=opset) for opset in (21, 20)},  # type: ignore[misc]
    "upsampling": {
        "Resize": lambda: between(repeated, 64), "Gather": lambda: between(looked_up(np.arange(64) // 2), 64),
    },
    "upsampling, step": {
        "Resize": lambda: between(repeated, 64), "Gather": lambda: between(looked_up(np.arange(64) // 2), 64),
    },
    "every second row": {
        "Slice": lambda: between(sliced, 16), "Gather": lambda: between(looked_up(np.arange(0, 32, 2)), 16),
    },
    "halves": {
        "nothing": lambda: between(lambda net: halves(net, swaps=0)),
        "swapped twice": lambda: between(lambda net: halves(net, swaps=2)),
    },
    "depthwise": {"products": lambda: depthwise(by_shifts=True), "Conv": lambda: depthwise(by_shifts=False)},
    "depthwise, step": {"products": lambda: depthwise(by_shifts=True), "Conv": lambda: depthwise(by_shifts=False)},
    "grouped": {"a Conv a group": lambda: grouped(together=False), "Conv": lambda: grouped(together=True)},
    "grouped, step": {"a Conv a group": lambda: grouped(together=False), "Conv": lambda: grouped(together=True)},
    "two layers, step": {"as Llama's": lambda: layers(packed=False), "as Phi-3's": lambda: layers(packed=True)},
    "positions, step": {
        "second dim": lambda: attention(packed=False), "first dim": lambda: attention(packed=False, order=(1, 0, 2)),
        "first dim, packed": lambda: attention(packed=True, order=(1, 0, 2)),
    },
    "sums of rows": {"by hand": lambda: between(summed_by_hand), "CumSum": lambda: between(summed)},
    "cache": {
        "ScatterElements": lambda: cached(by_positions=False), "TensorScatter": lambda: cached(by_positions=True),
    },
    "put together": {
        form: lambda dim=dim: between(lambda net: put_together(net, dim=dim))  # type: ignore[misc]
        for form, dim in (("nothing", None), ("channels", 1), ("rows", 2))
    },
    "identity": {
        form: lambda side=side: between(lambda net: multiplied(net, side=side))  # type: ignore[misc]
        for form, side in (("nothing", None), ("of rows", 0), ("of columns", 1))
    },
    "3x3": {
        form: lambda form=form: between(lambda net: convolved(net, form))  # type: ignore[misc]
        for form in ("Conv", "im2col", "shifts")
    },
    "experts, step": {"one product": lambda: experts(stacked=True), "a loop": lambda: experts(stacked=False)},
    "tokens, step": {"whole": lambda: in_parts(1), "in quarters": lambda: in_parts(4)},
    **{
        f"linear{step}": {
            "halves of pixels": lambda: between(lambda net: resized(net, 64, mode="linear"), 64),
            "corners": lambda: between(lambda net: resized(net, 64, mode="linear", where="align_corners"), 64),
        }
        for step in ("", ", step")
    },
    "window": {"attribute": lambda: near(by_mask=False), "mask": lambda: near(by_mask=True)},
}  # fmt: skip


@dataclass(frozen=True)
class Costs:
    """What the plans of one spelling cost."""

    spelling: str
    costs: tuple[int, ...]
    """For each number of workers."""
    ratios: tuple[float, ...]
    """Over the cheapest of the group."""
    verdict: str
    """Of a run on 3 workers; "" without one."""


def measured(
    spellings: Iterable[tuple[str, ModelProto]], workers: Sequence[int], folder: Path, *, is_step: bool, runs: bool
) -> list[Costs]:
    """What all spellings of a network cost."""
    costs: dict[str, tuple[int, ...]] = {}
    verdicts: dict[str, str] = {}
    for spelling, model in spellings:
        file = folder / "model.onnx"
        file.write_bytes(model.SerializeToString())
        if is_step:
            api.grad(file, loss="mse", optimizer="sgd", lr=0.1, output=folder / "step.onnx")
            file = folder / "step.onnx"
        plans = [api.plan(file, gpus=count, out=folder / "plan", force=True).plan for count in workers]
        costs[spelling] = tuple(plan.cost for plan in plans)
        verdicts[spelling] = ""
        if runs:
            api.plan(file, gpus=3, out=folder / "plan", force=True)
            verdicts[spelling] = "right" if api.run(folder / "plan", verify=True).verified else "WRONG"
    least = [max(1, min(column)) for column in zip(*costs.values(), strict=True)]
    return [
        Costs(spelling, own, tuple(cost / best for cost, best in zip(own, least, strict=True)), verdicts[spelling])
        for spelling, own in costs.items()
    ]


def groups(options: argparse.Namespace) -> Iterator[tuple[str, bool, Iterable[tuple[str, ModelProto]]]]:
    """The networks that are asked for: what they are called, whether their step is meant, and their spellings."""
    if options.drawn:
        for name, is_step, models in drawn(options.drawn, options.seed):
            yield name, is_step, models.items()
    else:
        for name in options.only:
            built = ((spelling, build().model()) for spelling, build in GROUPS[name].items())
            yield name, name.endswith(", step"), built


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--only", nargs="+", default=list(GROUPS), choices=list(GROUPS))
    parser.add_argument("--drawn", type=int, metavar="N", help="pairs that rewriting at random makes, instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", action="store_true", help="run each on 3 workers and verify it")
    options = parser.parse_args()
    table = Table("network", "written as", *(f"{count} workers" for count in options.workers), "run")
    most = 1.0
    with tempfile.TemporaryDirectory() as folder:
        for name, is_step, spellings in groups(options):
            for row in measured(spellings, options.workers, Path(folder), is_step=is_step, runs=options.run):
                numbers = zip(row.costs, row.ratios, strict=True)
                table.add_row(
                    name, row.spelling, *(f"{cost / 1e3:,.1f}  {over:.2f}" for cost, over in numbers), row.verdict
                )
                most = max(most, *row.ratios)
    Console(width=130).print(table, f"at most {most:.2f} of the cheapest")


if __name__ == "__main__":
    main()
