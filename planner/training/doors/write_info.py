"""ONNX's own training format: ``TrainingInfoProto`` out.

The forward model stays as it is; the algorithm graph holds the loss, one ``Gradient``, and the optimizer's operators of
ai.onnx.preview.training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from onnx import ModelProto, StringStringEntryProto, TrainingInfoProto, helper, numpy_helper

from planner.errors import UnsupportedError
from planner.graph.core.attributes import label
from planner.graph.core.builder import Builder
from planner.graph.core.model import Graph
from planner.graph.core.traits import STATISTICS
from planner.graph.files.protos import op_to_node
from planner.graph.files.to_onnx import to_model, value_info
from planner.options.training import LabelOptions
from planner.training.build import build_training_graph, chosen_output
from planner.training.doors.preview import DOMAIN
from planner.training.parameters.infer import Parameters
from planner.training.update.label_options import settled
from planner.training.update.losses import loss_function
from planner.training.update.optimizers import Hyper

_OPERATORS: Final[Mapping[str, str]] = {
    "adagrad": "Adagrad", "adam": "Adam", "momentum": "Momentum", "nesterov": "Momentum", "sgd": "",
}  # fmt: skip
_MEMORIES: Final[Mapping[str, tuple[str, ...]]] = {
    "adagrad": ("squares",), "adam": ("mean", "squares"), "momentum": ("momentum",), "nesterov": ("momentum",),
    "sgd": (),
}  # fmt: skip


def training_info_model(
    forward: Graph,
    *,
    loss: str,
    optimizer: str,
    learning_rate: float,
    hyper: Hyper,
    output: str | None = None,
    labels: LabelOptions = LabelOptions(),
    parameters: Parameters | None = None,
) -> ModelProto:
    """The forward model with training information.

    T counts updates from 1, so that reading the model back gives the step that ``build_training_graph`` builds.

    Raises:
        UnsupportedError: an optimizer that the domain does not have; a model with running statistics, which the
            inference graph cannot update.
        UsageError, UnsupportedError: see ``build_training_graph``.
    """
    if optimizer not in _OPERATORS:
        raise UnsupportedError(
            f"{DOMAIN} has no operator for {optimizer!r}", facts=(f"it has: {', '.join(_OPERATORS)}",)
        )
    if rates := [group.pattern for group in hyper.groups if group.rate is not None]:
        raise UnsupportedError(f"training information has one learning rate, and group {rates[0]!r} its own")
    norms = forward.ops_of(*STATISTICS)
    if norms:
        raise UnsupportedError(f"{label(norms[0])}: training information cannot say that it normalises by its batch")
    step = build_training_graph(
        forward, loss=loss, optimizer=optimizer, learning_rate=learning_rate, hyper=hyper, output=output,
        labels=labels, parameters=parameters,
    )  # fmt: skip
    trained = [pair.current for pair in step.state if pair.current in forward.constants]
    lossy, value, targets = _with_loss(forward, loss, output, labels)
    model = to_model(forward)
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    info = model.training_info.add()
    forward_names = {op.name for op in forward.ops}
    graph = info.algorithm
    graph.name = "training"
    graph.node.extend(op_to_node(op) for op in lossy.ops if op.name not in forward_names)
    for name, array in lossy.constants.items():
        if name not in forward.constants:
            assert array is not None, "a loss's own constants have values"
            graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
    graph.input.extend(value_info(lossy.tensors[name]) for name in targets)
    graph.input.append(helper.make_tensor_value_info("learning_rate", 1, []))
    graph.initializer.append(numpy_helper.from_array(np.array(learning_rate, np.float32), "learning_rate"))
    graph.output.append(value_info(lossy.tensors[value]))
    gradients = [f"{name}.grad" for name in trained]
    zs = [*forward.inputs, *targets]
    graph.node.append(
        helper.make_node(
            "Gradient", [*trained, *zs], gradients, name="gradient", domain=DOMAIN, xs=trained, zs=zs, y=value
        )
    )
    _optimizer(info, step, trained, optimizer, hyper)
    return model


def _with_loss(
    forward: Graph, loss: str, output: str | None, options: LabelOptions
) -> tuple[Graph, str, tuple[str, ...]]:
    """The forward graph with the loss behind it, the loss's name, and its new inputs."""
    builder = Builder(forward)
    for op in forward.ops:
        builder.replay(op)
    target = chosen_output(forward, loss, output)
    scalar_loss = loss_function(loss)(builder, target, settled(forward, target, loss, options), False)
    value = builder.output(scalar_loss.value, "loss")
    graph = builder.finish(
        inputs=(*forward.inputs, *scalar_loss.targets), outputs=(value, *forward.outputs), state=(), initial={},
        opset=forward.opset, notes={},
    )  # fmt: skip
    return graph, value, tuple(scalar_loss.targets)


def _optimizer(info: TrainingInfoProto, step: Graph, parameters: Sequence[str], optimizer: str, hyper: Hyper) -> None:
    graph = info.algorithm
    bindings = {name: f"{name}.next" for name in parameters}
    if optimizer == "sgd":
        for name in parameters:
            gradient = _decayed(info, name, step, hyper)
            graph.node.append(helper.make_node("Mul", ["learning_rate", gradient], [f"{name}.step"]))
            graph.node.append(helper.make_node("Sub", [name, f"{name}.step"], [f"{name}.next"]))
    else:
        graph.initializer.append(numpy_helper.from_array(np.array(0, np.int64), "updates"))
        graph.initializer.append(numpy_helper.from_array(np.array(1, np.int64), "updates.one"))
        graph.node.append(helper.make_node("Add", ["updates", "updates.one"], ["updates.next"]))
        bindings["updates"] = "updates.next"
        groups: dict[float, list[str]] = {}
        for name in parameters:
            groups.setdefault(hyper.decay_of(name, step.tensors[name].shape), []).append(name)
        for decay, names in groups.items():
            memories = [f"{name}.{memory}" for memory in _MEMORIES[optimizer] for name in names]
            for memory in memories:
                array = np.zeros(step.tensors[memory].shape, step.tensors[memory].dtype.value)
                graph.initializer.append(numpy_helper.from_array(array, memory))
                bindings[memory] = f"{memory}.next"
            # Adagrad counts the updates before this one, Adam this one as well.
            count = "updates" if optimizer == "adagrad" else "updates.next"
            inputs = ["learning_rate", count, *names, *(f"{name}.grad" for name in names), *memories]
            outputs = [f"{name}.next" for name in (*names, *memories)]
            node = helper.make_node(_OPERATORS[optimizer], inputs, outputs, domain=DOMAIN)
            node.attribute.extend(
                helper.make_attribute(key, value) for key, value in _numbers(optimizer, hyper, decay).items()
            )
            graph.node.append(node)
    node_outputs = {name for node in graph.node for name in node.output}
    assert all(following in node_outputs for following in bindings.values()), "every binding is made"
    entries = [StringStringEntryProto(key=key, value=value) for key, value in bindings.items()]
    info.update_binding.extend(entries)


def _decayed(info: TrainingInfoProto, name: str, step: Graph, hyper: Hyper) -> str:
    decay = hyper.decay_of(name, step.tensors[name].shape)
    if not decay:
        return f"{name}.grad"
    graph = info.algorithm
    array = np.array(decay, step.tensors[name].dtype.value)
    graph.initializer.append(numpy_helper.from_array(array, f"{name}.weight_decay"))
    graph.node.append(helper.make_node("Mul", [name, f"{name}.weight_decay"], [f"{name}.decay"]))
    graph.node.append(helper.make_node("Add", [f"{name}.decay", f"{name}.grad"], [f"{name}.regularized"]))
    return f"{name}.regularized"


def _numbers(optimizer: str, hyper: Hyper, decay: float) -> dict[str, float | str]:
    match optimizer:
        case "adam":
            epsilon = 1e-8 if hyper.epsilon is None else hyper.epsilon
            return {"alpha": hyper.beta1, "beta": hyper.beta2, "epsilon": epsilon, "norm_coefficient": decay}
        case "adagrad":
            epsilon = 1e-10 if hyper.epsilon is None else hyper.epsilon
            return {"decay_factor": hyper.decay_factor, "epsilon": epsilon, "norm_coefficient": decay}
        case _:
            mode = "nesterov" if optimizer == "nesterov" else "standard"
            return {"alpha": hyper.momentum, "beta": 1.0, "mode": mode, "norm_coefficient": decay}
