"""What is said of operators, and where: tables of op types outside of the modules whose business they are.

    python tests/tools/structure.py [ROOT]

A table is a name of a module that begins with an underscore and is bound to a set, sequence, mapping or string of words
that names two operators of ONNX or more: what a room knows of operators for itself, so that a new operator is silently
missing there. A mapping to functions is a registry, told apart: whoever adds an operator to it writes the function.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from onnx import defs


@dataclass(frozen=True)
class OpTypeTable:
    """One table of op types."""

    place: str
    """Such as ``planner/graph/step/roles.py:127``."""
    name: str
    is_registry: bool
    op_types: tuple[str, ...]


def op_type_tables(root: Path) -> Iterator[OpTypeTable]:
    """The private tables of op types of a checkout's planner."""
    known = {schema.name for schema in defs.get_all_schemas_with_history()}
    for path in _files(root):
        text = path.read_text(encoding="utf-8")
        if not any(one in known for one in re.findall(r'"([A-Z]\w+)[ "]', text)):
            continue  # most files name no operator, and are not worth a parser's time
        for statement in ast.parse(text).body:
            if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
                continue
            target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
            if not isinstance(target, ast.Name) or not target.id.startswith("_") or target.id.startswith("__"):
                continue
            words = [
                word.rpartition(".")[2]
                for node in ast.walk(statement.value)
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
                for word in node.value.split()
            ]
            named = tuple(word for word in words if word in known)
            # Prose mentions an operator here and there: a table is mostly names.
            if len(named) >= 2 and 2 * len(named) >= len(words):
                place = f"{path.relative_to(root).as_posix()}:{statement.lineno}"
                yield OpTypeTable(place, target.id, _leads_to_functions(statement.value), named)


def _files(root: Path) -> list[Path]:
    """Those of planner and of the descriptions, which lie in a folder of their own."""
    return [path for folder in ("opdefs", "planner") for path in sorted((root / folder).rglob("*.py"))]


def mentions(root: Path, op_type: str) -> list[str]:
    """The files of a checkout's planner that name an op type in a string: what has to know it.

    Sentences do not count: a name is between quotes, or between the blanks of a table of names.
    """
    name = re.compile(rf'"{op_type}"|"(?:[A-Z]\w+ )*{op_type}(?: [A-Z]\w+)* ?"')
    return [path.relative_to(root).as_posix() for path in _files(root) if name.search(path.read_text(encoding="utf-8"))]


def _leads_to_functions(value: ast.expr) -> bool:
    """Whether an expression has a mapping whose values are functions, by name or made by a call."""
    mappings = [node for node in ast.walk(value) if isinstance(node, ast.Dict)]
    values = [one for mapping in mappings for one in mapping.values if not isinstance(one, ast.Call)]
    parts = [part for one in values for part in (one.elts if isinstance(one, ast.Tuple) else [one])]
    return any(isinstance(one, ast.Name | ast.Attribute | ast.Lambda) for one in parts)


def main() -> None:
    """Prints the tables, and how many there are."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2]
    tables = list(op_type_tables(root))
    for table in tables:
        kind = "registry" if table.is_registry else "table"
        print(f"{table.place}  {table.name}  {kind} of {len(table.op_types)}: {' '.join(table.op_types[:6])}")
    registries = sum(table.is_registry for table in tables)
    print(f"{len(tables) - registries} private tables of op types, {registries} private registries")


if __name__ == "__main__":
    main()
