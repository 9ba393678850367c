"""Writing descriptions as Python functions (Tofu, section 4.1 and figure 3).

A description is a function from a node and its input tensors to one lambda for each output::

    @op("Conv")
    def conv(node, X, W, B=None):
        return lambda b, co, *y: Sum(lambda ci, *k: X[b, ci, ...] * W[co, ci, *k], count=len(y))

``lambda *b, m, n: ...`` is how a description covers every rank: the starred name stands for as many variables
as the output has dims left. Variables of the same name in several outputs are the same variable.

Ranks, attributes and constant inputs are known while the function runs; sizes stay symbolic unless asked for
(``node.size``), which makes them part of the op's signature.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import index
from typing import Any, Final, TypeAlias

from planner.errors import DescriptionError
from planner.graph.core.attributes import label
from planner.graph.core.model import DType, Implied
from planner.tdl.expr import Number, Output, Var
from planner.tdl.local import LocalRule, NotLocalError
from planner.tdl.node_view import Derivation as Derivation
from planner.tdl.node_view import NodeView as NodeView
from planner.tdl.terms import STEPS, body_value, variable_names
from planner.tdl.terms import Ix as Ix
from planner.tdl.terms import Max as Max
from planner.tdl.terms import Min as Min
from planner.tdl.terms import Opaque as Opaque
from planner.tdl.terms import Prod as Prod
from planner.tdl.terms import Sum as Sum
from planner.tdl.terms import TensorArg as TensorArg
from planner.tdl.terms import Val as Val
from planner.tdl.terms import at as at
from planner.tdl.terms import call as call
from planner.tdl.terms import match as match
from planner.tdl.terms import over as over

MISFITS: Final = (AttributeError, IndexError, KeyError, TypeError, ValueError, ZeroDivisionError)
"""What Python raises of a function that is given an op of ranks or attributes that it does not expect."""

DescriptionFunction: TypeAlias = Callable[..., Any]
AlwaysLocal: TypeAlias = Callable[[NodeView], bool]
"""Of a node, whether the local rule has a local op for every part, so that the search need not try any."""
ResultsFunction: TypeAlias = Callable[[NodeView], Sequence[Implied | None]]
"""From an op to the shape and dtype of each output that it may have, in order; None where they are not known."""
ReferenceFunction: TypeAlias = Callable[..., Any]
"""From the op and its inputs, as arrays of which floating-point ones are float64, to the output or a tuple of them."""


@dataclass(frozen=True, slots=True)
class Description:
    """An op type's meaning, and how its local op is built where that is not plain."""

    op_types: tuple[str, ...]
    function: DescriptionFunction
    domain: str = ""
    local: LocalRule | None = None
    """None: the local op is the same op on smaller tensors."""
    reference: ReferenceFunction | None = None
    """The operator in NumPy, to verify runs by; None where nobody wrote it."""
    shape_only: tuple[int, ...] = ()
    """Inputs of which nothing but the shape matters: nothing of them is brought to a worker."""
    always_local: AlwaysLocal | None = None
    """None: the local rule may refuse parts."""
    results: ResultsFunction | None = None
    """Shapes and dtypes of the outputs, which ONNX does not know; None: what the index variables imply."""

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """(domain, op type) of each operator."""
        return tuple((self.domain, name) for name in self.op_types)

    @property
    def is_shipped(self) -> bool:
        """True if tofu brings it; else it is of a user's file."""
        return self.function.__module__.startswith("planner.")

    def trace(self, node: NodeView) -> tuple[Output, ...]:
        """Runs the description for one op.

        Raises:
            DescriptionError: naming the op, or a user's description's line; also where the op does not fit.
        """
        arguments = [
            None if shape is None else TensorArg(slot, len(shape)) for slot, shape in enumerate(node.input_shapes)
        ]
        with self.blamed(node):
            returned = self.function(node, *arguments)
            lambdas = returned if isinstance(returned, tuple) else (returned,)
            return tuple(self._output(node, position, body) for position, body in enumerate(lambdas))

    def stated_results(self, node: NodeView) -> tuple[Implied | None, ...]:
        """The shape and dtype of each output of an op, in order, as ``results`` states them.

        Raises:
            DescriptionError: as ``trace``; also where ``results`` returns something else.
        """
        assert self.results is not None, "implied_shapes serves a description without it"
        with self.blamed(node):
            returned = self.results(node)
            try:
                return (*map(_implied, returned), *(None,) * len(node.op.outputs))[: len(node.op.outputs)]
            except (TypeError, ValueError) as error:
                raise DescriptionError(
                    f"results= returns {returned!r}, not (shape, dtype) of each output",
                    hint="for example results=lambda node: [(node.input_shape(0), node.input_dtype(0))]",
                ) from error

    @contextmanager
    def blamed(self, node: NodeView) -> Iterator[None]:
        """Makes errors of the description's code, which runs inside, name the op, or the line of the user's file.

        Raises:
            DescriptionError: for an error of that kind, and for each exception of a user's code; of a shipped
                description's only for ``MISFITS``, since others are bugs.
        """
        try:
            yield
        except Exception as error:
            expected = (DescriptionError, *MISFITS) if self.is_shipped else Exception
            if isinstance(error, NotLocalError) or not isinstance(error, expected):
                raise
            what = error.what if isinstance(error, DescriptionError) else f"{type(error).__name__}: {error}"
            hint = getattr(error, "hint", "")
            if not self.is_shipped and "None" in what and not hint:
                hint = f"node.attribute(name) is None where the op lacks it; it has {list(dict(node.op.attributes))}"
            where = self._label(node, error)
            raise DescriptionError(f"{where}: {what}", facts=getattr(error, "facts", ()), hint=hint) from error

    def _output(self, node: NodeView, position: int, body: Callable[..., Val | float]) -> Output:
        present = position < len(node.output_shapes) and node.output_shapes[position] is not None
        if not present:
            return Output((), Number(0.0))
        variables = tuple(Var(name) for name in variable_names(body, node.output_rank(position)))
        by_name = getattr(body, STEPS, {})
        steps = tuple(by_name.get(variable.name, 1) for variable in variables) if by_name else ()
        return Output(variables, body_value(body, variables), steps)

    def _label(self, node: NodeView, error: BaseException) -> str:
        """The op, for a misfit of a description of our own is the model's; of a user's, its line."""
        if self.is_shipped:
            return label(node.op)
        file = inspect.getfile(self.function)
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        line = frames[-1].lineno if frames else self.function.__code__.co_firstlineno
        return f"description of {node.op.op_type} (op {node.op.name}), {file}:{line}"


def _implied(result: Any) -> Implied | None:
    """A shape and a dtype as ``results`` returns them; TypeError or ValueError for anything else."""
    if result is None:
        return None
    shape, dtype = result
    if any(index(size) < 0 for size in shape):
        raise ValueError("a negative size")
    return tuple(map(index, shape)), dtype and DType(dtype)


def op(
    *op_types: str,
    domain: str = "",
    local: LocalRule | None = None,
    reference: ReferenceFunction | None = None,
    shape_only: tuple[int, ...] = (),
    always_local: AlwaysLocal | None = None,
    results: ResultsFunction | None = None,
) -> Callable[[DescriptionFunction], Description]:
    """Turns a function into the description of these op types.

    Args:
        op_types: ONNX operator names that share the description.
        domain: the operators' domain; "" is ONNX's default one.
        local: builds the local op where it is not the same op with the same attributes.
        reference: the operator in NumPy, ``reference(op, *inputs)``, by which `tofu run --verify` judges runs.
        shape_only: inputs of which nothing but the shape matters; the local rule does without them.
        always_local: says of a node that ``local`` refuses no part of it, so that the search need not try any.
        results: of an operator that ONNX does not define, shapes and dtypes of the outputs, where they do not follow
            from index variables that stand alone as the index of an input's dim.
    """

    def wrap(function: DescriptionFunction) -> Description:
        return Description(op_types, function, domain, local, reference, shape_only, always_local, results)

    return wrap
