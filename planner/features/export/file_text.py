"""The file of a plan's step in JAX, for a person to read: mesh, layouts, a function for each form of op, the step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

import numpy as np

from planner.algebra.tiling import Tiling, cuts_along, pieces
from planner.features.export.calls import Calls
from planner.features.export.emitters import InexpressibleError
from planner.features.export.helpers import HELPERS
from planner.features.export.names import safe_text, some
from planner.features.export.op_text import OpText, OpWriter
from planner.features.export.source import Source
from planner.graph.core.dependence import leading_to
from planner.graph.core.model import DType, Role, Shape

_BY_HELPER = MappingProxyType({"only": ("mine",), "join": ("mine",)})
"""What helpers call."""


@dataclass(frozen=True)
class JaxStep:
    """A step in JAX."""

    text: str
    """Of the file."""
    constants: Mapping[str, np.ndarray]
    """What the file loads from beside it; empty if nothing."""
    functions: int
    """How many functions it has for ops."""
    blocks: int
    """How many for runs of ops that there are several times."""
    ops: int
    predicted_bytes: int
    """What the plan moves."""
    moved_bytes: int
    """What the file's collectives move."""
    padded: tuple[str, ...]
    """Inputs and outputs whose parts are not of one shape, and are laid out in parts that are."""
    padding_bytes: int
    """What their filling takes on all devices together."""
    notes: tuple[str, ...]
    """What the file does in another way than the plan says."""


class UnwrittenError(Exception):
    """The part of a plan that cannot be written in JAX: all findings."""

    def __init__(self, findings: Sequence[str]) -> None:
        super().__init__(findings)
        self.findings = tuple(findings)


def jax_step(source: Source, constants_file: str) -> JaxStep:
    """Writes a plan's step in JAX.

    Args:
        source: the plan.
        constants_file: how the ending of the file for constants is called, as in ``.npz``.

    Raises:
        UnwrittenError: parts of it cannot be expressed.
    """
    graph, plan = source.graph, source.plan
    writer = OpWriter(graph, plan)
    needed = leading_to(graph, graph.outputs)
    findings: dict[str, list[str]] = {}
    written: list[OpText] = []
    notes = []
    for described in source.ops:
        if not needed.intersection(described.op.outputs):
            continue
        try:
            written.append(writer.written(described, needed))
        except InexpressibleError as error:
            findings.setdefault(str(error), []).append(described.op.name)
    if findings:
        raise UnwrittenError([f"{why} ({some(names)})" for why, names in findings.items()])
    stepped = [name for name, strategy in plan.strategies.items() if strategy.steps is not None]
    if stepped:
        notes.append(f"ops that the plan runs in steps run at once, which takes more memory: {some(stepped)}")
    predicted = sum(op.predicted_bytes for op in written)
    assert predicted == plan.moved_bytes, f"{predicted} bytes are counted, the plan says {plan.moved_bytes}"
    layout = _Layout(source)
    calls = Calls(graph, written)
    used = {helper for op in written for helper in op.helpers}
    used |= {dependency for helper in used for dependency in _BY_HELPER.get(helper, ())}
    body = "\n\n\n".join(
        [
            *(HELPERS[name].strip() for name in HELPERS if name in used),
            *calls.functions,
            calls.step,
        ]
    )
    # A form may take a constant's value and never its name: the file holds those that the text reads.
    constants = {name: value for name, value in writer.large.items() if f"CONSTANTS[{name!r}]" in body}
    moved = sum(op.moved_bytes for op in written)
    head = _head(source, predicted, moved, notes, bool(constants), constants_file)
    text = "\n\n\n".join([f"{head}\n\n{layout.text}", body, layout.entry()]) + "\n"
    return JaxStep(
        text=text,
        constants=constants,
        functions=calls.op_functions,
        blocks=calls.blocks,
        ops=len(written),
        predicted_bytes=predicted,
        moved_bytes=moved,
        padded=layout.padded_names,
        padding_bytes=_padding_bytes(source, layout.padded_names),
        notes=tuple(notes),
    )


def _padding_bytes(source: Source, names: Iterable[str]) -> int:
    """What parts that are filled up to the longest take beyond their own elements."""
    total = 0
    for name in names:
        tensor = source.graph.tensors[name]
        sizes = [region.shape for region in source.plan.tilings[name].boxes(tensor.shape)]
        longest = prod(max(extents) for extents in zip(*sizes, strict=True))
        total += sum(longest - prod(size) for size in sizes) * tensor.dtype.item_bytes
    return total


def _head(
    source: Source,
    predicted: int,
    moved: int,
    notes: Sequence[str],
    has_constants: bool,
    constants_file: str,
) -> str:
    plan = source.plan
    wide = any(tensor.dtype in (DType.INT64, DType.UINT64, DType.FLOAT64) for tensor in source.graph.tensors.values())
    lines = [
        f'"""A training step of {safe_text(plan.model)} on {plan.workers} devices, as tofu planned it.',
        "",
        f"Moves {predicted:,} bytes between devices in an iteration by the plan, {moved:,} as it is written here.",
        *(f"Note: {note}." for note in notes),
        "",
        "    state, data = put(STATE, arrays), put(DATA, arrays)   # whole arrays by name",
        "    state, results = step(state, data)",
        '    loss = whole("loss", results["loss"])                # in NumPy\'s form',
        '"""',
        "",
        "import jax",
        "import jax.numpy as jnp",
        "from jax import lax",
        "from jax.sharding import NamedSharding, PartitionSpec as P",
        "",
    ]
    lines = [line.replace("= put(", "= placed(").replace(", put(", ", placed(") for line in lines]
    if wide:
        lines += ['jax.config.update("jax_enable_x64", True)  # the model has 64-bit numbers', ""]
    names = ", ".join(f'"c{cut}"' for cut in range(len(plan.cuts)))
    comma = "," if len(plan.cuts) == 1 else ""
    lines += [
        "# An axis of the mesh for each cut of the plan, the outermost first.",
        f"AXES = ({names}{comma})",
        f"MESH = jax.make_mesh({plan.cuts}, AXES, (jax.sharding.AxisType.Auto,) * {len(plan.cuts)}, "
        f"devices=jax.devices()[:{plan.workers}])",
    ]
    if has_constants:
        lines += [
            "# Constants that are too large to stand here.",
            f'CONSTANTS = jnp.load(__file__.removesuffix(".py") + "{constants_file}")',
        ]
    return "\n".join(lines)


class _Layout:
    """The layout of inputs and outputs on the mesh."""

    def __init__(self, source: Source) -> None:
        graph, plan = source.graph, source.plan
        self._graph = graph
        names = dict.fromkeys((*graph.inputs, *graph.outputs))
        self._specs = {name: spec_of(plan.tilings[name]) for name in names if name not in graph.constants}
        self.parts = {name: parts_of(plan.tilings[name], graph.tensors[name].shape) for name in self._specs}
        self.padded_names = tuple(name for name, parts in self.parts.items() if parts)
        self._nexts = {pair.current: pair.following for pair in graph.state}
        self._data = [name for name in graph.inputs if graph.roles[name] is Role.DATA]
        self._states = source.parts_of([name for name in graph.inputs if graph.roles[name] is Role.STATE])
        self._shapes = {name: graph.tensors[name].shape for name in self._specs}
        self._joined: dict[str, dict[str, object]] = {}
        for name, parts in (self._states | source.parts_of(list(self._nexts.values()))).items():
            if parts != [name]:
                self._specs[name] = f"({', '.join(str(self._specs[part]) for part in parts)})"
                self._shapes[name] = source.boxes[parts[-1]][1].hi
                self._joined[name] = {part: source.boxes[part][1].ends for part in parts}
        following = frozenset(self._nexts.values())
        self._results = [name for name in dict.fromkeys(graph.outputs) if name not in following]

    @property
    def text(self) -> str:
        lines = ["# How each input and output is divided."]
        for title, names in (("STATE", self._states), ("DATA", self._data), ("RESULTS", self._results)):
            lines.append(f"{title} = {{")
            lines += [f"    {name!a}: {self._specs[name]},  # {list(self._shapes[name])}" for name in names]
            lines.append("}")
        lines.append("# Dims whose parts differ: each part, from and to. A device's array is as long as the longest.")
        lines.append("PARTS = {")
        lines += [f"    {name!a}: {self.parts[name]}," for name in self.padded_names]
        lines.append("}")
        lines += ["# What the step has by its parts, and which box of it each is: from and to.", "JOINED = {"]
        lines += [*(f"    {name!a}: {boxes!a}," for name, boxes in self._joined.items()), "}"]
        return "\n".join(lines)

    def entry(self) -> str:
        """The step on whole arrays."""
        graph = self._graph

        def as_it_is(text: str, name: str, shape: str) -> str:
            """A scalar that only some devices have is a dim of the mesh outside of the step."""
            is_spread = name in self.padded_names and not graph.tensors[name].shape
            return f"{text}.reshape({shape})" if is_spread else text

        arguments = [
            as_it_is(f"state[{name!a}]{f'[{number}]' if name in self._joined else ''}", part, "()")
            for name, parts in self._states.items()
            for number, part in enumerate(parts)
        ]
        arguments += [as_it_is(f"data[{name!a}]", name, "()") for name in self._data]

        def result_of(name: str) -> str:
            return as_it_is(f"named[{name!a}]", name, "1")

        following = {
            name: ", ".join(result_of(self._nexts[part]) for part in parts) for name, parts in self._states.items()
        }
        nexts = ", ".join(f"{n!a}: {f'({parts})' if n in self._joined else parts}" for n, parts in following.items())

        # check_vma=False: to JAX the results of a switch or a gather differ between devices, also where P() is right.
        return f'''
def local_step(state, data):
    """One iteration, as each device sees it: its own parts."""
    named = on_device(
{_arguments(arguments)}    )
    state = {{{nexts}}}
    return state, {{{", ".join(f"{name!a}: {result_of(name)}" for name in self._results)}}}


step = jax.jit(
    jax.shard_map(local_step, mesh=MESH, in_specs=(STATE, DATA), out_specs=(STATE, RESULTS), check_vma=False)
)


def placed(layout, arrays):
    """Whole arrays by name, laid out on the mesh."""
    return {{name: on_mesh(name, arrays[name], layout[name]) for name in layout}}


def on_mesh(name, array, spec):
    """A whole array, laid out on the mesh; or its parts."""
    if name in JOINED:
        arrays = (array[tuple(map(slice, *box))] for box in JOINED[name].values())
        return tuple(map(on_mesh, JOINED[name], arrays, spec))
    return jax.device_put(spread(name, array), NamedSharding(MESH, spec))


def spread(name, array):
    """An array whose parts all are as long as the longest; others end in zeros."""
    array = jnp.asarray(array)
    for dim, bounds in PARTS.get(name, {{}}).items():
        array = array if array.ndim else array.reshape(1)
        longest = max(end - start for start, end in bounds)
        pads = [[(0, 0)] * array.ndim for _ in bounds]
        for pad, (start, end) in zip(pads, bounds):
            pad[dim] = (0, longest - end + start)
        parts = [lax.slice_in_dim(array, start, end, axis=dim) for start, end in bounds]
        array = jnp.concatenate([jnp.pad(part, pad) for part, pad in zip(parts, pads)], axis=dim)
    return array


def whole(name, array):
    """What ``spread`` has made, as it was."""
    if name in JOINED:
        parts = list(map(whole, JOINED[name], array))
        made = jnp.zeros([*JOINED[name].values()][-1][1], parts[0].dtype)
        for box, part in zip(JOINED[name].values(), parts):
            made = made.at[tuple(map(slice, *box))].set(part)
        return made
    for dim, bounds in PARTS.get(name, {{}}).items():
        longest = array.shape[dim] // len(bounds)
        parts = [
            lax.slice_in_dim(array, number * longest, number * longest + end - start, axis=dim)
            for number, (start, end) in enumerate(bounds)
        ]
        array = jnp.concatenate(parts, axis=dim)
    return array
'''.strip()


def _arguments(texts: Sequence[str]) -> str:
    return "".join(f"        {text},\n" for text in texts)


def spec_of(tiling: Tiling) -> str:
    """A tiling as a PartitionSpec: by dim the axes that divide it, in the order in which they do."""
    along = {dim: cuts for dim, cuts, _ in cuts_along(tiling)}
    dims = []
    for dim in range(max(along, default=-1) + 1):
        names = [f'"c{cut}"' for cut in along.get(dim, ())]
        dims.append("None" if not names else names[0] if len(names) == 1 else f"({', '.join(names)})")
    return f"P({', '.join(dims)})"


def parts_of(tiling: Tiling, shape: Shape) -> dict[int, tuple[tuple[int, int], ...]]:
    """The start and end of each part, by dim, of the dims whose parts differ in length."""
    bounds = {}
    for dim, _, how in cuts_along(tiling):
        starts, ends = pieces((shape or (1,))[dim], how)
        if len(set((ends - starts).tolist())) > 1:
            bounds[dim] = tuple(zip(starts.tolist(), ends.tolist(), strict=True))
    return bounds
