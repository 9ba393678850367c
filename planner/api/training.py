"""``tofu grad``: from a model to its training graph."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from planner.api.arguments import takes
from planner.api.door import held_against_file
from planner.api.made_of import note_made_of
from planner.errors import UsageError
from planner.graph.core.model import Role
from planner.graph.files.data_folder import data_folder_of, note_data_folder, without_data_folder
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.values import values_of
from planner.options.training import GradOptions
from planner.results import GradResult, InputRow, ParameterRow
from planner.runtime.judge.door import DoorVerdict
from planner.runtime.values.results import write_bytes
from planner.training.doors.make import make, make_training_info, settings_of, update_of
from planner.training.doors.read import file_of
from planner.training.meanings import meanings
from planner.whole import try_file


@takes(GradOptions)
def grad(options: GradOptions) -> GradResult:  # noqa: D417 - those are the fields of the options
    """Builds the training graph of a model and writes it.

    Args:
        model: an ONNX file: a forward model, a graph of gradients, a model with training information; or a folder of
            artifacts of onnxruntime-training.
        loss: name of the loss, or ``output:NAME``; None for a model that has its gradients already.
        optimizer: name of the optimizer; None where the model says it.
        lr: learning rate; the default of the training graph's input.
        momentum: of the momentum optimizers.
        betas: of Adam and AdamW.
        epsilon: of Adagrad, Adam and AdamW.
        decay_factor: of Adagrad.
        weight_decay: of any optimizer.
        group: learning rates and weight decays of some parameters, each as ``head.*:lr=0.1x,decay=0``.
        train: patterns of names of a forward model's constants that are trained, whatever is inferred.
        freeze: patterns of names of those that stay as they are.
        params: patterns of names of inputs that are weights, beside those whose names and defaults say so.
        clip_norm: what the global norm of gradients is clipped to.
        accumulate: micro-batches to a step.
        loss_scale: a number, or ``dynamic``.
        class_weights: of losses by labels.
        ignore_index: the label that counts for nothing.
        class_axis: the dim of the output that holds the classes, negative from the end; None: by the ops that make it.
        shift: whether the labels are the tokens themselves, one position on.
        tokens: the input of tokens, for ``shift``.
        loss_input: the output that the loss looks at.
        precision: what the model computes in.
        gradients: a file of pairs of parameter and gradient.
        state: a file of pairs of state and next state, of a flat step; None: as the model says, or inferred.
        form: ``onnx``: the whole step in standard operators; ``training-info``: ONNX's own training format.
        batch: another batch size than the file's.
        batchnorm: ``train`` (statistics of the batch) or ``frozen``.
        dropout: ``train`` or ``off``; None: as the model has it.
        dim: sizes of symbolic dims.
        value: by input, the number that it becomes, or numbers with commas between them.
        output: where to write; MODEL.train.onnx in the working directory if None.
        verify: hold the model as read against what the stock runtime makes of its file, on data that is drawn.
        progress: told what is being done.

    Raises:
        TofuError: the model cannot be read or trained, is something else than its file says, or the output is the model
            itself or cannot be written.

    Example:
        ::

            planner.grad("mlp.onnx", loss="mse", optimizer="sgd", dim={"batch": 64}, output="train.onnx")
    """
    path, progress = options.model, options.progress
    output = options.output or Path(f"{path.stem}.train.onnx")
    read = [path, *sorted(path.iterdir())] if path.is_dir() else [path]
    if output.resolve() in {path.resolve() for path in read}:
        raise UsageError(f"{output}: is the model that is read, and would be overwritten", hint="write -o another file")
    progress(f"reading {path}")
    update_of(options)  # what excludes each other is refused before the model is read
    try_file(output)
    door: DoorVerdict | None = None
    if options.verify:
        progress(f"comparing the model as read with {path}")
        door = held_against_file(path, options.dim, options.values)
        if (difference := door.error()) is not None:
            raise difference
    progress("building the training graph")
    if options.form == "training-info":
        training, proto = make_training_info(path, options, options.batch)
    else:
        training, proto = make(path, options, options.batch), None
    graph = training.graph
    progress(f"writing {output}")
    # A note of where external data lie is relative to the file that holds it: the new file gets one of its own.
    data_folder = data_folder_of(graph, file_of(path))
    if proto is None:
        proto = to_model(without_data_folder(graph))
    note_data_folder(proto, data_folder, output.parent)
    note_made_of(proto, options, output.parent)
    write_bytes(output, proto.SerializeToString(deterministic=True))
    roles = graph.roles
    meaning_of = meanings(graph)
    inputs = tuple(name for name in graph.inputs if roles[name] is Role.DATA)
    return GradResult(
        output=output,
        loss=training.loss,
        optimizer=training.optimizer,
        inputs=inputs,
        results=tuple(name for name in graph.outputs if roles[name] is Role.RESULT),
        states=len(graph.state),
        state_elements=sum(graph.tensors[pair.current].elements for pair in graph.state),
        parameters=tuple(
            ParameterRow(
                param.name, param.shape, math.prod(param.shape), param.verdict.value, param.why, param.evidence
            )
            for param in training.parameters.decisions
        ),
        values=values_of(graph.notes),
        data=tuple(
            InputRow(name, graph.tensors[name].dtype.value, graph.tensors[name].shape, meaning_of.get(name, ""))
            for name in inputs
        ),
        left_out=tuple((tensor.name, tensor.why) for tensor in training.left_out),
        ops_by_type=dict(sorted(Counter(op.op_type for op in graph.ops).items())),
        settings=settings_of(options, training),
        door=door,
        warnings=training.warnings,
    )
