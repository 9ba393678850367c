"""Tables of operators' names in the planner, and what becomes of an operator that is in none of them.

    python tests/tools/operator_tables.py [OPERATOR ...]     the tables in which each is missing, and why

A table is a module's own set, sequence or mapping by names, of which three or more are described operators; one that is
composed of others is none. Each has a statement here. It names a property of descriptions that the table's operators
have, and no others but those it lists; or the reason why they are these, and the consequence for all others.
``tests/opdefs/test_tables.py`` checks both.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

from onnx import defs

import planner
from planner import opdefs
from planner.features.ops.cases.case import bind_case, by_type
from planner.features.ops.cases.examples import all_cases
from planner.tdl.bind import BoundOp
from planner.tdl.expr import Access

LEAST_NAMES = 3


@cache
def described() -> Mapping[str, BoundOp]:
    """An op of each described operator of ONNX's own, with its description."""
    descriptions = opdefs.standard()
    first = {name: cases[0] for name, cases in by_type(all_cases()).items() if not cases[0].domain}
    return {name: bind_case(case, descriptions)[0] for name, case in first.items()}


# properties ----------------------------------------------------------------------------------------------------------


def is_element_wise(op: BoundOp) -> bool:
    """Each element is a function of the operands' elements at its own index."""
    return op.analysis.is_elementwise and bool(op.analysis.read_slots)


def is_broadcasting(op: BoundOp) -> bool:
    """Element-wise, of several operands."""
    return is_element_wise(op) and len(op.analysis.read_slots) > 1


def is_product(op: BoundOp) -> bool:
    """A sum of products of two operands."""
    return op.analysis.product is not None


def is_moving(op: BoundOp) -> bool:
    """An operand's elements, moved."""
    return isinstance(op.description.trace(op.node)[0].value, Access)


def is_reduction(op: BoundOp) -> bool:
    """A reduction, as ONNX calls them."""
    return op.op.op_type.startswith("Reduce")


def is_recurrent(op: BoundOp) -> bool:
    """Steps of a cell with activations."""
    return defs.has(op.op.op_type) and "activations" in defs.get_schema(op.op.op_type).attributes


def is_comparison(op: BoundOp) -> bool:
    """Element-wise, from numbers to truth."""
    return is_element_wise(op) and _types(op, 0) == {"tensor(bool)"} != _types(op, 0, of_inputs=True)


def is_logic(op: BoundOp) -> bool:
    """Element-wise, of truth or of bits."""
    return is_element_wise(op) and "tensor(float)" not in _types(op, 0, of_inputs=True) | _types(op, 0)


def _types(op: BoundOp, position: int, *, of_inputs: bool = False) -> set[str]:
    schema = defs.get_schema(op.op.op_type)
    allowed = {constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints}
    formal = (schema.inputs if of_inputs else schema.outputs)[position].type_str
    return set(allowed.get(formal, [formal]))


# statements ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statement:
    """The operators of a table."""

    reason: str
    """Why they are these; what it means for an operator that it is missing."""
    has: Callable[[BoundOp], bool] | None = None
    """The property of described operators that are in it; None: there is none."""
    missing: str = ""
    """Described operators that have the property and are not in it, with blanks between them."""
    beside: str = ""
    """Described operators that are in it and do not have the property."""


_TEXT = "how a kernel's source says it: an operator without an emitter is exported as a call of the runtime"
_PART = "a part of another table here, by how ONNX groups them"
STATEMENTS: Mapping[str, Statement] = {
    "artifacts.in_place.UPDATING": Statement("measured on the runtime: others' results get memory of their own"),
    "features.export.emitters.elementwise._CALLED": Statement(_TEXT),
    "features.export.emitters.elementwise._WRITTEN": Statement(_TEXT),
    "features.export.emitters.reductions._FUNCTIONS": Statement(_TEXT, is_reduction),
    "features.export.emitters.registry._EMITTERS": Statement(_TEXT),
    "features.ops.cases.compute.RANGED": Statement("not defined everywhere: cases of others have normal numbers"),
    "features.prove.proof.expression.ARITHMETIC": Statement("what a proof computes with: others are functions by name"),
    "graph.core.traits.ELEMENT_WISE": Statement(
        "Dropout and Trilu lay a mask over elements, Expand repeats them; the others have parameters by channel",
        is_element_wise,
        missing="DequantizeLinear Dropout Expand QuantizeLinear Trilu",
    ),
    "graph.core.traits.BROADCASTING": Statement(
        "operands beside the first are scalars, or broadcast one way",
        is_broadcasting,
        missing="Clip DequantizeLinear PRelu QuantizeLinear SwiGLU",
    ),
    "graph.core.traits.COMPARISONS": Statement("", is_comparison),
    "graph.core.traits.LOGIC": Statement("BitShift counts as arithmetic", is_logic, missing="BitShift"),
    **dict.fromkeys(
        (f"graph.core.traits.{name}" for name in ("ARITHMETIC", "ANGLES", "ACTIVATIONS", "COPYING")),
        Statement(_PART),
    ),
    "graph.core.traits.MOVING": Statement(
        "the sizes of three are computed, Dropout scales; two move by what another operand says",
        is_moving,
        missing="CenterCropPad Dropout Resize Upsample",
        beside="ReverseSequence Trilu",
    ),
    **dict.fromkeys((f"graph.core.traits.{name}" for name in ("RESHAPES", "VIEWS", "REARRANGING")), Statement(_PART)),
    "graph.core.traits.CARRIED": Statement("operands that are moved, copied or chosen: others are computed with"),
    "graph.core.traits.LOOKUPS": Statement("elements at places that an operand names: no other operator has such"),
    "graph.core.traits.ALONG_AXIS": Statement("the same along all dims but one: dims of others stay merged"),
    "graph.core.traits.GENERATING": Statement("makes more than it reads, while shapes are inferred: others do not"),
    "graph.core.traits.SUMS": Statement("sums of operands: partial sums of others are joined before them"),
    "graph.core.traits.PRODUCTS": Statement(
        "convolutions have a table of their own; quantised products are not turned; two are products with themselves",
        is_product,
        missing="Conv ConvInteger ConvTranspose MatMulInteger QLinearConv QLinearMatMul ReduceL2 ReduceSumSquare",
    ),
    "graph.core.traits.NORMS": Statement("with a trained scale and bias: constants of others are known by shape"),
    "graph.core.traits.REDUCTIONS": Statement("", is_reduction),
    "graph.core.traits.RECURRENT": Statement("", is_recurrent),
    "graph.decompositions.gradient.recurrent._ACTIVATIONS": Statement("ONNX lists them for its recurrent operators"),
    "graph.decompositions.reading.fused._ACTIVATIONS": Statement("ONNX Runtime lists them for its FusedConv"),
    "graph.folding.evaluate.FOLDABLE": Statement("what exporters compute shapes with: others stay ops"),
    "graph.folding.infer._ERRATA": Statement("ONNX's inference has them wrong: others are right"),
    "graph.folding.operands._RULES": Statement("checks that ONNX's inference leaves out: it checks others"),
    "graph.folding.restated._FORMS": Statement("forms by known operands: others stay as they are"),
    "graph.folding.sizes._RULES": Statement("sizes that the runtime computes otherwise than ONNX: of others not"),
    "graph.reading.older_forms._RIGHT_FROM": Statement("ONNX's converter has them wrong: others are right"),
    "graph.rewriting.canonical._LAYING_OUT": Statement("dropped where unread: other unread ops are no part of a file"),
    "graph.rewriting.canonical._OWN_DIMS": Statement("read what an Expand repeats: others read the Expand"),
    "graph.rewriting.dims._PARTS": Statement("take or put together boxes: packed weights of others stay whole"),
    "graph.rewriting.dims._RULES": Statement("dims that run together: of others, merged and packed dims stay so"),
    "graph.rewriting.packing.JOINED_BY": Statement("reductions of parts that can be joined: others read the whole"),
    "graph.rewriting.unmerged._WRITERS": Statement("written with other dims: dims of others stay merged"),
    "opdefs.reduction.REDUCTIONS": Statement(
        "ReduceMean has a description of its own", is_reduction, missing="ReduceMean"
    ),
    "partition.workspace.ELEMENTWISE": Statement("measured on the runtime: others' results get memory of their own"),
    "runtime.judge.reference.BY_BODY": Statement("ONNX's evaluator lacks them or is wrong: it computes others"),
    "runtime.judge.reference._STEPPED": Statement("their results jump: of others, rounding is bounded"),
    "runtime.judge.reference_ops.KERNELS": Statement("ONNX's evaluator is slow or wrong: it computes others"),
    "runtime.judge.rounding.EXACT": Statement("no rounding: what others make is let differ by some"),
    "runtime.judge.rounding.SUMS": Statement("sums of many terms: what others make is let differ by one rounding"),
    "search.literature.context._BETWEEN": Statement("as exporters write attention; only a known scheme reads it"),
    "search.moves.megatron._SAME_VALUES": Statement("as exporters read weights; only a first plan reads it"),
    "training.gradients.composed._SPELLED": Statement("spellings of Gelu: others have rules of their own"),
    "training.gradients.older_opsets._FORMS": Statement("older forms that differ: others are the same at all opsets"),
    "training.batch.rules._STATING": Statement("an operand states sizes: those of others do not count samples"),
    "training.parameters.readers._LAYOUT": Statement("hand on elements: a constant is what the next op takes it for"),
    "training.parameters.readers._USES": Statement("what a constant is to an op: to others, it is asked of the user"),
    "training.update.precision._IN_FULL": Statement("overflow or lose digits in 16 bits: others are computed in 16"),
}
"""By table, without ``planner.``."""


# tables --------------------------------------------------------------------------------------------------------------


@cache
def tables() -> Mapping[str, frozenset[str]]:
    """The described operators of each table of the planner."""
    return dict(_tables())


def _tables() -> Iterator[tuple[str, frozenset[str]]]:
    names = (module.name for module in walk_packages(planner.__path__, "planner."))
    for module_name in sorted(name for name in names if not name.endswith("__main__")):
        module = import_module(module_name)
        for name, words in _stated(Path(str(module.__file__)).read_text(encoding="utf-8")):
            value = getattr(module, name, None)
            if not isinstance(value, frozenset | set | tuple | list | Mapping):
                continue
            operators = described().keys() & {item for item in value if isinstance(item, str)}
            is_registry = isinstance(value, Mapping) and all(map(callable, value.values()))
            # What is composed of other tables says nothing of its own.
            is_own = is_registry or not described().keys().isdisjoint(words)
            if is_own and len(operators) >= LEAST_NAMES and 2 * len(operators) >= len(value):
                yield f"{module_name.removeprefix('planner.')}.{name}", frozenset(operators)


def _stated(text: str) -> Iterator[tuple[str, set[str]]]:
    """The names that a module binds itself, and the words in what it binds them to."""
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
            constants = [node.value for node in ast.walk(statement.value) if isinstance(node, ast.Constant)]
            if isinstance(target, ast.Name) and not target.id.startswith("__"):
                yield target.id, {word for text in constants if isinstance(text, str) for word in text.split()}


def missing(operator: str) -> Iterator[str]:
    """A line for each table in which a described operator is missing: why, or what it means."""
    for table, operators in tables().items():
        statement = STATEMENTS[table]
        if operator in operators or (statement.has is not None and not statement.has(described()[operator])):
            continue
        yield f"{table}: {statement.reason}"


def main() -> None:
    """Prints the tables in which operators are missing."""
    for operator in sys.argv[1:] or sorted(described()):
        print(operator, *missing(operator), sep="\n  ")
    print(
        f"{len(tables())} tables, {sum(statement.has is not None for statement in STATEMENTS.values())} by a property"
    )


if __name__ == "__main__":
    main()
