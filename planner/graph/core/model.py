"""The inner form of a model: ops and tensors, every shape and dtype static.

Whatever door a model came through, it ends here: a graph whose inputs are data and state, and whose outputs
are results and next state. Nothing in this file knows ONNX's protobufs; ``from_onnx.py`` and ``to_onnx.py``
translate. As grammar::

    graph  ::= tensor* op* input* output* constant* state*    ops in an executable order
    tensor ::= name shape dtype                               every size is a number
    op     ::= name op_type input* output* attribute* domain  inputs and outputs name tensors; "" is absent
    state  ::= current following                              an input, and the output that replaces it

The role of a tensor follows from its place: data, state, next state, result, constant, activation. A product and its
ReLU:

    >>> import onnx.parser
    >>> from planner import opdefs
    >>> from planner.graph.reading.from_onnx import graph_from_proto
    >>> model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ... half (float[8,6] x, float[6,4] w) => (float[8,4] y) { h = MatMul(x, w)  y = Relu(h) }''')
    >>> graph = graph_from_proto(model, operators=opdefs.standard())
    >>> [(op.name, op.inputs, op.outputs) for op in graph.ops]
    [('MatMul.h', ('x', 'w'), ('h',)), ('Relu.y', ('h',), ('y',))]
    >>> {name: role.value for name, role in graph.roles.items()}
    {'x': 'data', 'w': 'data', 'h': 'activation', 'y': 'result'}
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

import ml_dtypes
import numpy as np

from planner.algebra.lane import Lane
from planner.errors import UnsupportedError

Shape: TypeAlias = tuple[int, ...]


class DType(enum.Enum):
    """Element types that a plan can hold; the value is the name that NumPy and ml_dtypes use."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    BOOL = "bool"
    FLOAT8E4M3FN = "float8_e4m3fn"
    FLOAT8E4M3FNUZ = "float8_e4m3fnuz"
    FLOAT8E5M2 = "float8_e5m2"
    FLOAT8E5M2FNUZ = "float8_e5m2fnuz"
    FLOAT8E8M0 = "float8_e8m0fnu"
    INT4 = "int4"
    UINT4 = "uint4"
    INT2 = "int2"
    UINT2 = "uint2"

    def __init__(self, name: str) -> None:
        self.array_dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name, name))
        """The NumPy dtype of its arrays: ml_dtypes' where NumPy has none."""
        self.item_bytes = self.array_dtype.itemsize
        """Bytes of one element, wherever tofu holds or moves it: integers of 2 and 4 bits take a byte each."""

    @property
    def is_float(self) -> bool:
        return "float" in self.value

    @property
    def is_half(self) -> bool:
        """Whether it is a float of 16 bits."""
        return self in (DType.FLOAT16, DType.BFLOAT16)

    @property
    def carrier(self) -> DType:
        """The dtype that holds its elements between segments: itself, or bytes for what ONNX packs into parts of one.

        So a tile may begin anywhere. A segment casts what it reads, and what it makes.
        """
        return _CARRIERS.get(self, self)


_CARRIERS = {DType.INT4: DType.INT8, DType.UINT4: DType.UINT8, DType.INT2: DType.INT8, DType.UINT2: DType.UINT8}


ELEM_TYPES: Mapping[DType, int] = {
    DType.FLOAT32: 1, DType.UINT8: 2, DType.INT8: 3, DType.UINT16: 4, DType.INT16: 5, DType.INT32: 6, DType.INT64: 7,
    DType.BOOL: 9, DType.FLOAT16: 10, DType.FLOAT64: 11, DType.UINT32: 12, DType.UINT64: 13, DType.BFLOAT16: 16,
    DType.FLOAT8E4M3FN: 17, DType.FLOAT8E4M3FNUZ: 18, DType.FLOAT8E5M2: 19, DType.FLOAT8E5M2FNUZ: 20, DType.UINT4: 21,
    DType.INT4: 22, DType.FLOAT8E8M0: 24, DType.UINT2: 25, DType.INT2: 26,
}  # fmt: skip
"""What Cast's ``to`` calls each dtype (``TensorProto.DataType``), for those who do without the onnx package."""


def dtype_of_array(array: np.ndarray) -> DType:
    """The DType of an array's elements.

    Raises:
        UnsupportedError: a plan cannot hold such elements.
    """
    try:
        return DType(array.dtype.name)
    except ValueError:
        raise UnsupportedError(f"arrays of {array.dtype.name} are not supported") from None


class Role(enum.Enum):
    """The role of a tensor in the training step."""

    DATA = "data"
    """A graph input that is not state: a batch, labels, a learning rate."""
    STATE = "state"
    """A graph input that comes back as a next state: a weight, a momentum, a running mean."""
    NEXT_STATE = "next state"
    """The graph output that replaces a state."""
    RESULT = "result"
    """A graph output that is not a next state: the loss, the logits."""
    CONSTANT = "constant"
    """An initializer that is not state; known everywhere, so never moved."""
    ACTIVATION = "activation"
    """Everything else: made by one op, read by others (gradients too)."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A symbolic value. The memory that holds one is an array or a buffer, never a tensor."""

    told: ClassVar = "dtype shape"

    name: str
    shape: Shape
    """Size of every dim; () for a scalar."""
    dtype: DType

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def kind(self) -> tuple[Shape, DType]:
        """Equal for tensors of which one may stand in the place of the other: shape and dtype."""
        return self.shape, self.dtype

    @property
    def is_number(self) -> bool:
        """Whether it is one number in floating point: a loss, say."""
        return self.elements == 1 and self.dtype.is_float

    @property
    def size_bytes(self) -> int:
        return self.elements * self.dtype.item_bytes


Implied: TypeAlias = tuple[Shape, DType | None]
"""What an op's description says of an output: shape and dtype; None for the dtype of the op's first input."""


@dataclass(frozen=True, slots=True, eq=False)
class TensorAttribute:
    """A tensor-valued attribute (ConstantOfShape's ``value``), compared by content."""

    array: np.ndarray

    def _key(self) -> tuple[str, Shape, bytes]:
        return (str(self.array.dtype), self.array.shape, self.array.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorAttribute) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True, slots=True)
class GraphAttribute:
    """A graph-valued attribute (a branch of If). What it reads from around the op are the op's last inputs."""

    content: bytes
    """As ``planner.graph.core.subgraph`` writes it."""
    captured: int
    """How many of the op's inputs, the last ones, are read by its graphs alone; the same for all graphs of an op."""


Attribute: TypeAlias = (
    int | float | str | TensorAttribute | GraphAttribute | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
)


_NO_NAMES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Op:
    """One operator application of the graph."""

    name: str
    """Unique in the graph; given by the reader where the file had none or a duplicate."""
    op_type: str
    """ONNX operator name, e.g. ``Conv``."""
    inputs: tuple[str, ...]
    """Tensor names by position; "" where an optional input is absent."""
    outputs: tuple[str, ...]
    """Tensor names by position; "" where an optional output is absent."""
    attributes: tuple[tuple[str, Attribute], ...] = ()
    """Sorted by name. Only what the file states; defaults are the operator's."""
    domain: str = ""
    """Operator domain; "" is ONNX's default one."""

    @property
    def has_graphs(self) -> bool:
        """True of control flow: a graph is among the attributes."""
        return any(isinstance(value, GraphAttribute) for _, value in self.attributes)

    def slots(self, name: str) -> tuple[int, ...]:
        """The positions at which the op reads a tensor."""
        return tuple(slot for slot, operand in enumerate(self.inputs) if operand == name)

    def has_input(self, position: int) -> bool:
        """Whether an optional input is there."""
        return position < len(self.inputs) and bool(self.inputs[position])

    def attribute(self, name: str, default: Attribute | None = None) -> Attribute | None:
        """The attribute's value, or ``default`` if the op does not state it."""
        for key, value in self.attributes:
            if key == name:
                return value
        return default

    def with_attributes(self, **attributes: Attribute) -> Op:
        """The op with these attributes in the place of its own of their names."""
        return replace(self, attributes=tuple(sorted({**dict(self.attributes), **attributes}.items())))

    def renamed(self, names: Mapping[str, str], reads: Mapping[str, str] = _NO_NAMES) -> Op:
        """The op with other names of tensors: ``names`` wherever they stand, ``reads`` where they are read."""
        return replace(
            self,
            inputs=tuple(names.get(name) or reads.get(name, name) for name in self.inputs),
            outputs=tuple(names.get(name, name) for name in self.outputs),
        )


class Typed(Protocol):
    """An op, or a node of ONNX, where the default domain has two names."""

    @property
    def op_type(self) -> str: ...
    @property
    def domain(self) -> str: ...


_Typed = TypeVar("_Typed", bound=Typed)


def of_types(op: _Typed | None, op_types: Collection[str]) -> _Typed | None:
    """An op, if it is of one of these types of ONNX's own domain, or none is named; else None."""
    return op if not op_types or (op is not None and op.domain in ("", "ai.onnx") and op.op_type in op_types) else None


@dataclass(frozen=True, slots=True)
class StatePair:
    """A state and the output that replaces it after the step; equal shape and dtype."""

    current: str
    following: str


@dataclass(frozen=True)
class Graph:
    """A static dataflow graph in execution order.

    Invariants (checked by ``planner.graph.core.check``): every tensor that an op reads is an input, a constant or made
    by an earlier op; each tensor is made once; every name in ``inputs``, ``outputs``, ``constants`` is in ``tensors``.
    """

    name: str
    tensors: Mapping[str, Tensor]
    ops: tuple[Op, ...]
    inputs: tuple[str, ...]
    """Data and state, in the order of the file."""
    outputs: tuple[str, ...]
    """Results and next states, in the order of the file."""
    constants: Mapping[str, np.ndarray | None]
    """Initializers that are not state; None where the value is external and was not loaded."""
    folded: frozenset[str] = frozenset()
    """Constants that the file computes (numbers of Constant nodes, folded shape arithmetic): never parameters."""
    initial: Mapping[str, np.ndarray | None] = field(default_factory=dict)
    """Values that the file gives for inputs (the state before the first step); None: external, not loaded."""
    state: tuple[StatePair, ...] = ()
    opset: int = 21
    """Version of the default operator domain."""
    domains: Mapping[str, int] = field(default_factory=dict)
    """Versions of the other operator domains that the file imports."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """By op that computes again what another op has computed, that op (``planner.graph.rewriting.recomputation``)."""
    lanes: Mapping[str, Lane] = field(default_factory=dict)
    """By op that is one of equal ops beside each other, which of these may have owners, which of them it is
    (``planner.graph.rewriting.lanes``)."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Metadata to be carried into files; keys begin with ``tofu.``."""

    @cached_property
    def producer(self) -> Mapping[str, Op]:
        """The op that makes each tensor; inputs and constants have none."""
        return {name: op for op in self.ops for name in op.outputs if name}

    def made_by(self, name: str, *op_types: str) -> Op | None:
        """The op of one of these types of ONNX's own (any, without types) that makes a tensor; None if no such does."""
        return of_types(self.producer.get(name), op_types)

    def ops_of(self, *op_types: str) -> tuple[Op, ...]:
        """The ops of these types of ONNX's own, in execution order."""
        return tuple(op for op in self.ops if of_types(op, op_types))

    @cached_property
    def consumers(self) -> Mapping[str, tuple[Op, ...]]:
        """The ops that read each tensor, in execution order, each op once; () where none does."""
        readers: dict[str, list[Op]] = {name: [] for name in self.tensors}
        for op in self.ops:
            for name in dict.fromkeys(op.inputs):
                if name:
                    readers[name].append(op)
        return {name: tuple(ops) for name, ops in readers.items()}

    @cached_property
    def used(self) -> frozenset[str]:
        """The tensors that ops read or the graph gives back."""
        return frozenset(itertools.chain(self.outputs, *(op.inputs for op in self.ops)))

    @cached_property
    def roles(self) -> Mapping[str, Role]:
        """The role of every tensor."""
        roles = dict.fromkeys(self.tensors, Role.ACTIVATION)
        roles.update(dict.fromkeys(self.constants, Role.CONSTANT))
        roles.update(dict.fromkeys(self.inputs, Role.DATA))
        roles.update(dict.fromkeys(self.outputs, Role.RESULT))
        for pair in self.state:
            roles[pair.current] = Role.STATE
            roles[pair.following] = Role.NEXT_STATE
        return roles


def lanes_of_tensors(graph: Graph) -> dict[str, Lane]:
    """The lane of each tensor that one of equal ops beside each other makes or reads.

    What no such op makes is for a lane if all that read it are of that lane.
    """
    lanes: dict[str, Lane] = {}
    for op in graph.ops if graph.lanes else ():
        lane = graph.lanes.get(op.name)
        if lane is None:
            continue
        lanes.update(dict.fromkeys(filter(None, op.outputs), lane))
        for name in op.inputs:
            if not name or name in lanes or name in graph.constants:
                continue
            if {graph.lanes.get(reader.name) for reader in graph.consumers[name]} == {lane}:
                lanes[name] = lane
    return lanes


def is_used(graph: Graph, tensor: str) -> bool:
    """True if anybody reads the tensor; what nobody reads (a LayerNormalization's mean) is never brought anywhere."""
    return tensor in graph.used


def qualified(domain: str, op_type: str) -> str:
    """An operator's name: ``Conv``, or ``my.domain.MyConv``."""
    return f"{domain}.{op_type}" if domain else op_type
