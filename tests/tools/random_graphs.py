"""Small graphs drawn at random: products and element-wise ops, and convolutions."""

from dataclasses import dataclass

from hypothesis import strategies as st

from planner.graph.core.model import DType, Graph, Op, StatePair, Tensor

Attributes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass
class Drawing:
    """A graph that grows op by op."""

    tensors: dict[str, tuple[int, ...]]
    ops: list[Op]

    def add(self, op_type: str, inputs: tuple[str, ...], shape: tuple[int, ...], attributes: Attributes = ()) -> None:
        name = f"t{len(self.ops)}"
        if op_type == "Transpose":
            attributes = (("perm", (1, 0)),)
        self.tensors[name] = shape
        self.ops.append(Op(f"op{len(self.ops)}", op_type, inputs, (name,), attributes))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Chains, residuals and branches of matrix products and element-wise ops, of even and odd sizes, one state."""
    size = st.sampled_from([2, 3, 4, 5, 6, 8, 12])
    drawing = Drawing({"x": (draw(size), draw(size))}, [])
    for number in range(draw(st.integers(1, 5))):
        name = draw(st.sampled_from(sorted(drawing.tensors)))
        rows, columns = drawing.tensors[name]
        same = sorted(other for other, shape in drawing.tensors.items() if shape == (rows, columns))
        kind = draw(st.sampled_from(["MatMul", "MatMul", "Relu", "Add", "Transpose"]))
        if kind == "MatMul":
            wide = draw(size)
            drawing.tensors[f"w{number}"] = (columns, wide)
            drawing.add("MatMul", (name, f"w{number}"), (rows, wide))
        elif kind == "Add":
            drawing.add("Add", (name, draw(st.sampled_from(same))), (rows, columns))
        elif kind == "Relu":
            drawing.add("Relu", (name,), (rows, columns))
        else:
            drawing.add("Transpose", (name,), (columns, rows))
    made = {name for op in drawing.ops for name in op.outputs}
    inputs = tuple(name for name in drawing.tensors if name not in made)
    weights = [name for name in inputs if name.startswith("w")]
    state = ()
    if weights:
        weight = weights[0]
        drawing.add("Mul", (weight, weight), drawing.tensors[weight])
        state = (StatePair(weight, drawing.ops[-1].outputs[0]),)
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in drawing.tensors.items()}
    outputs = tuple(name for op in drawing.ops for name in op.outputs)
    return Graph("random", tensors, tuple(drawing.ops), inputs, outputs, {}, state=state)


@st.composite
def images(draw: st.DrawFn) -> Graph:
    """Convolutions that read across the borders of what is cut, of odd and even images, with residuals and branches."""
    size = st.sampled_from([3, 5, 6, 7, 9])
    channels = st.sampled_from([1, 2, 3, 4])
    drawing = Drawing({"x": (draw(st.sampled_from([1, 2, 3])), draw(channels), draw(size), draw(size))}, [])
    for number in range(draw(st.integers(1, 3))):
        name = draw(
            st.sampled_from(sorted(name for name, shape in drawing.tensors.items() if not name.startswith("w")))
        )
        shape = drawing.tensors[name]
        same = sorted(other for other in drawing.tensors if drawing.tensors[other] == shape)
        kind = draw(st.sampled_from(["Conv", "Conv", "Conv", "Relu", "Add"]))
        if kind == "Conv":
            stride, wide = draw(st.sampled_from([1, 2])), draw(channels)
            batch, deep, height, width = shape
            drawing.tensors[f"w{number}"] = (wide, deep, 3, 3)
            made = (batch, wide, *((extent - 1) // stride + 1 for extent in (height, width)))
            window = (("kernel_shape", (3, 3)), ("pads", (1, 1, 1, 1)), ("strides", (stride, stride)))
            drawing.add("Conv", (name, f"w{number}"), made, window)
        elif kind == "Add":
            drawing.add("Add", (name, draw(st.sampled_from(same))), shape)
        else:
            drawing.add("Relu", (name,), shape)
    made_names = {name for op in drawing.ops for name in op.outputs}
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in drawing.tensors.items()}
    inputs = tuple(name for name in drawing.tensors if name not in made_names)
    outputs = tuple(name for op in drawing.ops for name in op.outputs)
    return Graph("images", tensors, tuple(drawing.ops), inputs, outputs, {})


@st.composite
def entangled(draw: st.DrawFn) -> Graph:
    """Square matrices that are multiplied and added in any order, each with any other: all are near all others."""
    shape = (draw(st.sampled_from([6, 8, 12])),) * 2
    inputs = [f"x{number}" for number in range(draw(st.integers(6, 12)))]
    drawing = Drawing(dict.fromkeys(inputs, shape), [])
    random = draw(st.randoms(use_true_random=False))
    for _ in range(draw(st.integers(50, 90))):
        pair = tuple(random.sample(sorted(drawing.tensors), 2))
        drawing.add(random.choice(["MatMul", "MatMul", "Add", "Mul"]), pair, shape)
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name in drawing.tensors}
    read = {name for op in drawing.ops for name in op.inputs}
    outputs = tuple(name for op in drawing.ops for name in op.outputs if name not in read)
    weight, following = inputs[-1], outputs[-1]
    state = (StatePair(weight, following),) if weight in read else ()
    return Graph("entangled", tensors, tuple(drawing.ops), tuple(inputs), outputs, {}, state=state)
