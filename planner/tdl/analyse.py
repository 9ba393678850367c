"""Analysis: strategies of an op from its description (Tofu, section 4.2).

One analysis serves every op of a signature: op type, attributes, ranks, and those sizes and constants that the
description asked for. It tells, for each index variable, whether the op can be cut along it (case 1: an output
variable, the parts are concatenated; case 2: a reduction variable, the parts are reduced) and, for each read of
an input, the symbolic interval of every dim.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from planner.algebra.tiling import Reducer
from planner.errors import DescriptionError
from planner.tdl.blocks import dim_blocks, divided_blocks
from planner.tdl.expr import (
    Access,
    Apply,
    At,
    FloorDiv,
    Index,
    IndexValue,
    Match,
    Mod,
    Number,
    OpaqueResult,
    Output,
    Plus,
    Reduce,
    Times,
    Value,
    Var,
    VarKind,
    Whole,
    index_variables,
    subvalues,
)
from planner.tdl.extents import Extent, reduced_extent
from planner.tdl.interval import Interval
from planner.tdl.linear import Linearity, linearity
from planner.tdl.product import Product, product_of
from planner.tdl.work import Work, work_of


@dataclass(frozen=True, slots=True)
class Variable:
    """An index variable of a description."""

    name: str
    kind: VarKind
    extent: Extent
    reducer: Reducer | None
    """How the partial results of a cut along a reduction variable are joined; None for an output variable."""
    obstacle: str
    """Why the op cannot be cut along it; "" if it can."""
    blocks: tuple[int, ...] = ()
    """Cut at multiples of one of these, and reads that divide by it stay boxes; ascending, each above 1.

    A merge reads ``x[i // 16, i % 16]``: 4 heads of 16 merged into a dim of 64 and cut on 3 workers fall at 32/16/16,
    not at 22/21/21, or every Reshape would pay (block 16 of ``i``). A proposal, not a rule."""
    is_matched: bool = False
    """True if the data choose one value of it (``Match``): nothing is done for the others."""


@dataclass(frozen=True, slots=True)
class Read:
    """One access of an input."""

    slot: int
    dims: tuple[Interval | None, ...]
    """The interval of every dim; None: all of it."""
    once: tuple[str, ...]
    """Reduction variables that this read's term stands outside of: of the workers that share the reduction,
    the first alone reads it (Gemm's C)."""
    blocks: tuple[tuple[int, ...], ...] = ()
    """For each dim the blocks that this read proposes for the tensor: D from an index ``D*h + d``, so that a part of
    h reads whole blocks (the split that undoes the merge above: 4 heads on 3 workers read 32/16/16 of the 64)."""


@dataclass(frozen=True)
class Analysis:
    """The facts of an op type with these attributes and ranks, for all sizes."""

    variables: tuple[Variable, ...]
    """Output variables in the order of the outputs, then reduction variables."""
    outputs: tuple[tuple[int, ...] | None, ...]
    """For each output the variable of each dim, by position in ``variables``; None where it is absent."""
    reads: tuple[Read, ...]
    is_elementwise: bool
    """True if each output element reads the elements at its own index only (or a broadcast one)."""
    is_opaque: bool
    work: tuple[Work, ...]
    """What computing it takes."""
    linearity: Linearity = Linearity.NONE
    """What it does with contributions to its inputs that are joined afterwards."""
    steps: tuple[tuple[int, ...], ...] = ()
    """For each output how many elements of each dim go with one value of its variable; () where it is one of each."""
    product: Product | None = None
    """The elements of two inputs that it multiplies and sums; None if it does anything else."""

    def steps_of(self, position: int) -> tuple[int, ...]:
        """The steps of an output's dims; () where each is 1."""
        return self.steps[position] if self.steps else ()

    @cached_property
    def read_slots(self) -> tuple[int, ...]:
        """Inputs that the description reads; the others (axes, a shape) only parameterise the op."""
        return tuple(sorted({read.slot for read in self.reads}))

    @cached_property
    def has_sums(self) -> bool:
        """True if a cut along some variable makes contributions that are to be added."""
        return any(variable.reducer is Reducer.SUM and not variable.obstacle for variable in self.variables)

    @property
    def reduction_variables(self) -> tuple[str, ...]:
        return tuple(variable.name for variable in self.variables if variable.kind is VarKind.REDUCTION)


def analyse(outputs: tuple[Output, ...], present: tuple[bool, ...]) -> Analysis:
    """Analyses a traced description.

    Args:
        outputs: what ``Description.trace`` returned.
        present: which outputs the op has.

    Raises:
        DescriptionError: a reduction variable's extent is not known, or a name is bound twice.
    """
    values = [output.value for output, is_present in zip(outputs, present, strict=True) if is_present]
    reductions = [value for root in values for value in subvalues(root) if isinstance(value, Reduce)]
    opaque = {
        variable.name
        for root in values
        for value in subvalues(root)
        if isinstance(value, OpaqueResult)
        for index in value.indices
        for variable in index_variables(index)
    }
    positional = {
        variable.name
        for root in values
        for value in subvalues(root)
        if isinstance(value, IndexValue)
        for variable in index_variables(value.index)
    }
    matched = {
        value.index.name
        for root in values
        for value in subvalues(root)
        if isinstance(value, Match) and isinstance(value.index, Var)
    }
    blocks = _variable_blocks(values)
    variables: dict[str, Variable] = {}
    for position, (output, is_present) in enumerate(zip(outputs, present, strict=True)):
        for dim, var in enumerate(output.variables if is_present else ()):
            obstacle = ""
            if var.name in opaque:
                obstacle = "an opaque function computes this dim as a whole"
            elif var.name in positional:
                obstacle = "the result depends on the position itself"
            variables.setdefault(
                var.name,
                Variable(
                    name=var.name,
                    kind=var.kind,
                    extent=Extent("out", position, dim, output.steps[dim] if output.steps else 1),
                    reducer=None,
                    obstacle=obstacle,
                    blocks=blocks.get(var.name, ()),
                    is_matched=var.name in matched,
                ),
            )
    joined = _reducers(values)
    for reduction in reductions:
        for number, var in enumerate(reduction.variables):
            binding = variables.get(var.name)
            if binding is not None and binding.kind is VarKind.OUTPUT:
                raise DescriptionError(f"{var.name} is an output variable and a reduction variable at once")
            extent = reduced_extent(reduction, number)
            if binding is not None and binding.extent != extent:
                raise DescriptionError(f"reduction variable {var.name} has two extents")
            # A reducer that joins parts is no use where a part computes something else: a position is counted from the
            # part's beginning, and an opaque function wants the dim whole. So these two come after it, and win.
            reducer, obstacle = joined.get(var.name, (None, "its reduction is not the outermost operation"))
            if var.name in positional:
                reducer, obstacle = None, "the result depends on the position itself"
            if var.name in opaque:
                reducer, obstacle = None, "an opaque function computes this dim as a whole"
            variables[var.name] = Variable(
                name=var.name,
                kind=VarKind.REDUCTION,
                extent=extent,
                reducer=reducer,
                obstacle=obstacle,
                blocks=blocks.get(var.name, ()),
                is_matched=var.name in matched,
            )
    order = {name: number for number, name in enumerate(variables)}
    reads = [
        read for root in values for read in _reads(root, tuple(name for name, v in variables.items() if v.reducer))
    ]
    return Analysis(
        variables=tuple(variables.values()),
        outputs=tuple(
            tuple(order[var.name] for var in output.variables) if is_present else None
            for output, is_present in zip(outputs, present, strict=True)
        ),
        reads=tuple(dict.fromkeys(reads)),
        is_elementwise=not (reductions or opaque or positional or matched) and _is_elementwise(outputs, present),
        is_opaque=any(isinstance(value, OpaqueResult) for root in values for value in subvalues(root)),
        work=work_of(values),
        linearity=linearity(values),
        steps=tuple(output.steps if is_present else () for output, is_present in zip(outputs, present, strict=True)),
        product=product_of(values),
    )


def _variable_blocks(values: list[Value]) -> dict[str, tuple[int, ...]]:
    blocks_by_name: dict[str, set[int]] = {}
    for root in values:
        for value in subvalues(root):
            for index in value.indices if isinstance(value, Access | OpaqueResult) else ():
                for name, block in divided_blocks(index):
                    blocks_by_name.setdefault(name, set()).add(block)
    return {name: tuple(sorted(blocks)) for name, blocks in blocks_by_name.items()}


def _terms(value: Value) -> list[Value]:
    """The terms of a sum, without constant factors: what a partial sum may be taken of."""
    match value:
        case Apply("+" | "-", arguments):
            return [term for argument in arguments for term in _terms(argument)]
        case Apply("*", (Number(), inner)) | Apply("*", (inner, Number())) | Apply("/", (inner, Number())):
            return _terms(inner)
        case Number(0.0):
            return []
    return [value]


def _outer_reductions(value: Value, reducer: Reducer) -> tuple[dict[str, Reducer], Value]:
    """The variables of nested reductions at the top of a term, and what is below them."""
    reducers: dict[str, Reducer] = {}
    while isinstance(value, Reduce) and value.reducer is reducer:
        reducers.update({variable.name: reducer for variable in value.variables})
        value = value.body
        if reducer is Reducer.SUM:
            inner = _terms(value)
            if len(inner) == 1:
                value = inner[0]
    return reducers, value


def _reducers(values: list[Value]) -> dict[str, tuple[Reducer | None, str]]:
    """The reducer of each reduction variable that stands at the top of every output."""
    reducers: dict[str, tuple[Reducer | None, str]] = {}
    for reducer in Reducer:
        for root in values:
            terms = _terms(root) if reducer is Reducer.SUM else [root]
            for term in terms:
                outer, below = _outer_reductions(term, reducer)
                hidden = {v.name for value in subvalues(below) if isinstance(value, Reduce) for v in value.variables}
                for name in outer:
                    if name in hidden:
                        reducers[name] = (None, "it is reduced twice")
                    else:
                        reducers.setdefault(name, (reducer, ""))
    for name, (joined_by, _) in list(reducers.items()):
        if not all(_bound_in(root, name) for root in values):
            reducers[name] = (None, "one of the outputs does not reduce over it")
        elif joined_by is not None and not all(_is_outermost(root, name, joined_by) for root in values):
            reducers[name] = (None, "its reduction is not the outermost operation")
    return reducers


def _is_outermost(root: Value, name: str, reducer: Reducer) -> bool:
    """Whether a variable is reduced so at the top of every term that reduces over it."""
    terms = _terms(root) if reducer is Reducer.SUM else [root]
    return all(name in _outer_reductions(term, reducer)[0] for term in terms if _bound_in(term, name))


def _bound_in(value: Value, name: str) -> bool:
    return any(
        isinstance(inner, Reduce) and any(variable.name == name for variable in inner.variables)
        for inner in subvalues(value)
    )


def _reads(root: Value, reducible: tuple[str, ...]) -> list[Read]:
    reads = []
    for term in _terms(root):
        once = tuple(name for name in reducible if not _bound_in(term, name))
        for value in subvalues(term):
            if isinstance(value, Access):
                dims = tuple(interval_of(index) for index in value.indices)
                blocks = tuple(dim_blocks(index) for index in value.indices)
                reads.append(Read(value.slot, dims, once, blocks))
    return reads


def interval_of(index: Index) -> Interval | None:
    """The symbolic interval of an index while its variables run over their ranges; None: all of the dim."""
    match index:
        case Var(name):
            return Interval.variable(name)
        case Number(value):
            return Interval.constant(Fraction(value))
        case Plus(left, right):
            first, second = interval_of(left), interval_of(right)
            return None if first is None or second is None else first + second
        case Times(inner, factor):
            interval = interval_of(inner)
            return None if interval is None else interval.scale(factor)
        case FloorDiv(inner, divisor):
            interval = interval_of(inner)
            return None if interval is None else interval.floor_div(divisor)
        case Mod(inner, divisor):
            interval = interval_of(inner)
            return None if interval is None else interval.mod(divisor)
        case Whole() | At():
            return None


def _is_elementwise(outputs: tuple[Output, ...], present: tuple[bool, ...]) -> bool:
    for output, is_present in zip(outputs, present, strict=True):
        for value in subvalues(output.value) if is_present else ():
            if not isinstance(value, Access):
                continue
            aligned = output.variables[len(output.variables) - len(value.indices) :]
            if len(value.indices) > len(output.variables):
                return False
            for index, variable in zip(value.indices, aligned, strict=True):
                if index not in (variable, Number(Fraction(0))):
                    return False
    return True
