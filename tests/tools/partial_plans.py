"""Graphs with sums of partial results, and random plans of them that keep some partial."""

from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import strategies as st

from planner.algebra.tiling import Partial, Reducer, Shard, Tiling
from planner.features.zoo.models.forward import Forward
from planner.features.zoo.models.step import training_step
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.search.decision import Decision
from planner.search.model.cuts import prime_factors
from planner.search.model.problem import Problem

PARTIAL = Partial(Reducer.SUM)


def graph_of(
    shapes: dict[str, tuple[int, ...]],
    ops: list[Op],
    outputs: tuple[str, ...],
    constants: Mapping[str, np.ndarray] = {},
) -> Graph:
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in shapes.items()}
    tensors.update({name: Tensor(name, value.shape, DType.INT64) for name, value in constants.items()})
    made = {name for op in ops for name in op.outputs}
    inputs = tuple(name for name in shapes if name not in made)
    return Graph("sums", tensors, tuple(ops), inputs, outputs, constants)


def two_products(m: int = 8, k: int = 12, n: int = 10) -> Graph:
    """Y = A B + C D."""
    return graph_of(
        {"a": (m, k), "b": (k, n), "c": (m, k), "d": (k, n), "p": (m, n), "q": (m, n), "y": (m, n)},
        [
            Op("first", "MatMul", ("a", "b"), ("p",)),
            Op("second", "MatMul", ("c", "d"), ("q",)),
            Op("sum", "Add", ("p", "q"), ("y",)),
        ],
        ("y",),
    )


def all_kinds() -> Graph:
    """Sums of products that are negated, transposed, reshaped, subtracted, scaled by a mean, broadcast and summed."""
    return graph_of(
        {
            "a": (6, 16),
            "b": (16, 8),
            "c": (8, 16),
            "d": (16, 6),
            "e": (48, 16),
            "f": (16,),
            "g": (6, 16),
            "p": (6, 8),
            "q": (8, 6),
            "qt": (6, 8),
            "r": (48,),
            "rs": (6, 8),
            "n": (6, 8),
            "u": (16, 8),
            "v": (8,),
            "s1": (6, 8),
            "s2": (6, 8),
            "s3": (6, 8),
            "mean": (6, 8),
            "t": (6,),
            "y": (6, 8),
            "z": (6,),
        },
        [
            Op("p_", "MatMul", ("a", "b"), ("p",)),
            Op("q_", "MatMul", ("c", "d"), ("q",)),
            Op("qt_", "Transpose", ("q",), ("qt",), (("perm", (1, 0)),)),
            Op("r_", "MatMul", ("e", "f"), ("r",)),
            Op("rs_", "Reshape", ("r", "shape"), ("rs",)),
            Op("n_", "Neg", ("rs",), ("n",)),
            Op("u_", "Tanh", ("b",), ("u",)),
            Op("v_", "ReduceSum", ("u", "first"), ("v",), (("keepdims", 0),)),
            Op("s1_", "Sub", ("p", "qt"), ("s1",)),
            Op("s2_", "Sum", ("s1", "n", "p"), ("s2",)),
            Op("s3_", "Add", ("s2", "v"), ("s3",)),
            Op("mean_", "Mean", ("s3", "s1"), ("mean",)),
            Op("t_", "ReduceSum", ("mean", "last"), ("t",), (("keepdims", 0),)),
            Op("y_", "Identity", ("mean",), ("y",)),
            Op("z_", "Exp", ("t",), ("z",)),
        ],
        ("y", "z"),
        {"shape": np.array([6, 8]), "first": np.array([0]), "last": np.array([1])},
    )


def separate_gpt(blocks: int, width: int, heads: int, sequence: int, batch: int) -> Graph:
    """A training step of decoder blocks in which query, key and value have a product each."""
    model, rows, head = Forward("separate"), batch * sequence, width // heads
    x = model.input("x", rows, width)
    for block in (f"block{number}" for number in range(1, blocks + 1)):
        normal = model.layer_norm(f"{block}.norm1", x, bias=False)
        query, key, value = (
            model.transpose(
                f"{block}.{name}.turned",
                model.reshape(
                    f"{block}.{name}.heads",
                    model.project(f"{block}.{name}", normal, width, bias=False),
                    batch,
                    sequence,
                    heads,
                    head,
                ),
                *order,
            )
            for name, order in (("query", (0, 2, 1, 3)), ("key", (0, 2, 3, 1)), ("value", (0, 2, 1, 3)))
        )
        scores = model.op(f"{block}.scores", "MatMul", [query, key], (batch, heads, sequence, sequence))
        weights = model.op(f"{block}.softmax", "Softmax", [scores], (batch, heads, sequence, sequence), axis=-1)
        mixed = model.op(f"{block}.mixed", "MatMul", [weights, value], (batch, heads, sequence, head))
        joined = model.reshape(f"{block}.joined", model.transpose(f"{block}.back", mixed, 0, 2, 1, 3), rows, width)
        x = model.each(f"{block}.add1", "Add", x, model.project(f"{block}.out", joined, width, bias=False))
        wide = model.project(f"{block}.wide", model.layer_norm(f"{block}.norm2", x, bias=False), 4 * width, bias=False)
        narrow = model.project(f"{block}.narrow", model.each(f"{block}.gelu", "Gelu", wide), width, bias=False)
        x = model.each(f"{block}.add2", "Add", x, narrow)
    return training_step(model, x, loss="mse", optimizer="sgd")


@st.composite
def sums(draw: st.DrawFn) -> Graph:
    """Trees of sums over products, some of them transposed or used twice, and what is computed from them."""
    size = st.sampled_from([2, 3, 4, 5, 6, 8])
    rows, columns = draw(size), draw(size)
    shapes: dict[str, tuple[int, ...]] = {}
    ops: list[Op] = []
    open_ends: list[str] = []

    def add(op_type: str, inputs: tuple[str, ...], shape: tuple[int, ...], **attributes: tuple[int, ...]) -> str:
        name = f"t{len(ops)}"
        shapes[name] = shape
        ops.append(Op(f"op{len(ops)}", op_type, inputs, (name,), tuple(attributes.items())))
        return name

    for number in range(draw(st.integers(2, 3))):
        depth = draw(size)
        is_turned = draw(st.booleans())
        high, wide = (columns, rows) if is_turned else (rows, columns)
        shapes[f"a{number}"], shapes[f"b{number}"] = (high, depth), (depth, wide)
        product = add("MatMul", (f"a{number}", f"b{number}"), (high, wide))
        open_ends.append(add("Transpose", (product,), (rows, columns), perm=(1, 0)) if is_turned else product)
    while len(open_ends) > 1:
        one, other = open_ends.pop(0), open_ends.pop(0)
        open_ends.append(add(draw(st.sampled_from(["Add", "Sub", "Sum"])), (one, other), (rows, columns)))
        if draw(st.integers(0, 3)) == 3:
            open_ends.append(other)  # used again
            break
    for end in open_ends:
        add(draw(st.sampled_from(["Relu", "Neg", "Identity"])), (end,), (rows, columns))
    read = {name for op in ops for name in op.inputs}
    return graph_of(shapes, ops, tuple(name for op in ops for name in op.outputs if name not in read))


def plan_of(problem: Problem, composites: Sequence[Tiling]) -> Decision:
    """The plan in which each variable of a problem is this."""
    tilings = {name: composites[number] for name, number in problem.variable_of_tensor.items()}
    strategies = {name: composites[number] for name, number in problem.variable_of_op.items()}
    return Decision.of(problem.graph, problem.ops, tilings, strategies, problem.tables, cuts=composites[0].ways)


def partial_plan(problem: Problem, workers: int, seed: int) -> Decision:
    """Every variable's composite at random, cut by cut, with as many tensors partial as dice and graph allow."""
    rng = np.random.default_rng(seed)
    composites = [Tiling((), ()) for _ in problem.variables]
    for ways in prime_factors(workers):
        composites = _drawn(problem, composites, ways, rng)
    return plan_of(problem, composites)


def partial_tensors(plan: Decision) -> list[str]:
    """Tensors of a plan that stay partial at some cut."""
    return [name for name, tiling in plan.tilings.items() if tiling.has_partial]


def _drawn(problem: Problem, composites: list[Tiling], ways: int, rng: np.random.Generator) -> list[Tiling]:
    """One more cut of every variable."""
    options = {v.number: problem.extensions(v, composites[v.number], ways) for v in problem.variables}
    reads: dict[int, set[int]] = {v.number: set() for v in problem.variables if v.op}
    makes: dict[int, set[int]] = {v.number: set() for v in problem.variables if v.op}
    for link in problem.links:
        (reads if link.is_input else makes)[link.op].add(link.tensor)
    contributing = {
        v.number: [
            one
            for one in options[v.number]
            if isinstance(one.placements[-1], Shard) and v.op.variables[one.placements[-1].dim].reducer is Reducer.SUM
        ]
        for v in problem.variables
        if v.op
    }
    rate = rng.choice([0.9, 1.0])
    partial = {number for number, own in options.items() if own[-1].placements[-1] == PARTIAL and rng.random() < rate}
    ops = partial & reads.keys()
    while True:
        before = len(partial)
        ops = {op for op in ops if reads[op] <= partial}
        for op, read in reads.items():
            if op not in ops:
                partial -= read
                if not contributing[op]:
                    partial -= makes[op]
        if len(partial) == before:
            break
    found = list(composites)
    for variable in problem.variables:
        number, own = variable.number, options[variable.number]
        if number in (ops if variable.op else partial):
            found[number] = own[-1]
            continue
        others = [one for one in own if one.placements[-1] != PARTIAL]
        if variable.op and makes[number] & partial:
            others = contributing[number]
        found[number] = others[rng.integers(len(others))]
    return found
