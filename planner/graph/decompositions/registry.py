"""The registry of decompositions: every operator that is rewritten in simpler ones, by what it is rewritten for."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any, TypeAlias

from planner.errors import ModelError
from planner.graph.core.model import Op, qualified

Function: TypeAlias = Callable[[Any, Op], "tuple[str, ...] | None"]
"""Emits what stands for an op through a writer, and names what becomes of each output, in order ("" for one that is
not made). None: this op stays as it is. Raises UnsupportedError for forms that it does not take."""


class Purpose(enum.Enum):
    """The purpose of a decomposition; the value is the folder or file that has the functions, here or where it says."""

    READING = "reading"
    """ONNX Runtime's composites, before a plan is made. Writer: ``FormWriter``."""
    RANDOM = "random"
    """Random operators as functions of an element's index, before a plan is made. Writer: ``Draw``."""
    PARTS = "parts"
    """Composites in ops whose partial results can be joined, where a plan is better so. Writer: ``Emitter``."""
    WHOLE = "whole"
    """Composites that are planned whole, for a gradient and as a float64 reference. Writer: ``Emitter``."""
    GRADIENT = "gradient"
    """Composites in operators that have gradient rules, where PARTS has none that serves. Writer: ``Builder``."""
    UPDATE = "update"
    """Optimizers of ai.onnx.preview.training, which no runtime executes, when a model is read. Writer: ``Builder``."""
    ARTIFACTS = "planner.training.doors.microsoft"
    """Operators of onnxruntime-training, when its artifacts are read. Writer: ``doors.rewriting.Rewriting``."""
    CPU = "cpu"
    """Operators whose kernel for CPUs is slow (``is_better``). Writer: ``Emitter``."""
    CUDA = "cuda"
    """Operators that CUDA has no kernel for, or a slow one (``is_better``). Writer: ``Emitter``."""


@dataclass(frozen=True, slots=True)
class Decomposition:
    """The decomposition of some operators for one purpose."""

    purpose: Purpose
    names: tuple[str, ...]
    """Op types, with their domains where that is not ONNX's own."""
    function: Function
    is_better: bool
    """Whether it is taken wherever it can be: the operator's kernel does no more than its parts one after another."""

    def __call__(self, writer: Any, op: Op) -> tuple[str, ...] | None:
        """Emits what stands for an op, see ``Function``."""
        return self.function(writer, op)

    def of_foreign(self, writer: Any, op: Op) -> tuple[str, ...] | None:
        """Emits what stands for an op that ONNX has no schema of: the function finds out that a node is not one.

        Raises:
            ModelError: the node has not the inputs or attributes of the operator.
        """
        try:
            return self.function(writer, op)
        except (AssertionError, IndexError, KeyError, ValueError) as error:
            raise ModelError("its inputs or attributes are not those of the operator") from error

    @property
    def text(self) -> str:
        """The computation, in words: the first paragraph of the function's docstring."""
        return " ".join((self.function.__doc__ or "").partition("\n\n")[0].split())


def stands_for(*names: str, purpose: Purpose, is_better: bool = False) -> Callable[[Function], Decomposition]:
    """Makes a function the decomposition of some operators.

    Args:
        names: op types, with their domains where that is not ONNX's own: ``com.microsoft.Attention``.
        purpose: what they are rewritten for; the function's module is where that is looked for.
        is_better: see ``Decomposition``.
    """
    return lambda function: Decomposition(purpose, names, function, is_better)


@cache
def decompositions(purpose: Purpose) -> Mapping[str, Decomposition]:
    """All of a purpose, by op type, with its domain where that is not ONNX's own.

    The modules are imported at the first call: a plan that takes no gradient reads none of those for gradients.

    Raises:
        AssertionError: an operator has two for one purpose.
    """
    by_type: dict[str, Decomposition] = {}
    for module in _modules(purpose.value if "." in purpose.value else f"{__package__}.{purpose.value}"):
        for rule in vars(import_module(module)).values():
            if isinstance(rule, Decomposition) and rule.purpose is purpose:
                for name in rule.names:
                    assert by_type.setdefault(name, rule) is rule, f"{name} has two decompositions for {purpose.value}"
    return MappingProxyType(dict(sorted(by_type.items())))


def decomposition(purpose: Purpose, op: Op) -> Decomposition | None:
    """The decomposition of an op of this type; None if there is none."""
    return decompositions(purpose).get(qualified(op.domain, op.op_type))


def gradient_form(op_type: str) -> Decomposition | None:
    """The decomposition by which a gradient passes an operator of ONNX's domain; None if there is none.

    The bodies in parts serve, too. Attention's does not: a gradient would pass the maximum of its softmax, where the
    function body that ONNX defines has Softmax, which has a rule.
    """
    in_parts = None if op_type == "Attention" else decompositions(Purpose.PARTS).get(op_type)
    return decompositions(Purpose.GRADIENT).get(op_type, in_parts)


def _modules(name: str) -> list[str]:
    """A module, or all those of a package."""
    paths = getattr(import_module(name), "__path__", None)
    return [name] if paths is None else [f"{name}.{file.name}" for file in iter_modules(paths)]
