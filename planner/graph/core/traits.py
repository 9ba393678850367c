"""Traits of ONNX's operators on elements, stated once, for rooms that know no descriptions: the reader, training, a
run.

Where an op is described, its description is asked instead (``planner.tdl.analyse``); a test holds these tables against
the descriptions, so that a described operator is missing in none of them. Names are of ONNX's own domain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


def named(names: str) -> frozenset[str]:
    """The operators of these names, with blanks between them."""
    return frozenset(names.split())


# each element of a result is a function of the operands' elements at its own index -----------------------------------

LOGIC: Final = named("And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Not Or Xor")
COMPARISONS: Final = named("Equal Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual")
ARITHMETIC: Final = named(
    "Abs Add BitShift Ceil Clip Div Erf Exp Floor Log Max Mean Min Mod Mul Neg Pow Reciprocal Round Sign Sqrt Sub "
    "Sum Where"
)
ANGLES: Final = named("Acos Acosh Asin Asinh Atan Atanh Cos Cosh Sin Sinh Tan")
ACTIVATIONS: Final = named(
    "Celu Elu Gelu HardSigmoid HardSwish LeakyRelu Mish PRelu Relu Selu Shrink Sigmoid Softplus Softsign SwiGLU "
    "Swish Tanh ThresholdedRelu"
)
COPYING: Final = frozenset(("Cast", "CastLike", "Identity"))
"""The same numbers, perhaps in another dtype."""
ELEMENT_WISE: Final = LOGIC | COMPARISONS | ARITHMETIC | ANGLES | ACTIVATIONS | COPYING | {"BitCast"}
BROADCASTING: Final = named(
    "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean "
    "Min Mod Mul Or Pow Sub Sum Where Xor"
)
"""Those of them all of whose operands broadcast against each other."""

# elements of an operand are moved, and not changed -------------------------------------------------------------------

RESHAPES: Final = frozenset(("Flatten", "Reshape", "Squeeze", "Unsqueeze"))
"""The elements of the first operand in their order, in another shape."""
VIEWS: Final = RESHAPES | {"Expand", "Identity", "Transpose"}
"""What may be read in place: it only lays elements out anew."""
REARRANGING: Final = RESHAPES | {"DepthToSpace", "ReverseSequence", "SpaceToDepth", "Transpose"}
"""Each element of the first operand once."""
REPEATING: Final = frozenset(("Expand", "Tile"))
SLICING: Final = frozenset(("Slice", "Split"))
"""Some of the elements of the first operand, in their order."""
LOOKUPS: Final = frozenset(("Compress", "Gather", "GatherElements", "GatherND"))
"""Elements of the first operand that another operand says the places of."""
MOVING: Final = REARRANGING | REPEATING | SLICING | {"Pad", "Trilu"}
"""Elements of the first operand, wherever they are; beside them nothing but a fill."""
ALONG_AXIS: Final[Mapping[str, int]] = MappingProxyType(
    {"Concat": 0, "Hardmax": -1, "LogSoftmax": -1, "Softmax": -1, "Split": 0}
)
"""The default of ``axis``, of operators that do the same at each index of all other dims."""
SCATTERS: Final = frozenset(("ScatterElements", "ScatterND"))
GENERATING: Final = named("Concat ConstantOfShape Expand Pad Range Tile")
"""More elements are made than are read."""

# elements are summed up ----------------------------------------------------------------------------------------------

SUMS: Final = named("Add Mean Sub Sum")
"""Operands are added or subtracted. ``Mean`` divides the sum by how many there are."""
MATRIX_PRODUCTS: Final = frozenset(("Gemm", "MatMul"))
PRODUCTS: Final = MATRIX_PRODUCTS | {"Einsum"}
CONVOLUTIONS: Final = frozenset(("Conv", "ConvTranspose"))
NORMS: Final = named("BatchNormalization GroupNormalization InstanceNormalization LayerNormalization")
STATISTICS: Final[Mapping[str, Mapping[int, int]]] = MappingProxyType({"BatchNormalization": {1: 3, 2: 4}})
"""Outputs that are the next values of running statistics, each with the slot of the value before. An op updates them
if its attribute ``training_mode`` is 1: ``running = momentum * running + (1 - momentum) * batch``."""
REDUCTIONS: Final = named(
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
)
"""Of dims that an attribute or an operand names, to one number."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A recurrent operator's cell."""

    gates: int
    activations: tuple[str, ...]
    """Of each direction, where none are stated."""


RECURRENT: Final[Mapping[str, Cell]] = MappingProxyType(
    {
        "GRU": Cell(3, ("Sigmoid", "Tanh")),
        "LSTM": Cell(4, ("Sigmoid", "Tanh", "Tanh")),
        "RNN": Cell(1, ("Tanh",)),
    }
)

# the rest ------------------------------------------------------------------------------------------------------------

RANDOM: Final = named("Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike")
"""Other numbers in every run."""
DRAWING: Final = RANDOM | {"Dropout"}
"""Random ones, and Dropout, which draws in training mode alone; see ``attributes.draws``."""
SEQUENCES: Final = named(
    "ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength "
    "SplitToSequence"
)
"""Operators on sequences that can be told in tensors, where the elements are known."""
LOOPS: Final = frozenset(("Loop", "Scan"))
CONTROL_FLOW: Final = LOOPS | {"If"}
"""Operators that can be executed whole, graphs and all, where the shapes of their outputs are static."""


CARRIED: Final[Mapping[str, slice]] = MappingProxyType(
    {
        **dict.fromkeys(MOVING | LOOKUPS | COPYING, slice(1)),
        **dict.fromkeys(SCATTERS | {"Pad"}, slice(0, 3, 2)),
        "Concat": slice(None),
        "Where": slice(1, 3),
    }
)
"""The operands whose elements an operator's results are, unchanged but for their dtype."""


def carried(op_type: str, operands: int) -> tuple[int, ...]:
    """Positions of the operands whose elements an op's results are, unchanged but for their dtype; () for others.

    Args:
        op_type: of ONNX's own domain.
        operands: how many the op has.
    """
    return tuple(range(operands)[CARRIED.get(op_type, slice(0))])
