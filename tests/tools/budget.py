"""What the repository may weigh (``.ci/budget.toml``): lines of code, options, prose, names and docstrings.

    python tests/tools/budget.py             prints what is above its number, and exits with 1 if anything is
    python tests/tools/budget.py --list      prints all numbers

A number is raised in a commit of its own, whose message says what it buys; one that has fallen is written down anew.
Lines of code hold more than comments and docstrings. A room is a folder of ``planner``, or of ``planner/features``;
modules beside the folders are a room ``.``. ``prose.py`` counts the pages, ``docstrings.py`` docstrings without a
subject; both name the places.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

import docstrings
import prose

ROOT = Path(__file__).parents[2]
FILE = ROOT / ".ci" / "budget.toml"
FORBIDDEN = frozenset("asked found given it known left made one other others said taken that these told".split())
"""Names that say nothing of what they name; allowed for what lives at most three lines."""
_SHORT_LINES = 3
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


def room(module: Path) -> str:
    """The room of a module, as the budget names it."""
    parts = module.relative_to(ROOT).parts[:-1]
    if len(parts) == 1:
        return parts[0] if parts[0] == "opdefs" else "."
    return "/".join(parts[1:3] if parts[1] == "features" else parts[1:2])


def code_lines(text: str) -> int:
    """How many lines hold code."""
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            held.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(held)


def empty_names(text: str) -> list[tuple[int, str]]:
    """Lines and names of ``FORBIDDEN`` that are used more than three lines below where they are bound."""
    tree = ast.parse(text)
    bodies = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]
    faults: set[tuple[int, str]] = set()
    for body in (tree, *bodies):
        spans: dict[str, list[int]] = {}
        for node in _inside(body):
            name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ""
            if name in FORBIDDEN:
                spans.setdefault(name, []).append(node.lineno)  # type: ignore[attr-defined]  # both kinds have one
        faults |= {(min(lines), name) for name, lines in spans.items() if max(lines) - min(lines) > _SHORT_LINES}
    return sorted(faults)


def _inside(body: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a body, without those of functions in it."""
    for child in ast.iter_child_nodes(body):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _inside(child)


def options() -> int:
    """How many options the commands have, each once a command."""
    from all_commands import all_commands

    def count(command: click.Command) -> int:
        inner = command.commands.values() if isinstance(command, click.Group) else ()
        return sum(isinstance(param, click.Option) for param in command.params) + sum(map(count, inner))

    return sum(map(count, all_commands().values()))


def measured() -> dict[str, dict[str, int]]:
    """All numbers, in the form of the file."""
    lines, names = Counter[str](), Counter[str]()
    # Links, which stand for folders at the top, are not followed.
    for module in (*(ROOT / "planner").rglob("*.py"), *(ROOT / "opdefs").rglob("*.py")):
        text = module.read_text(encoding="utf-8")
        lines[room(module)] += code_lines(text)
        names[room(module)] += len(empty_names(text))
    core = sum(count for name, count in lines.items() if not name.startswith("features"))
    return {
        "total": {
            "lines": sum(lines.values()),
            "lines of the core": core,
            "options": options(),
            "docstrings without a subject": len(docstrings.faults(docstrings.modules())),
        },
        "prose": prose.numbers(),
        "lines": dict(lines),
        "names": {name: count for name, count in names.items() if count},
    }


def excesses(numbers: Mapping[str, Mapping[str, int]], budget: Mapping[str, Mapping[str, int]]) -> list[str]:
    """What is above its number, or has none."""
    return [
        f"{table}: {name} is {number:,}, and may be {budget.get(table, {}).get(name, 0):,}"
        for table, values in numbers.items()
        for name, number in values.items()
        if number > budget.get(table, {}).get(name, 0)
    ]


def as_toml(numbers: Mapping[str, Mapping[str, int]]) -> str:
    tables = (
        f"[{table}]\n" + "".join(f'"{name}" = {number}\n' for name, number in sorted(values.items()))
        for table, values in numbers.items()
    )
    return "\n".join(tables)


def main() -> int:
    numbers = measured()
    if "--list" in sys.argv[1:]:
        print(as_toml(numbers), end="")
        return 0
    faults = excesses(numbers, tomllib.loads(FILE.read_text(encoding="utf-8")))
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"budget: {numbers['total']['lines']:,} lines of code, {numbers['total']['options']} options")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
