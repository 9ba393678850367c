"""The functions of ops and of blocks, and the step that calls them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from planner.features.export.blocks import Block, Call, folded
from planner.features.export.names import Names, some
from planner.features.export.op_text import OpText
from planner.graph.core.model import Graph, Role

_LONG = 100
"""Characters of a line that is broken."""
_STRING_OR_NAME = re.compile(
    r"""
    " (?: [^"\\] | \\. )* " | ' (?: [^'\\] | \\. )* '  # a string, in which no name is
    | (?<! [\w.] ) [a-z] \w*
    """,
    re.VERBOSE,
)
"""Of a line of Python: what is replaced, if it is a parameter's name."""


class Calls:
    """Functions, and the step's calls of them.

    Attributes:
        functions: sources: of ops, then of blocks.
        step: the source of the function that calls them.
        op_functions: how many functions are of ops.
        blocks: how many are of blocks.
    """

    def __init__(self, graph: Graph, written: Sequence[OpText]) -> None:
        by_text: dict[tuple[object, ...], tuple[str, list[OpText]]] = {}
        calls: list[Call] = []
        count: dict[str, int] = {}
        for op in written:
            key = (op.parameters, op.lines, op.returned)
            # A single expression stands in the step itself; any longer text becomes a function, shared by its ops.
            if key not in by_text and (op.lines or len(op.returned) > 1):
                kind = op.op_type.lower()
                count[kind] = count.get(kind, 0) + 1
                by_text[key] = (f"{kind}_{count[kind]}", [])
            if key in by_text:
                name, texts = by_text[key]
                texts.append(op)
                calls.append(Call(name, True, op.inputs, op.outputs))
            else:
                calls.append(Call(op.returned[0], False, op.inputs, op.outputs, op.parameters))
        outputs = tuple(dict.fromkeys(graph.outputs))
        step_calls, blocks = folded(calls, outputs)
        self._function_names = [name for name, _ in by_text.values()] + [block.name for block in blocks]
        self.op_functions, self.blocks = len(by_text), len(blocks)
        self.functions = [_function(name, ops) for name, ops in by_text.values()]
        self.functions += [self._block(block) for block in blocks]
        arguments = [name for name in graph.inputs if graph.roles[name] is Role.STATE]
        arguments += [name for name in graph.inputs if graph.roles[name] is Role.DATA]
        names = self._names()
        lines = [_broken("def on_device(", [names.of(name) for name in arguments], "):", "")]
        lines.append('    """All ops of an iteration, on one device\'s parts."""')
        lines += [_line(call, names) for call in step_calls]
        lines.append(_broken("    return {", [f"{name!a}: {names.of(name)}" for name in outputs], "}", "    "))
        self.step = "\n".join(lines)

    def _names(self) -> Names:
        names = Names()
        for name in self._function_names:
            names.take(name)
        return names

    def _block(self, block: Block) -> str:
        names = self._names()
        lines = [_broken(f"def {block.name}(", [names.of(name) for name in block.inputs], "):", "")]
        lines.append(f'    """{block.count} times in the step; names are those of the first time."""')
        lines += [_line(call, names) for call in block.calls]
        lines.append(f"    return {', '.join(names.of(name) for name in block.outputs)}")
        return "\n".join(lines)


def _line(call: Call, names: Names) -> str:
    arguments = [names.of(name) for name in call.inputs]
    outputs = ", ".join(names.of(name) for name in call.outputs)
    before = f"    {outputs} = " if outputs else "    "
    if call.is_function:
        return _broken(f"{before}{call.form}(", arguments, ")", "    ")
    argument_of = dict(zip(call.parameters, arguments, strict=True))
    text = _STRING_OR_NAME.sub(lambda match: argument_of.get(match[0], match[0]), call.form)
    return f"{before}{text}"


def _broken(before: str, items: Sequence[str], after: str, indent: str) -> str:
    """Items on one line, or on several where they are many."""
    line = f"{before}{', '.join(items)}{after}"
    if len(line) <= _LONG:
        return line
    rows: list[str] = []
    for item in items:
        if rows and len(rows[-1]) + len(item) + 2 <= _LONG:
            rows[-1] += f" {item},"
        else:
            rows.append(f"{indent}    {item},")
    return "\n".join([before.rstrip(), *rows, f"{indent}{after}"])


def _function(name: str, ops: Sequence[OpText]) -> str:
    first = ops[0]
    titles = list(dict.fromkeys(op.title for op in ops))
    title = "; ".join(titles[:3]) + ("; and others" if len(titles) > 3 else "")
    moves = f"; moves {first.predicted_bytes:,} bytes" if first.predicted_bytes else ""
    lines = [f"def {name}({', '.join(first.parameters)}):"]
    lines.append(f'    """{title}{moves}: {some([op.op for op in ops])}."""')
    lines += [f"    {line}" for line in first.lines]
    lines.append(f"    return {', '.join(first.returned)}")
    return "\n".join(lines)
