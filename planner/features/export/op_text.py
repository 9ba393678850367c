"""The JAX text of an op: what is brought to it, what each worker computes, and how the result comes to where it is
owned.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.algebra.region import Region, index_space
from planner.artifacts.plan import Plan
from planner.features.export.emitters import Form, InexpressibleError, Operand, emitted, is_exported, literal
from planner.features.export.held import Held
from planner.features.export.movement import collectives_between
from planner.features.export.movement_text import Text, array_dtype, written_movement
from planner.features.export.names import inner_name
from planner.graph.core.model import DType, Graph
from planner.graph.rewriting.recomputation import computed_before
from planner.partition.division import Division
from planner.partition.fetches import NOTHING
from planner.partition.ways import Ways
from planner.tdl.bind import BoundOp
from planner.tdl.local import LocalOp


@dataclass(frozen=True)
class OpText:
    """An op as a function."""

    op: str
    op_type: str
    title: str
    """Its type and strategy."""
    parameters: tuple[str, ...]
    """Names in the text."""
    inputs: tuple[str, ...]
    """The tensors that they are."""
    outputs: tuple[str, ...]
    """The tensors that come of it."""
    lines: tuple[str, ...]
    """Statements, without indentation."""
    returned: tuple[str, ...]
    """An expression for each output."""
    predicted_bytes: int
    """What it moves by the plan."""
    moved_bytes: int
    """What its text moves."""
    helpers: frozenset[str]


class OpWriter:
    """Writes the ops of a plan.

    Attributes:
        large: constants that are too large to be written out, by name.
    """

    def __init__(self, graph: Graph, plan: Plan) -> None:
        self._graph = graph
        self._plan = plan
        self._ways = Ways(plan.cuts)
        self.large: dict[str, np.ndarray] = {}
        self._copied = {name for op in graph.ops if computed_before(graph.copies, op.name) for name in op.outputs}
        """What is computed again; of what else a copy reads XLA is not told that its original has read it, too, or it
        would make one of them."""

    def owned(self, name: str) -> Held:
        """The tiles of a tensor on workers."""
        shape = self._graph.tensors[name].shape
        if name in self._graph.constants:
            return Held.of((Region.whole(shape),) * self._plan.workers)
        return Held.of(tuple(self._plan.tilings[name].boxes(shape)))

    def written(self, described: BoundOp, used: frozenset[str]) -> OpText:
        """An op in JAX.

        Args:
            described: the op.
            used: tensors that somebody needs.

        Raises:
            InexpressibleError: it cannot be written.
        """
        op, strategy = described.op, self._plan.strategies[described.op.name]
        for name in filter(None, (*op.inputs, *op.outputs)):
            dtype = self._graph.tensors[name].dtype
            if not is_exported(dtype):
                raise InexpressibleError(f"{op.op_type}: {dtype.value}, which JAX does not compute as ONNX does")
        division = Division.of(described, strategy.tiling)
        text = Text()
        needed, local_ops = self._needed(described, division)
        operands: dict[str, Operand] = {}
        held: dict[str, Held] = {}
        parameters: dict[str, str] = {}
        for slot, name in enumerate(op.inputs):
            if not name or not any(f"in{slot}" in node.inputs for local_op in local_ops for node in local_op.nodes):
                continue
            if name in self._graph.constants:
                operand = self._constant(described, division, slot)
                if operand is not None:
                    operands[f"in{slot}"] = operand
                    continue
            shared = described.delivered_slots.get(slot)
            if shared is None:
                raise InexpressibleError(f"{op.op_type}: input {slot} is no constant")
            if shared != slot and f"in{shared}" in operands:
                operands[f"in{slot}"], held[f"in{slot}"] = operands[f"in{shared}"], held[f"in{shared}"]
                continue
            target = needed[slot]
            is_again = sum(op.inputs[peer] == name for peer in set(described.delivered_slots.values())) > 1
            if name in self._graph.constants:
                label = variable = f"constant{slot}"
            else:
                label = parameters.setdefault(name, _letter(len(parameters)))
                variable = f"{label}{slot}" if is_again else label
            operands[f"in{slot}"] = Operand(self._read(text, name, label, variable, target))
            held[f"in{slot}"] = target
        if computed_before(self._graph.copies, op.name) is not None:
            # XLA would find that a copy computes what its original has computed, keep that, and undo the recomputation.
            text.lines[:0] = [
                f"{label} = lax.optimization_barrier({label})"
                for name, label in parameters.items()
                if name not in self._copied
            ]
        results = [position for position, name in enumerate(op.outputs) if name in used]
        filled = [position for position in results if 0 not in self._graph.tensors[op.outputs[position]].shape]
        computed = self._computed(text, described, division, local_ops, operands, held, filled) if filled else []
        home = {
            position: self._home(text, described, division, position, expression)
            for position, expression in zip(filled, computed, strict=True)
        }
        returned = [home.get(position) or self._zeros(op.outputs[position]) for position in results]
        return OpText(
            op.name,
            op.op_type,
            f"{op.op_type}, {strategy}",
            tuple(parameters.values()),
            tuple(parameters),
            tuple(op.outputs[position] for position in results),
            tuple(text.lines),
            tuple(returned),
            text.predicted_bytes,
            text.moved_bytes,
            frozenset(text.helpers),
        )

    def _zeros(self, name: str) -> str:
        """A tensor without elements."""
        return f"jnp.zeros({self.owned(name).frame}, {array_dtype(self._graph.tensors[name].dtype)})"

    def _needed(self, described: BoundOp, division: Division) -> tuple[dict[int, Held], tuple[LocalOp, ...]]:
        """What workers need of each input, and their different local ops.

        Convolutions whose parts have other pads at a border read zeros there, and are one local op.
        """
        needed = {slot: Held.of(regions) for slot, regions in division.reads.items()}
        local_ops = division.local_ops
        if described.op.op_type != "Conv" or 0 not in needed or len(division.busy) != self._plan.workers:
            return needed, local_ops
        read = described.reads(described.ranges(self._plan.strategies[described.op.name].tiling))[0]
        regions = division.reads[0]
        rank = len(needed[0].frame)
        cut = [any(region.lo[dim] != regions[0].lo[dim] for region in regions) for dim in range(rank)]
        before, after = (np.where(cut, reach, 0) for reach in (read.before, read.after))
        frames = {
            tuple((np.array(region.shape) + first + last).tolist())
            for region, first, last in zip(regions, before, after, strict=True)
        }
        # Where a dim is cut, the frame holds the neighbours' rows or zeros, and the op needs no pad of its own.
        alike = {
            tuple(0 if cut[2 + dim % (rank - 2)] else pad for dim, pad in enumerate(_pads(local_op, rank)))
            for local_op in local_ops
        }
        if len(frames) != 1 or len(alike) != 1 or not (before.any() or after.any()):
            return needed, local_ops
        [frame], [pads] = frames, alike
        needed[0] = Held(regions, frame, tuple(tuple(row) for row in before.tolist()))
        node = local_ops[0].nodes[0]
        shared_node = replace(node, attributes={**node.attributes, "pads": pads})
        forms = {(local_op.nodes[0].inputs, _without_pads(local_op)) for local_op in local_ops}
        if len(forms) != 1 or any(len(local_op.nodes) != 1 for local_op in local_ops):
            return {**needed, 0: Held.of(regions)}, local_ops
        return needed, (replace(local_ops[0], nodes=(shared_node,)),)

    def _constant(self, described: BoundOp, division: Division, slot: int) -> Operand | None:
        """A constant input; None where workers read different parts of it."""
        name = described.op.inputs[slot]
        value = self._graph.constants[name]
        if value is None:
            raise InexpressibleError(f"constant {name!r} is external data that the plan does not hold")
        if slot in described.delivered_slots:
            parts = {division.parts[worker].inputs[slot] for worker in division.busy} - {None}
            if len(parts) > 1:
                return None
            space = Region.whole(value.shape)
            for region in parts:
                assert region is not None, "None was taken out"
                if value.shape:
                    value = value[region.within(space)]
        return self._literal(name, value)

    def _literal(self, name: str, value: np.ndarray) -> Operand:
        try:
            return Operand(literal(value), value)
        except InexpressibleError:
            label = name
            while label in self.large and not np.array_equal(self.large[label], value):
                label += "'"
            self.large[label] = value
            return Operand(f"CONSTANTS[{label!r}]", value)

    def _read(self, text: Text, name: str, label: str, variable: str, target: Held) -> str:
        """Brings an input to where it is needed; the variable that then holds it."""
        tensor = self._graph.tensors[name]
        source = self.owned(name)
        if name in self._graph.constants:
            value = self._graph.constants[name]
            assert value is not None, "it was looked at"
            text.lines.append(f"{variable} = {self._literal(name, value).text}")
            tiling = None
        else:
            tiling = self._plan.tilings[name]
        if source == target:
            return label
        fetches = self._ways.read(source.regions, tiling, target.regions)
        collectives = collectives_between(source, target, index_space(tensor.shape), self._plan.cuts)
        return written_movement(text, self._plan.cuts, source, target, [fetches], collectives, label, variable, tensor)

    def _computed(
        self,
        text: Text,
        described: BoundOp,
        division: Division,
        local_ops: tuple[LocalOp, ...],
        operands: Mapping[str, Operand],
        held: Mapping[str, Held],
        results: Sequence[int],
    ) -> list[str]:
        """Writes what workers compute; an expression for each output."""
        op = described.op
        dtypes = {f"out{position}": self._graph.tensors[op.outputs[position]].dtype for position in results}
        outputs = {position: Held.of(division.made[position]) for position in results}
        one_form = len(local_ops) == 1 and len(division.busy) == self._plan.workers
        if one_form and (
            len(local_ops) < len(division.local_ops)
            or all(part.is_even for part in (*held.values(), *outputs.values()))
        ):
            lines, values = self._local(text, op.name, local_ops[0], operands, dtypes)
            text.lines.extend(lines)
            return values
        return self._switched(text, described, division, operands, held, outputs, dtypes)

    def _local(
        self, text: Text, op: str, local: LocalOp, operands: Mapping[str, Operand], dtypes: Mapping[str, DType]
    ) -> tuple[list[str], list[str]]:
        """A local op's lines, and the expressions of its results; "" of a part without elements."""
        scope = {**operands, **{key: self._literal(f"{op}.{key}", value) for key, value in local.constants.items()}}
        lines: list[str] = []
        for number, node in enumerate(local.nodes):
            form = Form(
                node,
                tuple(scope[name] if name else None for name in node.inputs),
                self._graph.opset,
                tuple(dtypes.get(name) for name in node.outputs),
                text.helpers,
            )
            values = emitted(form)
            outputs = [name for name in node.outputs if name]
            if len(values) == 1 and len(outputs) == 1:
                # The last node's text is returned as it is; any other gets a name, for it may be read twice.
                is_last = number + 1 == len(local.nodes)
                label = outputs[0] if is_last else inner_name(outputs[0])
                if not is_last:
                    lines.append(f"{label} = {values[0]}")
                    scope[outputs[0]] = Operand(label)
                else:
                    scope[outputs[0]] = Operand(values[0])
                continue
            labels = [inner_name(name) if name else "_" for name in node.outputs]
            lines.append(f"{', '.join(labels)} = {', '.join(values)}")
            scope.update({name: Operand(label) for name, label in zip(node.outputs, labels, strict=True) if name})
        return lines, [scope[name].text if name in scope else "" for name in dtypes]

    def _switched(
        self,
        text: Text,
        described: BoundOp,
        division: Division,
        operands: Mapping[str, Operand],
        held: Mapping[str, Held],
        outputs: Mapping[int, Held],
        dtypes: Mapping[str, DType],
    ) -> list[str]:
        """Writes a form for each kind of workers: parts are taken out of frames, and results put into frames."""
        op, graph = described.op, self._graph
        scalar = {
            **{f"in{slot}": not graph.tensors[name].shape for slot, name in enumerate(op.inputs) if name},
            **{f"out{position}": not graph.tensors[op.outputs[position]].shape for position in outputs},
        }
        variables = {key: operands[key].text for key in held}
        arguments = tuple(dict.fromkeys(variables.values()))
        kinds: dict[object, int] = {}
        numbers: list[int] = []
        for worker in range(self._plan.workers):
            local = division.local[worker]
            parts = tuple(
                (part.regions[worker].shape, part.offsets[worker]) for part in (*held.values(), *outputs.values())
            )
            key = None if local == NOTHING else (local, parts)
            fresh = key not in kinds
            number = kinds.setdefault(key, len(kinds))
            numbers.append(number)
            if not fresh:
                continue
            text.lines.append(f"def kind_{number}({', '.join(arguments)}):")
            # lax.switch takes one shape from all forms: a worker without work makes a frame of zeros.
            if key is None:
                shapes = {f"out{position}": part.frame for position, part in outputs.items()}
                values = [
                    f"jnp.zeros({() if scalar[name] else shape}, {array_dtype(dtypes[name])})"
                    for name, shape in shapes.items()
                ]
                text.lines.append(f"    return {_tuple(values)}")
                continue
            mine = dict(operands)
            for slot, part in held.items():
                region = part.regions[worker]
                if region.is_empty or scalar[slot] or region.shape == part.frame:
                    continue
                bounds = ", ".join(
                    ":" if size == extent else f"{lo}:{lo + size}"
                    for lo, size, extent in zip(part.offsets[worker], region.shape, part.frame, strict=True)
                )
                text.lines.append(f"    {slot} = {variables[slot]}[{bounds}]")
                mine[slot] = Operand(slot)
            lines, values = self._local(text, op.name, division.local_ops[local], mine, dtypes)
            text.lines.extend(f"    {line}" for line in lines)
            widened = []
            for value, (position, part) in zip(values, outputs.items(), strict=True):
                shape = part.regions[worker].shape
                pads = tuple((0, extent - size) for size, extent in zip(shape, part.frame, strict=True))
                is_whole = scalar[f"out{position}"] or not any(after for _, after in pads)
                value = value or f"jnp.zeros({shape}, {array_dtype(dtypes[f'out{position}'])})"
                widened.append(value if is_whole else f"jnp.pad({value}, {pads})")
            text.lines.append(f"    return {_tuple(widened)}")
        names = [f"made{position or ''}" for position in outputs]
        forms = ", ".join(f"kind_{number}" for number in range(len(kinds)))
        text.helpers.add("mine")
        choice = f"mine({numbers})" if len(kinds) > 1 else "0"
        called = (
            f"lax.switch({choice}, [{forms}], {', '.join(arguments)})"
            if len(kinds) > 1
            else (f"kind_0({', '.join(arguments)})")
        )
        text.lines.append(f"{', '.join(names)} = {called}")
        return names

    def _home(self, text: Text, described: BoundOp, division: Division, position: int, value: str) -> str:
        """Brings an output to where it is owned; the expression of it."""
        name = described.op.outputs[position]
        tensor, tiling, made_as = self._graph.tensors[name], self._plan.tilings[name], division.made_as[position]
        assert made_as is not None, "an absent output is never made"
        computed, owned = Held.of(division.made[position]), self.owned(name)
        way = self._ways.returned((computed.regions,), made_as, owned.regions, tiling, tensor.shape)
        if not way.rounds:
            return value
        space, reducer = index_space(tensor.shape), way.rounds[0].reducer
        collectives = collectives_between(computed, owned, space, self._plan.cuts, frozenset(way.joined), reducer)
        variable = f"made{position or ''}"
        if value != variable:
            text.lines.append(f"{variable} = {value}")
        return written_movement(
            text, self._plan.cuts, computed, owned, way.rounds, collectives, variable, variable, tensor
        )


def _pads(local: LocalOp, rank: int) -> tuple[int, ...]:
    pads = local.nodes[0].attributes.get("pads")
    return tuple(int(pad) for pad in pads) if isinstance(pads, tuple) else (0,) * (2 * (rank - 2))


def _without_pads(local: LocalOp) -> tuple[object, ...]:
    return tuple(sorted((key, repr(value)) for key, value in local.nodes[0].attributes.items() if key != "pads"))


def _tuple(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else ", ".join(values)


def _letter(number: int) -> str:
    return string.ascii_lowercase[number] if number < 20 else f"x{number}"
