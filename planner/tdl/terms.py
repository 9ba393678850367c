"""Terms of descriptions: index expressions, values, reads of tensors, reducers and opaque functions.

Each is a term of the language (``planner.tdl.expr``) under construction: Python's operators and subscripts put it
together, and refuse what the language has no form for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from planner.algebra.tiling import Reducer
from planner.errors import DescriptionError
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
    Plus,
    Reduce,
    Times,
    Value,
    Var,
    VarKind,
    Whole,
)


class RankError(DescriptionError):
    """The number of index variables, or of an input's indices, is that of another rank."""


class Ix:
    """An index expression under construction; arithmetic stays affine or is refused."""

    __slots__ = ("tree",)
    __hash__ = None  # type: ignore[assignment]  # an index is not a key: comparing two is an error

    def __init__(self, tree: Index) -> None:
        self.tree = tree

    def __add__(self, term: Ix | int | Fraction) -> Ix:
        return Ix(Plus(self.tree, _index(term)))

    __radd__ = __add__

    def __neg__(self) -> Ix:
        return Ix(Times(self.tree, Fraction(-1)))

    def __sub__(self, term: Ix | int) -> Ix:
        return self + (-term)

    def __rsub__(self, term: int) -> Ix:
        return -self + term

    def __mul__(self, factor: int | Fraction | Ix) -> Ix:
        if isinstance(factor, Ix):
            raise DescriptionError("the product of two index variables is not affine")
        return self if factor == 1 else Ix(Times(self.tree, Fraction(factor)))

    __rmul__ = __mul__

    def __truediv__(self, divisor: int | Fraction | Ix) -> Ix:
        if isinstance(divisor, Ix):
            raise DescriptionError("an index variable cannot be divided by another: that is not affine")
        return Ix(Times(self.tree, 1 / Fraction(divisor)))

    def __floordiv__(self, divisor: int) -> Ix:
        return self if _divisor(divisor) == 1 else Ix(FloorDiv(self.tree, divisor))

    def __mod__(self, divisor: int) -> Ix:
        return Ix(Mod(self.tree, _divisor(divisor)))

    def _refuse(self, operand: object) -> bool:
        raise DescriptionError("index variables cannot be compared")

    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __eq__ = __ne__ = _refuse


def _divisor(value: object) -> int:
    if not isinstance(value, int) or value <= 0:
        raise DescriptionError("an index can be divided by a positive integer only")
    return value


def _index(value: Ix | int | Fraction | slice | At) -> Index:
    match value:
        case Ix():
            return value.tree
        case int() | Fraction():
            return Number(Fraction(value))
        case slice(start=None, stop=None, step=None):
            return Whole()
        case At():
            return value
    raise DescriptionError(f"{value!r} is not an index: use index variables, integers, ':' or at(tensor[...])")


class Val:
    """A value under construction."""

    __slots__ = ("tree",)

    def __init__(self, tree: Value) -> None:
        self.tree = tree

    def __add__(self, operand: Val | float) -> Val:
        return call("+", self, operand)

    def __radd__(self, operand: float) -> Val:
        return call("+", operand, self)

    def __sub__(self, operand: Val | float) -> Val:
        return call("-", self, operand)

    def __rsub__(self, operand: float) -> Val:
        return call("-", operand, self)

    def __mul__(self, operand: Val | float) -> Val:
        return call("*", self, operand)

    def __rmul__(self, operand: float) -> Val:
        return call("*", operand, self)

    def __truediv__(self, operand: Val | float) -> Val:
        return call("/", self, operand)

    def __neg__(self) -> Val:
        return call("-", 0.0, self)


def _value(value: Val | float | Ix) -> Value:
    match value:
        case Val():
            return value.tree
        case Ix():
            return IndexValue(value.tree)
        case int() | float():
            return Number(float(value))
    raise DescriptionError(f"{value!r} is not a value")


def call(function: str, *arguments: Val | float | Ix) -> Val:
    """A function of values, element by element: ``call("Exp", X[i])``."""
    return Val(Apply(function, tuple(_value(argument) for argument in arguments)))


class TensorArg:
    """An input of the op: index it to read an element, with ``:`` to read a slice, with ``...`` to read all of it."""

    __slots__ = ("fill", "rank", "slot")

    def __init__(self, slot: int, rank: int, fill: float | None = None) -> None:
        self.slot = slot
        self.rank = rank
        self.fill = fill

    def padded(self, fill: float) -> TensorArg:
        """The same tensor, surrounded by ``fill``."""
        return TensorArg(self.slot, self.rank, fill)

    def __getitem__(self, key: object) -> Val:
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) == 1 and keys[0] is ...:
            keys = (slice(None),) * self.rank
        if len(keys) != self.rank:
            raise RankError(f"input {self.slot} has rank {self.rank} and is read with {len(keys)} indices")
        return Val(Access(self.slot, tuple(_index(part) for part in keys), self.fill))

    def scalar(self) -> Val:
        """The value of a tensor of rank 0."""
        return self[()]


def at(value: Val) -> At:
    """An index that the data decides: ``X[at(I[i]), j]``."""
    if not isinstance(value.tree, Access):
        raise DescriptionError("at(...) takes an element of a tensor")
    return At(value.tree)


def match(element: Val, index: Ix | int) -> Val:
    """A value: 1 where an element of a tensor is the index, else 0.

    ``Sum(lambda v: X[v, d] * match(I[i], v))`` looks up ``X[I[i], d]``.
    """
    if not isinstance(element.tree, Access):
        raise DescriptionError("match(...) takes an element of a tensor, and an index")
    return Val(Match(element.tree, _index(index)))


@dataclass(frozen=True, slots=True)
class _ReducerFunction:
    """Sum, Max, Min or Prod over the variables of a lambda."""

    reducer: Reducer

    def __call__(
        self, body: Callable[..., Val | float], *, extents: Sequence[int] | None = None, count: int | None = None
    ) -> Val:
        """Reduces ``body`` over its variables.

        Args:
            body: a lambda whose parameters are the reduction variables.
            extents: how far each variable runs, where no tensor is indexed by it alone.
            count: how many variables a starred parameter stands for.
        """
        total = len(extents) if extents is not None else count
        names = variable_names(body, total)
        variables = tuple(Var(name, VarKind.REDUCTION) for name in names)
        if extents is not None and len(extents) != len(names):
            raise DescriptionError(f"{len(names)} reduction variables and {len(extents)} extents")
        inner = body_value(body, variables)
        return Val(Reduce(self.reducer, variables, inner, tuple(extents) if extents else None) if variables else inner)


STEPS = "steps"
"""The attribute of a lambda that says by how many elements the dims of its variables go."""


def over(
    names: Sequence[str], body: Callable[..., Val | float], *, steps: Mapping[str, int] | None = None
) -> Callable[..., Val | float]:
    """A lambda whose index variables are named by a list, for outputs that share some of their variables.

    ``over(("b", "i1"), lambda *v: X[*v])`` is ``lambda b, i1: X[b, i1]``.

    Args:
        names: of the index variables.
        body: the lambda.
        steps: by variable, how many elements of its dim go with each value of it: heads of 64 elements that lie side
            by side in one dim are numbered by a variable with the step 64, as another output's dim of heads is.
    """

    def named(*variables: Ix) -> Val | float:
        return body(*variables)

    plain = inspect.Parameter.POSITIONAL_OR_KEYWORD
    setattr(named, STEPS, dict(steps or {}))
    named.__signature__ = inspect.Signature([inspect.Parameter(name, plain) for name in names])  # type: ignore[attr-defined]
    return named


Sum = _ReducerFunction(Reducer.SUM)
Max = _ReducerFunction(Reducer.MAX)
Min = _ReducerFunction(Reducer.MIN)
Prod = _ReducerFunction(Reducer.PROD)


@dataclass(frozen=True, slots=True)
class Opaque:
    """A function that the language does not look into (Tofu, section 4.1): the dims of its result stay whole.

    ``Opaque("Cholesky")(M[b, :, :])[i, j]``: element (i, j) of the Cholesky factor of the b-th matrix.
    """

    name: str
    takes: tuple[Val, ...] = ()
    """What computing it takes, where that is more than a function of each element that it reads or makes: values with
    as many functions and sums. ``Sum(lambda j, k: M[b, i, j] * M[b, j, k])`` says that it is like a product."""

    def __call__(self, *arguments: Val) -> _OpaqueCall:
        return _OpaqueCall(self.name, tuple(map(_value, arguments)), tuple(map(_value, self.takes)))


@dataclass(frozen=True, slots=True)
class _OpaqueCall:
    name: str
    arguments: tuple[Value, ...]
    takes: tuple[Value, ...]

    def __getitem__(self, key: object) -> Val:
        keys = key if isinstance(key, tuple) else (key,)
        return Val(OpaqueResult(self.name, self.arguments, tuple(_index(part) for part in keys), self.takes))


def variable_names(function: Callable[..., object], total: int | None) -> tuple[str, ...]:
    """The index variables that a lambda's parameters stand for.

    Args:
        function: its plain, starred and keyword-only parameters are index variables, in that order.
        total: how many there are in all; needed where a parameter is starred.

    Raises:
        DescriptionError: the count does not fit.
    """
    before, after, star = [], [], None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            star = parameter.name
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            after.append(parameter.name)
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            raise DescriptionError("a description's lambda cannot take **keywords")
        else:
            before.append(parameter.name)
    if star is None:
        names = (*before, *after)
        if total is not None and total != len(names):
            raise RankError(f"a lambda of {len(names)} index variables ({', '.join(names)}) where {total} fit")
        return names
    if total is None:
        raise DescriptionError(f"how many index variables *{star} stands for is not said", hint="give count=")
    starred = total - len(before) - len(after)
    if starred < 0:
        raise RankError(f"a lambda of at least {len(before) + len(after)} index variables where {total} fit")
    return (*before, *(f"{star}{position}" for position in range(starred)), *after)


def body_value(function: Callable[..., Val | float], variables: Sequence[Var]) -> Value:
    """The value of a lambda for these index variables, in the order of ``variable_names``."""
    parameters = inspect.signature(function).parameters.values()
    after = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    positional = [Ix(variable) for variable in variables[: len(variables) - len(after)]]
    keywords = {name: Ix(variable) for name, variable in zip(after, variables[len(positional) :], strict=True)}
    return _value(function(*positional, **keywords))
