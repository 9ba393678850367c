"""Gradient-only graphs: which gradient belongs to which parameter, and the optimizer that is put behind them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from planner.errors import ModelError, UnsupportedError, UsageError, repeated
from planner.graph.core.builder import Builder
from planner.graph.core.check import check_graph
from planner.graph.core.model import DType, Graph, StatePair
from planner.strict_json import JsonError, parse_json
from planner.training.batch.change import samples_of_inputs
from planner.training.build import INPUTS, sample_of
from planner.training.gradients.older_opsets import OPSET
from planner.training.parameters.infer import is_float_tensor
from planner.training.update.micro_batches import samples_dims, unchanged
from planner.training.update.optimizers import Hyper, optimizer_function
from planner.training.update.updates import Schedule, Updates

_SUFFIXES: Final = (".grad", "_grad", ".gradient", "_gradient")
_PREFIXES: Final = ("grad.", "grad_", "gradient_", "d_")
_LISTED: Final = 5


def infer_pairs(graph: Graph) -> tuple[tuple[str, str], ...]:
    """Parameters and their gradients, by name, or else by shape and order.

    By name: output ``W_grad``, ``W.grad``, ``grad_W`` and the like, for every output that is no scalar. Else gradients
    are taken to be in the order of their parameters, as differentiating a function gives them: output by output, each
    to a later input (or initializer) of its shape and dtype. That must be possible in one way only.

    Raises:
        UsageError: it is possible in no way, or in several; with the candidates of each gradient.
    """
    outputs = [name for name in graph.outputs if graph.tensors[name].shape and graph.tensors[name].dtype.is_float]
    stated = [name for name in graph.constants if name not in graph.folded]
    floats = [name for name in (*graph.inputs, *stated) if is_float_tensor(graph, name)]
    if not outputs:
        raise UsageError("the graph has no output that could be a gradient")
    by_name = [(_named(output, floats), output) for output in outputs]
    if all(parameter for parameter, _ in by_name):
        return tuple(by_name)
    return tuple(zip(_in_order(graph, floats, outputs), outputs, strict=True))


def looks_like_gradients(graph: Graph) -> bool:
    """Whether an output may be a gradient: by its name, or by the shape and dtype of an input or constant."""
    stated = [name for name in graph.constants if name not in graph.folded]
    floats = [name for name in (*graph.inputs, *stated) if is_float_tensor(graph, name)]
    kinds = {graph.tensors[name].kind for name in floats}
    outputs = [graph.tensors[name] for name in graph.outputs]
    return any(out.dtype.is_float and out.shape and (out.kind in kinds or _has_form(out.name)) for out in outputs)


def _has_form(output: str) -> bool:
    """Whether a gradient may be called so."""
    return output.endswith(_SUFFIXES) or output.startswith(_PREFIXES)


def _named(output: str, floats: Sequence[str]) -> str:
    stems = {output.removesuffix(suffix) for suffix in _SUFFIXES if output.endswith(suffix)}
    stems |= {output.removeprefix(prefix) for prefix in _PREFIXES if output.startswith(prefix)}
    return next((name for name in floats if name in stems), "")


def _in_order(graph: Graph, floats: Sequence[str], outputs: Sequence[str]) -> list[str]:
    def fits(output: str, name: str) -> bool:
        return graph.tensors[output].kind == graph.tensors[name].kind

    # The first and the last way to place them, in order; where they agree there is one way only.
    first = _placed(floats, outputs, fits)
    last = _placed(floats[::-1], outputs[::-1], fits)
    if first is None or last is None:
        facts = tuple(_candidates(graph, output, [name for name in floats if fits(output, name)]) for output in outputs)
        raise UsageError(
            "the outputs are not the gradients of the inputs in their order", facts=facts,
            hint="say which belong together with --gradients pairs.yaml",
        )  # fmt: skip
    last.reverse()
    open_outputs = [index for index, pair in enumerate(zip(first, last, strict=True)) if pair[0] != pair[1]]
    if open_outputs:
        facts = tuple(
            _candidates(graph, outputs[index], [name for name in floats if fits(outputs[index], name)])
            for index in open_outputs
        )
        raise UsageError(
            f"which parameters {len(open_outputs)} gradients belong to cannot be told", facts=facts,
            hint="say so with --gradients pairs.yaml",
        )  # fmt: skip
    return first


def _placed(floats: Sequence[str], outputs: Sequence[str], fits: object) -> list[str] | None:
    assert callable(fits), "a predicate"
    placed: list[str] = []
    waiting = list(outputs)
    for name in floats:
        if waiting and fits(waiting[0], name):
            placed.append(name)
            waiting.pop(0)
    return None if waiting else placed


def _candidates(graph: Graph, output: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
    return f"{output!r} {list(graph.tensors[output].shape)}: {shown or 'nothing of its shape'}"


def with_optimizer(
    graph: Graph,
    pairs: Sequence[tuple[str, str]] | None,
    *,
    optimizer: str,
    learning_rate: float,
    hyper: Hyper | None = None,
    schedule: Schedule = Schedule(),
    running: Sequence[StatePair] = (),
) -> Graph:
    """A gradient-only graph with an optimizer's step behind it.

    Args:
        graph: without state; its parameters are inputs or initializers, their gradients outputs.
        pairs: (parameter, gradient); None: inferred, see ``infer_pairs``.
        optimizer: its name, see ``optimizers.OPTIMIZERS``.
        learning_rate: default value of the data input ``learning_rate``.
        hyper: the optimizer's numbers.
        schedule: clipping and accumulation.
        running: running statistics and the outputs that replace them after every step.

    Returns:
        The graph with parameters as state; gradients are outputs no longer.

    Raises:
        UsageError: names that are not there, or that do not fit; a loss scale, for the loss is not ours here.
        UnsupportedError: the graph has state already.
    """
    if graph.state:
        raise UnsupportedError("the graph has state, so it has its updates already", hint="plan it as it is")
    hyper = hyper or Hyper()
    hyper.check()
    schedule.check()
    if schedule.dynamic_scale or schedule.loss_scale is not None:
        raise UsageError("a graph of gradients cannot be given a loss scale: its loss is differentiated already")
    pairs = infer_pairs(graph) if pairs is None else pairs
    _check(graph, pairs)
    builder = Builder(graph)
    for op in graph.ops:
        builder.replay(op)
    rate = builder.declare("learning_rate", (), DType.FLOAT32)
    updates = Updates(builder, graph, optimizer_function(optimizer), hyper, schedule, rate)
    for parameter, gradient in pairs:
        updates.ready(parameter, gradient)
    replaced = {gradient for _, gradient in pairs} | {pair.following for pair in running}
    carried = {pair.current: pair.following for pair in running}
    data = tuple(name for name in graph.inputs if name not in {*carried, *dict(pairs)})
    dims = samples_dims(samples_of_inputs(replace(graph, inputs=data)), {})
    builder, tensor_of = updates.in_micro_batches(dims, graph.outputs, carried)
    results = [name for name in graph.outputs if name in tensor_of and name not in replaced]
    updates.finish()
    trained = {parameter for parameter, _ in updates.parameters}
    held = trained | {pair.current for pair in running}
    initial: dict[str, np.ndarray | None] = {
        **unchanged(graph, builder), rate: np.array(learning_rate, np.float32), **updates.initial,
    }  # fmt: skip
    # Exporters hold parameters as initializers. A state is an input: the initializer becomes its first value.
    for name in sorted(held & graph.constants.keys()):
        initial[name] = graph.constants[name]
        builder.take(name)
    states = [*updates.parameters, *updates.memories]
    state = (
        *(StatePair(current, builder.output(following, f"{current}.next")) for current, following in states), *running,
    )  # fmt: skip
    samples: dict[str, Mapping[str, object]] = {
        **{name: sample_of(graph, name) for name in graph.inputs if name not in held},
        rate: {"value": learning_rate},
        **updates.samples,
    }
    if INPUTS in graph.notes:
        samples.update(_samples(graph.notes[INPUTS]))
    inputs = [name for name in graph.inputs if name not in held]
    result = builder.finish(
        inputs=(*inputs, rate, *(pair.current for pair in state)),
        outputs=(*results, *(pair.following for pair in state)),
        state=state,
        initial=initial,
        opset=max(OPSET, graph.opset),
        notes={**graph.notes, **schedule.notes, INPUTS: json.dumps(samples)},
    )
    check_graph(result)
    return result


def _check(graph: Graph, pairs: Sequence[tuple[str, str]]) -> None:
    facts: list[str] = []
    for parameter, gradient in pairs:
        if parameter not in graph.inputs and parameter not in graph.constants:
            facts.append(f"{parameter!r} is no input and no initializer of the model")
        elif gradient not in graph.outputs:
            facts.append(f"{gradient!r} is no output of the model")
        elif graph.tensors[parameter].shape != graph.tensors[gradient].shape:
            facts.append(
                f"{parameter!r} is {list(graph.tensors[parameter].shape)}, "
                f"but {gradient!r} is {list(graph.tensors[gradient].shape)}"
            )
    for position in (0, 1):
        facts.extend(f"{name!r} is in two pairs" for name in repeated(pair[position] for pair in pairs))
    if facts:
        raise UsageError("these cannot be paired as parameter and gradient", facts=tuple(facts))


def _samples(note: str) -> dict[str, Mapping[str, object]]:
    try:
        return {name: {key: value.value for key, value in rule.members().items()}
                for name, rule in parse_json(note).members().items()}  # fmt: skip
    except JsonError as error:
        raise ModelError(f"metadata {INPUTS!r} cannot be read: {error}") from None
