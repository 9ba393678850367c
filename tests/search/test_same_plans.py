"""What a plan does not depend on: the hash seed, the names of tensors and ops, the order of the ops.

What holds, and is tested here on small graphs:
- The hash seed changes no byte of any file of a plan.
- Other names give the same plan under these names.
- Another topological order gives as much cost where the plan is proven best, as with one cut. Among plans of equal
  cost the file's order decides, and where no proof is found, also which plan is found.
- Planned in the order of their places, graphs that differ in names and order have the same plan: op for op if every op
  has a place of its own, and in cost if some are twins.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fast_suite import examples
from planner import opdefs
from planner.features.zoo.models import build
from planner.graph.compare.structure import in_order_of_places, structure_of
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.graph.files.to_onnx import write_model
from planner.search.decide import decide
from planner.search.decision import Decision
from planner.search.request import SearchRequest

Renamed = Callable[[Graph, int], tuple[Graph, dict[str, str]]]
Reordered = Callable[[Graph, int], Graph]
DESCRIPTIONS = opdefs.standard()
SEEDS = st.integers(0, 2**32 - 1)
SIZES = (4, 6, 8)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Up to ten ops on matrices, joined at random: chains, branches, weights that several ops read."""
    shapes: dict[str, tuple[int, int]] = {}
    ops: list[Op] = []

    def new(shape: tuple[int, int]) -> str:
        name = f"t{len(shapes)}"
        shapes[name] = shape
        return name

    for _ in range(3):
        new((draw(st.sampled_from(SIZES)), draw(st.sampled_from(SIZES))))
    for number in range(draw(st.integers(1, 10))):
        first = draw(st.sampled_from(sorted(shapes)))
        rows, columns = shapes[first]
        kind = draw(st.sampled_from(("Relu", "Add", "Transpose", "MatMul")))
        if kind == "Relu":
            inputs, shape = (first,), (rows, columns)
        elif kind == "Add":
            other = draw(st.sampled_from([name for name in shapes if shapes[name] == (rows, columns)]))
            inputs, shape = (first, other), (rows, columns)
        elif kind == "Transpose":
            inputs, shape = (first,), (columns, rows)
        else:
            fitting = [name for name in shapes if shapes[name][0] == columns] or [new((columns, 8))]
            other = draw(st.sampled_from(fitting))
            inputs, shape = (first, other), (rows, shapes[other][1])
        perm = (("perm", (1, 0)),) if kind == "Transpose" else ()
        ops.append(Op(f"op{number}", kind, inputs, (new(shape),), perm))
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in shapes.items()}
    made = {op.outputs[0] for op in ops}
    read = {name for op in ops for name in op.inputs}
    outputs = tuple(name for name in shapes if name in made and name not in read)
    return Graph("random", tensors, tuple(ops), tuple(name for name in shapes if name not in made), outputs, {})


def planned(graph: Graph, workers: int) -> Decision:
    return decide(graph, DESCRIPTIONS.bind_all(graph), SearchRequest(workers))


def in_names(plan: Decision, new: dict[str, str]) -> dict[str, object]:
    """What a plan decides, under other names."""
    return {
        "moved_bytes": plan.moved_bytes,
        "tilings": {new[name]: str(tiling) for name, tiling in plan.tilings.items()},
        "strategies": {new[name]: str(strategy.tiling) for name, strategy in plan.strategies.items()},
        "tensor_bytes": {new[name]: amount for name, amount in plan.tensor_bytes.items()},
        "unsplit": [new[name] for name in plan.unsplit],
        "excess": (plan.excess_bytes, plan.repeated_bytes, plan.computing_bytes),
    }


def same_names(plan: Decision) -> dict[str, str]:
    return {name: name for name in (*plan.tilings, *plan.strategies)}


@examples(40)
@given(graph=graphs(), workers=st.sampled_from((2, 3, 4, 6, 8)), seed=SEEDS)
def test_other_names_give_the_same_plan(renamed: Renamed, graph: Graph, workers: int, seed: int) -> None:
    other, new = renamed(graph, seed)
    there = planned(other, workers)
    assert in_names(planned(graph, workers), new) == in_names(there, same_names(there))


@examples(40)
@given(graph=graphs(), workers=st.sampled_from((2, 3, 5)), seed=SEEDS)
def test_another_order_costs_as_much_at_one_cut(reordered: Reordered, graph: Graph, workers: int, seed: int) -> None:
    assert planned(reordered(graph, seed), workers).cost == planned(graph, workers).cost


@examples(40)
@given(graph=graphs(), workers=st.sampled_from((3, 4, 6, 8)), seed=SEEDS)
def test_in_the_order_of_places_neither_names_nor_order_matter(
    renamed: Renamed, reordered: Reordered, graph: Graph, workers: int, seed: int
) -> None:
    other, new = renamed(reordered(graph, seed), seed)
    plan, there = planned(in_order_of_places(graph), workers), planned(in_order_of_places(other), workers)
    assert plan.cost == there.cost
    if max(Counter(structure_of(graph).keys.values()).values()) == 1:
        mine, theirs = in_names(plan, new), in_names(there, same_names(there))
        assert mine == theirs
        assert list(mine["strategies"]) == list(theirs["strategies"]), "the order is the same, too"  # type: ignore[call-overload]


@pytest.mark.parametrize(("name", "workers"), [("lenet-5", 3), ("gpt-1x64-2h", 4)])
def test_the_same_on_training_graphs(renamed: Renamed, reordered: Reordered, name: str, workers: int) -> None:
    graph = build(name, batch=16)
    other, new = renamed(reordered(graph, 4), 5)
    plan, there = planned(in_order_of_places(graph), workers), planned(in_order_of_places(other), workers)
    assert in_names(plan, new) == in_names(there, same_names(there))


@pytest.mark.slow
def test_the_hash_seed_changes_no_byte_of_any_file(tmp_path: Path) -> None:
    write_model(build("lenet-5", batch=16), tmp_path / "m.onnx")
    folders = []
    for seed in ("0", "1"):
        folder = tmp_path / f"plan{seed}"
        line = ["plan", str(tmp_path / "m.onnx"), "--gpus", "6", "--forbid", "*=S(3)", "-o", str(folder)]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-m", "planner", *line], env=environment, check=True, capture_output=True)
        folders.append({file.name: file.read_bytes() for file in folder.iterdir()})
    assert len(folders[0]) == 9
    assert folders[0] == folders[1]
