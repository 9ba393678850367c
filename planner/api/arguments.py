"""Arguments of calls from Python: paths as texts or paths, and values of the kinds that the signatures state.

The command line reads texts, and refuses what is no number or no choice. From Python a wrong value would otherwise be
taken in silence (an effort ``"lazzy"``), or would fail far from where it was given.
"""

from __future__ import annotations

import inspect
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, wraps
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, ParamSpec, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from onnx import ModelProto

from planner.errors import UsageError, did_you_mean
from planner.graph.core.subgraph import is_external

Parameters = ParamSpec("Parameters")
Record = TypeVar("Record")
Result = TypeVar("Result")

_WORDS = {bool: "True or False", int: "a whole number", float: "a number", str: "a text", NoneType: "None"}
_AnyPath: TypeAlias = str | os.PathLike[str]
ACCEPTED: Final = {"Path": _AnyPath, "Model": _AnyPath | ModelProto}
"""By the name of a type of a record or of a parameter, what callers may give: it is made a Path of."""
_KINDS = {int: Integral, float: Real}
"""NumPy's numbers are welcome."""


def bytes_text(amount: str | int | None) -> str | None:
    """An amount of memory as the command line writes it: ``12GiB``; a number is bytes."""
    return amount if amount is None or isinstance(amount, str) else f"{amount}B"


def checked(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Has every argument held against the kind that its parameter states; an option that there is not is named.

    >>> @checked
    ... def paint(colour: Literal["red", "green"]) -> str:
    ...     return colour
    >>> paint("gren")
    Traceback (most recent call last):
    planner.errors.UsageError: paint: colour is 'gren'
      known: green, red
    hint: did you mean 'green'?
    """
    kinds = cache(lambda: get_type_hints(function, localns=ACCEPTED))  # of its first call, when all modules are there
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: Parameters.args, **options: Parameters.kwargs) -> Result:
        with _held_against(kinds(), signature, function.__name__, args, options) as arguments:
            return function(*arguments.args, **arguments.kwargs)

    return call


def takes(
    record: Callable[Parameters, Record], **names: Any
) -> Callable[[Callable[[Record], Result]], Callable[Parameters, Result]]:
    """Gives a function of a dataclass of options its fields for parameters, each held against its type.

    Args:
        record: the dataclass (``planner.options``).
        names: what its types are said with beside, where importing it would be dear.
    """
    kinds = get_type_hints(record, localns=ACCEPTED | names)
    parameters = [field.replace(annotation=kinds[name]) for name, field in inspect.signature(record).parameters.items()]

    def decorate(function: Callable[[Record], Result]) -> Callable[Parameters, Result]:
        signature = inspect.Signature(parameters, return_annotation=get_type_hints(function)["return"])

        @wraps(function)
        def call(*args: Parameters.args, **options: Parameters.kwargs) -> Result:
            with _held_against(kinds, signature, function.__name__, args, options) as arguments:
                return function(record(*arguments.args, **arguments.kwargs))

        call.__signature__ = signature  # type: ignore[attr-defined]  # what help() and editors show
        call.__annotations__ = {**kinds, "return": signature.return_annotation}  # what get_type_hints() tells
        return call

    return decorate


@contextmanager
def _held_against(
    kinds: Mapping[str, Any], signature: inspect.Signature, function: str, args: Any, options: Mapping[str, Any]
) -> Iterator[inspect.BoundArguments]:
    """The arguments of a call, each of the kind that its parameter states; models in memory are files meanwhile."""
    unknown = next((name for name in options if name not in signature.parameters), None)
    if unknown is not None:
        hint = did_you_mean(unknown, signature.parameters) or f"help(planner.api.{function}) tells of all"
        raise UsageError(f"{function}: no such option {unknown!r}", hint=hint)
    binding = signature.bind(*args, **options)
    with ExitStack() as files:
        for name, value in binding.arguments.items():
            if not _fits(value, kinds[name]):
                raise _misfit(f"{function}: {name}", value, kinds[name])
            is_model = isinstance(value, ModelProto)
            binding.arguments[name] = files.enter_context(_written(value)) if is_model else _plain(value, kinds[name])
        yield binding


@contextmanager
def _written(model: ModelProto) -> Iterator[Path]:
    """The file of a model in memory, for as long as the call takes; named as the model's graph is, as plans are.

    Raises:
        UsageError: tensors of the model lie in files, and where these are cannot be told.
    """
    outside = next((tensor.name for tensor in model.graph.initializer if is_external(tensor)), None)
    if outside is not None:
        raise UsageError(
            f"tensor {outside!r} of the model lies in a file beside it",
            hint="give the path of the model; onnx.load(path) reads the data into memory, too",
        )
    name = re.sub(r"[^\w.-]", "_", model.graph.name)[:100].strip(".") or "model"
    with tempfile.TemporaryDirectory(prefix="tofu-") as folder:
        file = Path(folder) / f"{name}.onnx"
        file.write_bytes(model.SerializeToString())
        yield file


def _fits(value: object, kind: Any) -> bool:
    """Whether a value is of a kind that a parameter states."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Callable:
        return callable(value)
    if origin in (Union, UnionType):
        return any(_fits(value, member) for member in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _fits(key, inner[0]) and _fits(entry, inner[1]) for key, entry in value.items()
        )
    if origin is Sequence:
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str)
            and all(_fits(element, inner[0]) for element in value)
        )
    if origin is tuple:
        return isinstance(value, tuple | list) and list(map(_fits, value, inner)) == [True] * len(inner)
    if kind in _KINDS:
        return isinstance(value, _KINDS[kind]) and not isinstance(value, bool)
    return isinstance(value, origin or kind)


def _plain(value: Any, kind: Any) -> Any:
    """A value with a Path for any path of its kind, and Python's numbers in place of NumPy's."""
    if isinstance(value, str | os.PathLike):
        return Path(value) if _has_paths(kind) else value
    if isinstance(value, Real) and not isinstance(value, bool):
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, list | tuple):
        return tuple(_plain(element, kind) for element in value)
    if isinstance(value, Mapping):
        return {key: _plain(entry, None) for key, entry in value.items()}
    return value


def _has_paths(kind: Any) -> bool:
    return get_origin(kind) is os.PathLike or any(map(_has_paths, get_args(kind)))


def _misfit(where: str, value: object, kind: Any) -> UsageError:
    choices = [choice for part in (kind, *get_args(kind)) if get_origin(part) is Literal for choice in get_args(part)]
    shown = repr(value)
    shown = f"{shown[:60]}…" if len(shown) > 60 else shown
    if choices and isinstance(value, str):
        hint = did_you_mean(value, choices)
        return UsageError(f"{where} is {shown}", facts=(f"known: {', '.join(sorted(choices))}",), hint=hint)
    return UsageError(f"{where} is {shown}", hint=f"give {_worded(kind)}")


def _worded(kind: Any) -> str:
    """A kind, in words."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_worded, inner)))
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin is Mapping:
        return f"a mapping from {_worded(inner[0])} to {_worded(inner[1])}"
    if origin is Sequence:
        return f"a list, of each {_worded(inner[0])}"
    if origin is tuple:
        return f"a pair, of {' and '.join(map(_worded, inner))}"
    if origin is os.PathLike:
        return "a path"
    if origin is Iterable:
        return f"one after the other, of each {_worded(inner[0])}"
    if origin is np.ndarray:
        return "an array"
    return _WORDS[kind] if kind in _WORDS else str(getattr(kind, "__name__", kind))
