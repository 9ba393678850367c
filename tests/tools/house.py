"""The house in numbers: how large the search's rooms are, how they lean on each other, and what is stated where.

    python tests/tools/house.py [--root DIR] [--list]

A row is a figure. ``--root`` counts another checkout, such as one of an earlier commit; ``--list`` says what counts.
Figures are of the source's text alone: nothing of it is run.

    lines of the search         of all files in planner/search
    files in the largest room   of a folder of planner, but rules of operators and gradients; without __init__.py
    arrows between files        imports of one file of the search by another
    arrows between rooms        the same, between folders of the search and the files beside them
    floors                      rooms on the longest way from one to another that it leans on; cycles count as one
    upwards                     pairs of rooms that lean on each other
    numeric constants           names in capitals that are given a number, in the search; and those of them that are
                                neither in effort.py nor in schedule.py
    conditions on effort        comparisons and look-ups by an effort or its name, in planner, outside of these two and
                                of decide.py, which looks the effort up
    most parameters             of a function of planner; but of planner/api and planner/commands, which are the doors
    lines of code               of planner: without blank lines, docstrings, comments
    largest class               in lines of code
    comments in functions       for each line of their code
    files of the engines        in the largest room below planner/runtime/engine
    lines of schemas by hand    of planner/schemas; none where ``make schemas`` writes them
    near-equal passages         pairs of ten lines and more in two rooms (passages.py)
"""

from __future__ import annotations

import argparse
import ast
import io
import itertools
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from passages import code_lines, passages, spoken

ROOT = Path(__file__).parents[2]
_EXEMPT_ROOMS = ("rules", "opdefs")
_STATED = ("effort.py", "schedule.py")
_DOORS = ("api", "commands")
_EFFORTS = {"quick", "normal", "thorough"}
_OF_PLANS = {"search", "planning", "api", "artifacts", "plan.py"}
_WRAPPERS = (
    *("Found", "Assignment", "_Answer", "Whole", "Decision", "Decision", "Candidate", "Measured", "Column", "Answer"),
    *("Fit", "Branched", "Trial", "Plan"),
)


def modules(root: Path, below: str) -> dict[str, Path]:
    """Files below a folder, by dotted name."""
    found = {}
    for path in sorted((root / below).rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of ``known`` that a file imports, types included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name for name in found if name in known and known[name].name != "__init__.py"}


def room(name: str) -> str:
    """The room of a module of the search: its folder, or itself where it lies beside them."""
    return name.split(".")[2]


def floors(arrows: set[tuple[str, str]]) -> int:
    """Nodes on the longest way along arrows, those on a cycle counted as one."""
    nodes = {node for arrow in arrows for node in arrow}
    reach = {node: {node} for node in nodes}
    for _ in nodes:
        for first, second in arrows:
            reach[first] |= reach[second]
    of = {node: frozenset(other for other in reach[node] if node in reach[other]) for node in nodes}
    after = {(of[first], of[second]) for first, second in arrows if of[first] != of[second]}
    depth = dict.fromkeys(of.values(), 1)
    for _ in depth:
        for group, below in after:
            depth[group] = max(depth[group], depth[below] + 1)
    return max(depth.values(), default=0)


def constants(path: Path) -> Iterator[str]:
    """Names in capitals that are given a number at the top of a file."""
    for node in ast.parse(path.read_text()).body:
        target, value = None, None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign):
            target, value = node.target, node.value
        if not isinstance(target, ast.Name) or not re.fullmatch(r"_?[A-Z][A-Z0-9_]*", target.id) or value is None:
            continue
        if isinstance(value, ast.Call) and getattr(value.func, "id", "") != "Fraction":
            continue
        if any(isinstance(one, ast.Constant) and type(one.value) in (int, float) for one in ast.walk(value)):
            yield target.id


def conditions_on_effort(path: Path) -> Iterator[int]:
    """Lines where an effort or its name decides."""
    for node in ast.walk(ast.parse(path.read_text())):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            parts = [node.slice]
        named = any(isinstance(one, ast.Constant) and one.value in _EFFORTS for one in parts)
        spoken = any(
            (isinstance(one, ast.Name) and one.id == "effort")
            or (isinstance(one, ast.Attribute) and one.attr == "effort")
            for one in parts
        )
        if named or spoken:
            yield node.lineno


def parameters(path: Path) -> Iterator[tuple[int, str]]:
    """How many parameters each function has, self not counted."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            own = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            yield len([one for one in own if one.arg not in ("self", "cls")]), node.name


def coded(path: Path) -> set[int]:
    """Lines of code of a file."""
    return set(code_lines(path.read_text(), everywhere=True))


def class_sizes(path: Path) -> Iterator[tuple[int, str]]:
    """How many lines of code each class has."""
    lines = coded(path)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            yield len(lines.intersection(range(node.lineno, (node.end_lineno or node.lineno) + 1))), node.name


def comments(path: Path) -> tuple[int, int]:
    """Comments in functions, those to tools not, and the lines of code of functions."""
    text = path.read_text()
    inside = spoken(ast.parse(text))
    said = sum(
        token.type == tokenize.COMMENT
        and token.start[0] in inside
        and not re.match(r"# (noqa|type:|fmt:)", token.string)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )
    return said, len(code_lines(text))


def of_the_whole(root: Path, planner: dict[str, Path]) -> Iterator[tuple[str, object, list[str]]]:
    """Rows about all of planner."""
    yield "lines of code", sum(len(coded(path)) for path in planner.values()), []
    classes = sorted(
        ((size, f"{path.relative_to(root)} {name}") for path in planner.values() for size, name in class_sizes(path)),
        reverse=True,
    )
    yield "largest class", classes[0][0], [f"{size} {name}" for size, name in classes[:5]]
    said, lines = (sum(counts) for counts in zip(*map(comments, planner.values()), strict=True))
    yield "comments in functions, a line of code", f"{said / lines:.4f}", []
    engine = root / "planner/runtime/engine"
    rooms = [
        (sum(path.suffix == ".py" and path.name != "__init__.py" for path in folder.iterdir()), folder.name)
        for folder in (engine, *(path for path in engine.iterdir() if path.is_dir()))
    ]
    yield "files of the engines, in the largest room", max(rooms)[0], [f"{name} {count}" for count, name in rooms]
    schemas = list((root / "planner/schemas").glob("*.json"))
    derived = re.search(r"^schemas:", (root / "Makefile").read_text(), re.MULTILINE)
    by_hand = 0 if derived else sum(len(path.read_text().splitlines()) for path in schemas)
    yield "lines of schemas by hand", by_hand, []
    pairs = sorted(passages(root, 10), reverse=True)
    yield "near-equal passages of two rooms", len(pairs), [f"{one.lines} {one.first} {one.second}" for one in pairs]


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description="The house in numbers.")
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--list", action="store_true", help="what was counted")
    chosen = parser.parse_args()
    root: Path = chosen.root
    search, planner = modules(root, "planner/search"), modules(root, "planner")
    inside = {name: path for name, path in search.items() if path.name != "__init__.py"}
    rows: list[tuple[str, object, list[str]]] = []

    rows.append(("lines of the search", sum(len(path.read_text().splitlines()) for path in search.values()), []))
    sizes = [
        (sum(path.name != "__init__.py" for path in folder.glob("*.py")), folder.relative_to(root).as_posix())
        for folder in {path.parent for path in planner.values()}
        if folder.name not in _EXEMPT_ROOMS
    ]
    sizes.sort(reverse=True)
    rows.append(("files in the largest room", sizes[0][0], [f"{name} {count}" for count, name in sizes[:4]]))
    arrows = {(name, other) for name, path in inside.items() for other in imports(path, inside) if other != name}
    rooms = {(room(first), room(second)) for first, second in arrows if room(first) != room(second)}
    upwards = [
        f"{first} and {second}" for first, second in sorted(rooms) if (second, first) in rooms and first < second
    ]
    rows.append(("arrows between files of the search", len(arrows), []))
    rows.append(("arrows between its rooms", len(rooms), [f"{first} -> {second}" for first, second in sorted(rooms)]))
    rows.append(("floors, files", floors(arrows), []))
    rows.append(("floors, rooms", floors(rooms), []))
    rows.append(("upwards", len(upwards), upwards))
    stated = [(path.relative_to(root).as_posix(), name) for path in inside.values() for name in constants(path)]
    apart = [f"{path} {name}" for path, name in stated if Path(path).name not in _STATED]
    rows.append(("numeric constants of the search", len(stated), []))
    rows.append(("of these elsewhere than in effort and schedule", len(apart), apart))
    deciding = [
        f"{path.relative_to(root).as_posix()}:{line}"
        for path in planner.values()
        if path.name not in (*_STATED, "decide.py") and "commands" not in path.parts
        for line in conditions_on_effort(path)
    ]
    rows.append(("conditions on effort elsewhere", len(deciding), deciding))
    classes = {
        node.name: path.relative_to(root).as_posix()
        for path in planner.values()
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name in _WRAPPERS and _OF_PLANS.intersection(path.parts)
    }
    rows.append(("classes that a plan wears", len(classes), [f"{name} {path}" for name, path in classes.items()]))
    wide = sorted(
        itertools.chain.from_iterable(
            ((count, f"{path.relative_to(root).as_posix()} {name}") for count, name in parameters(path))
            for path in planner.values()
            if not set(path.parts).intersection(_DOORS)
        ),
        reverse=True,
    )
    rows.append(("most parameters", wide[0][0], [f"{count} {name}" for count, name in wide if count > 8]))
    rows.extend(of_the_whole(root, planner))
    for what, figure, listed in rows:
        print(f"{what:<50} {figure}")
        if chosen.list:
            for line in listed:
                print(f"    {line}")


if __name__ == "__main__":
    main()
