"""A step of several micro-batches: gradients are made of each in turn, and summed where they lie.

The graph holds forward and backward once for each micro-batch, one after the other, so that the activations of one are
gone when the next begins. A sum stands right behind the gradient that it adds. The optimizer's step comes after them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from planner.errors import UnsupportedError
from planner.graph.core.builder import Builder
from planner.graph.core.dependence import computed_from
from planner.graph.core.model import DType, Graph, Shape
from planner.graph.core.traits import DRAWING
from planner.tdl.flow import Track


def samples_dims(samples: tuple[int, Mapping[str, Track]], targets: Mapping[str, Shape]) -> Mapping[str, int]:
    """The dim along which micro-batches lie one after the other, of each input that has samples.

    Args:
        samples: see ``batch.change.samples_of_inputs``.
        targets: shapes of further inputs, which all have samples: in the dim in which the model's inputs have them, or
            the first that has as many, or dim 0.
    """
    count, tracks = samples
    dims = {name: track.dim for name, track in tracks.items()}
    first = next(iter(dims.values()), 0)
    for name, shape in targets.items():
        fitting = [dim for dim, size in enumerate(shape) if size == count]
        dims[name] = first if first in fitting else next(iter(fitting), 0)
    return dims


def unchanged(graph: Graph, builder: Builder) -> Mapping[str, np.ndarray | None]:
    """The first values of a graph's inputs, but of those that now have the data of several micro-batches."""
    return {name: value for name, value in graph.initial.items() if builder.tensor(name) == graph.tensors[name]}


def repeated(
    source: Builder, batches: int, dims: Mapping[str, int], sums: Mapping[str, DType], carried: Mapping[str, str]
) -> tuple[Builder, Mapping[str, str]]:
    """The ops of a builder for so many micro-batches.

    Args:
        source: has forward and backward of one micro-batch.
        batches: how many.
        dims: see ``samples_dims``; each micro-batch reads its part of these inputs. Other inputs are the same in each.
        sums: tensors that are added up, and in which dtype.
        carried: what a micro-batch reads, by name, and the tensor that the one after it reads in place of that.

    Returns:
        A builder with the ops; and by tensor its sum, or, if it is carried, that of the last micro-batch.

    Raises:
        UnsupportedError: no input has samples.
    """
    if not dims:
        raise UnsupportedError("no input of the model has dims, so there are no micro-batches")
    final = {name: source.rename(name, name) for name in (*sums, *carried.values())}
    inputs = [name for name in source.tensors if name not in source.constants and source.made_by(name) is None]
    outputs = tuple(dict.fromkeys(final.values()))
    step = source.finish(inputs=inputs, outputs=outputs, state=(), initial={}, opset=source.opset, notes={})
    drawn = [name for op in step.ops_of(*DRAWING) for name in op.outputs]
    varying = computed_from(step, (*dims, *carried, *drawn))
    varying_outputs = varying.difference(inputs, carried)
    base = {name: tensor for name, tensor in step.tensors.items() if name not in varying_outputs}
    for name, dim in dims.items():
        base[name] = replace(base[name], shape=Track(dim).resized(base[name].shape, base[name].shape[dim] * batches))
    builder = Builder(replace(step, tensors=base))
    dtypes = {final[name]: dtype for name, dtype in sums.items()}
    totals: dict[str, str] = {}
    lasting = {final[following] for following in carried.values()}
    names = {name: name for name in step.tensors}
    for batch in range(batches):
        suffix = f"micro{batch + 1}"
        if batch:
            names |= {name: names[final[following]] for name, following in carried.items()}
        for name, dim in dims.items():
            starts, ends = [0] * builder.rank(name), list(step.tensors[name].shape)
            starts[dim], ends[dim] = batch * ends[dim], (batch + 1) * ends[dim]
            with builder.scope(f"{name}.{suffix}"):
                names[name] = builder.slice(name, starts, ends)
        for op in step.ops:
            if not varying.isdisjoint(op.outputs):
                for name in filter(None, op.outputs):
                    tensor, is_last = step.tensors[name], name in lasting and batch == batches - 1
                    names[name] = builder.declare(name if is_last else f"{name}.{suffix}", tensor.shape, tensor.dtype)
                builder.replay(replace(op.renamed(names), name=f"{op.name}.{suffix}"))
            elif not batch:
                builder.replay(op)
            for name in filter(dtypes.__contains__, op.outputs):
                with builder.scope(name):
                    part = builder.cast(names[name], dtypes[name])
                    totals[name] = builder.add(totals[name], part, "sum") if batch else part
    for name in [name for name in dtypes if name not in totals]:  # constants
        totals[name] = builder.scale(builder.cast(name, dtypes[name]), batches)
    return builder, {name: totals[last] if name in sums else names[last] for name, last in final.items()}
