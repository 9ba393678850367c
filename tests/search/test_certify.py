"""Plans and their certified gaps against an independent solver (HiGHS) of the same tables, on random graphs."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

import opdefs
from planner import zoo
from planner.algebra.tiling import Tiling
from planner.cost.tables import Candidates
from planner.graph.model import DType, Graph, Op, StatePair, Tensor
from planner.search.certify import Effort, certify
from planner.search.improve import improve
from planner.search.problem import Problem, SearchVariable, no_restriction
from planner.search.recurse import search_recursively
from planner.zoo import mlp

CUTS = ((2, 2), (3, 2), (2, 3), (2, 2, 2))


@dataclass
class Drawing:
    """A graph that grows op by op."""

    tensors: dict[str, tuple[int, ...]]
    ops: list[Op]

    def add(self, op_type: str, inputs: tuple[str, ...], shape: tuple[int, ...]) -> None:
        name = f"t{len(self.ops)}"
        attributes = (("perm", (1, 0)),) if op_type == "Transpose" else ()
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


def composites(problem: Problem, variable: SearchVariable, cuts: tuple[int, ...]) -> Candidates:
    found = [Tiling((), ())]
    for ways in cuts:
        found = [longer for prefix in found for longer in problem.extensions(variable, prefix, ways)]
    return tuple(found)


def least_of_all(problem: Problem, cuts: tuple[int, ...]) -> int:
    """The joint optimum by integer programming: one binary for each value, and one for each pair of a table."""
    choices = [problem.intern(composites(problem, variable, cuts)) for variable in problem.variables]
    start = np.concatenate([[0], np.cumsum([len(values) for values in choices])])
    tables, which, scopes = problem.joint_tables(choices)
    costs = [np.zeros(int(start[-1]))]
    rows: list[np.ndarray] = []
    columns: list[np.ndarray] = []
    signs: list[np.ndarray] = []
    right: list[float] = []

    def constrain(plus: np.ndarray, minus: np.ndarray, total: float) -> None:
        rows.append(np.full(len(plus) + len(minus), len(right)))
        columns.append(np.concatenate([plus, minus]))
        signs.append(np.concatenate([np.ones(len(plus)), -np.ones(len(minus))]))
        right.append(total)

    nothing = np.zeros(0, dtype=np.int64)
    for variable in range(len(choices)):
        constrain(np.arange(start[variable], start[variable + 1]), nothing, 1)
    used = int(start[-1])
    constant = 0
    for number, scope in zip(which.tolist(), scopes, strict=True):
        table = tables[number]
        if not scope:
            constant += int(table)
        elif len(scope) == 1:
            costs[0][start[scope[0]] : start[scope[0] + 1]] += table
        else:
            cells = used + np.arange(table.size).reshape(table.shape)
            used += table.size
            costs.append(table.ravel().astype(float))
            for value in range(table.shape[0]):
                constrain(cells[value], np.array([start[scope[0]] + value]), 0)
            for value in range(table.shape[1]):
                constrain(cells[:, value], np.array([start[scope[1]] + value]), 0)
    matrix = coo_array(
        (np.concatenate(signs), (np.concatenate(rows), np.concatenate(columns))), shape=(len(right), used)
    )
    integral = np.zeros(used)
    integral[: start[-1]] = 1
    result = milp(
        np.concatenate(costs),
        integrality=integral,
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix.tocsr(), right, right),
    )
    assert result.success, result.message
    return constant + round(result.fun)


def check(graph: Graph, cuts: tuple[int, ...], effort: Effort) -> float:
    """Holds a certificate against the integer programme; the certified gap."""
    problem = Problem(graph, opdefs.standard().bind_all(graph), int(np.prod(cuts)))
    start = improve(problem, cuts, no_restriction, search_recursively(problem, cuts, no_restriction))
    found = certify(problem, cuts, no_restriction, start, effort)
    least = least_of_all(problem, cuts)
    assert found.lower_bytes is not None
    assert found.lower_bytes <= least <= found.moved_bytes <= start.moved_bytes
    assert sum(amount for _, amount in problem.bytes_by_tensor(found.composites)) == found.moved_bytes
    return found.moved_bytes / found.lower_bytes - 1 if found.moved_bytes else 0.0


@settings(max_examples=25)
@given(graphs(), st.sampled_from(CUTS[:3]))
def test_a_certified_plan_is_as_good_as_an_integer_programme_finds(graph: Graph, cuts: tuple[int, ...]) -> None:
    assert check(graph, cuts, Effort()) == 0.0


@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(graphs(), st.sampled_from(CUTS))
def test_many_certified_plans(graph: Graph, cuts: tuple[int, ...]) -> None:
    assert check(graph, cuts, Effort()) == 0.0


@settings(max_examples=15)
@given(graphs(), st.sampled_from(CUTS[:3]))
def test_a_bound_of_little_effort_holds_as_well(graph: Graph, cuts: tuple[int, ...]) -> None:
    check(graph, cuts, Effort(rounds=1, exact_entries=1))


def test_a_problem_that_is_too_large_gets_no_bound_and_keeps_its_plan() -> None:
    graph = mlp(2, 24, 36)
    problem = Problem(graph, opdefs.standard().bind_all(graph), 4)
    start = search_recursively(problem, (2, 2), no_restriction)
    assert certify(problem, (2, 2), no_restriction, start, Effort(table_entries=10)) == start


@pytest.mark.parametrize(("name", "megabytes"), [("mlp-4x8192", 402.653184), ("gpt-2x1024", 1141.08012)])
def test_peers_workloads_are_solved_exactly(name: str, megabytes: float) -> None:
    graph = zoo.build(name)
    problem = Problem(graph, opdefs.standard().bind_all(graph), 8)
    found = certify(problem, (2, 2, 2), no_restriction, search_recursively(problem, (2, 2, 2), no_restriction))
    assert found.moved_bytes == found.lower_bytes == round(megabytes * 1e6)
