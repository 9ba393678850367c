"""Ops that work element by element."""

from __future__ import annotations

from functools import reduce
from types import MappingProxyType
from typing import Final

import numpy as np

from planner.features.export.emitters.registry import Emitter, Form, emitter, is_exported
from planner.graph.files.protos import dtype_of

_CALLED: Final = MappingProxyType(
    {
        "Abs": "jnp.abs", "Acos": "jnp.arccos", "Asin": "jnp.arcsin", "Atan": "jnp.arctan", "Ceil": "jnp.ceil",
        "Cos": "jnp.cos", "Cosh": "jnp.cosh", "Erf": "lax.erf", "Exp": "jnp.exp", "Floor": "jnp.floor",
        "IsNaN": "jnp.isnan", "Log": "jnp.log", "Relu": "jax.nn.relu", "Round": "jnp.round",
        "Sigmoid": "jax.nn.sigmoid",
        "Sign": "jnp.sign", "Sin": "jnp.sin", "Sinh": "jnp.sinh", "Softplus": "jax.nn.softplus",
        "Softsign": "jax.nn.soft_sign", "Sqrt": "jnp.sqrt", "Tan": "jnp.tan", "Tanh": "jnp.tanh",
        "And": "jnp.logical_and", "Or": "jnp.logical_or", "Xor": "jnp.logical_xor", "Not": "jnp.logical_not",
        "BitwiseAnd": "jnp.bitwise_and", "BitwiseOr": "jnp.bitwise_or", "BitwiseXor": "jnp.bitwise_xor",
        "BitwiseNot": "jnp.bitwise_not", "Where": "jnp.where",
    }
)  # fmt: skip
_WRITTEN: Final = MappingProxyType(
    {
        "Add": "{0} + {1}", "Sub": "{0} - {1}", "Mul": "{0} * {1}", "Neg": "-{0}", "Reciprocal": "1 / {0}",
        "Equal": "{0} == {1}", "Greater": "{0} > {1}", "GreaterOrEqual": "{0} >= {1}", "Less": "{0} < {1}",
        "LessOrEqual": "{0} <= {1}", "Identity": "{0}", "CastLike": "{0}.astype({1}.dtype)",
    }
)  # fmt: skip


def _operands(form: Form) -> list[str]:
    return [form[position] for position in range(len(form.operands))]


def _call(function: str) -> Emitter:
    return lambda form: f"{function}({', '.join(_operands(form))})"


def _write(pattern: str) -> Emitter:
    return lambda form: pattern.format(*_operands(form))


for _op_type, _function in _CALLED.items():
    emitter(_op_type)(_call(_function))
for _op_type, _pattern in _WRITTEN.items():
    emitter(_op_type)(_write(_pattern))


def _is_integer(form: Form) -> bool:
    """Whether an op works on integers: its output says it, or, of one that is not an op's, a constant beside it."""
    dtype = form.dtypes[0] if form.dtypes else None
    if dtype is not None:
        return not dtype.is_float
    constants = [operand.constant for operand in form.operands if operand is not None and operand.constant is not None]
    return any(np.issubdtype(array.dtype, np.integer) for array in constants)


@emitter("Div")
def div(form: Form) -> str:
    """Integers are divided towards zero."""
    return f"lax.div(*jnp.broadcast_arrays({form[0]}, {form[1]}))" if _is_integer(form) else f"{form[0]} / {form[1]}"


@emitter("Pow")
def power(form: Form) -> str:
    """The result has the dtype of the base."""
    exponent = form.operands[1]
    assert exponent is not None, "Pow has an exponent"
    if exponent.constant is not None and exponent.constant.ndim == 0 and float(exponent.constant) == 2.0:
        form.read.add(1)
        return f"jnp.square({form[0]})"
    return f"jnp.power({form[0]}, {form[1]}).astype({form[0]}.dtype)"


@emitter("Mod")
def mod(form: Form) -> str:
    """With the sign of the divisor, or as C's fmod."""
    return f"{'jnp.fmod' if form.integer('fmod') else 'jnp.mod'}({form[0]}, {form[1]})"


@emitter("BitShift")
def shifted(form: Form) -> str:
    """Left or right; unsigned."""
    function = "left_shift" if form.attribute("direction") == "LEFT" else "right_shift"
    return f"jnp.{function}({form[0]}, {form[1]})"


@emitter("Max", "Min")
def extreme(form: Form) -> str:
    """The largest or smallest of any number of inputs."""
    function = f"jnp.{form.node.op_type.lower()}imum"
    return reduce(lambda text, operand: f"{function}({text}, {operand})", _operands(form))


emitter("Sum")(lambda form: " + ".join(_operands(form)))
emitter("Mean")(lambda form: f"({' + '.join(_operands(form))}) / {len(form.operands)}")


@emitter("Clip")
def clip(form: Form) -> str:
    """Between two bounds, inputs or (before opset 11) attributes."""
    bounds = [form[position] if form.has(position) else "None" for position in (1, 2)]
    for number, name in enumerate(("min", "max")):
        if form.attribute(name) is not None:
            bounds[number] = repr(form.number(name, 0.0))
    return f"jnp.clip({form[0]}, {', '.join(bounds)})"


@emitter("Cast")
def cast(form: Form) -> str:
    """To another dtype."""
    dtype = dtype_of(form.integer("to"))
    form.read.update(("saturate", "round_mode"))  # of narrow floats, which are refused
    if dtype is None or not is_exported(dtype):
        raise form.refuse("a dtype that JAX does not have")
    return f"{form[0]}.astype(jnp.{'bool_' if dtype.value == 'bool' else dtype.value})"


@emitter("Gelu")
def gelu(form: Form) -> str:
    """Exact, or by tanh."""
    return f"jax.nn.gelu({form[0]}, approximate={form.attribute('approximate', 'none') == 'tanh'})"


@emitter("LeakyRelu")
def leaky_relu(form: Form) -> str:
    """With a slope below zero."""
    return f"jax.nn.leaky_relu({form[0]}, {form.number('alpha', 0.01)!r})"


@emitter("Elu")
def elu(form: Form) -> str:
    """Exponential below zero."""
    return f"jax.nn.elu({form[0]}, {form.number('alpha', 1.0)!r})"


@emitter("HardSigmoid")
def hard_sigmoid(form: Form) -> str:
    """A line, clipped to 0 and 1."""
    return f"jnp.clip({form.number('alpha', 0.2)!r} * {form[0]} + {form.number('beta', 0.5)!r}, 0, 1)"


@emitter("PRelu")
def prelu(form: Form) -> str:
    """With slopes that are learned."""
    return f"jnp.where({form[0]} < 0, {form[1]} * {form[0]}, {form[0]})"
