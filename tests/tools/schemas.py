"""The JSON schemas in ``planner/schemas`` and in features' folders, derived from the records that JSON is made of.

    python tests/tools/schemas.py            writes those that differ, and docs/reference; `make schemas`

What a schema says of a member is its type, and its description the text below the field, or that of the property.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import json
import re
import textwrap
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from fractions import Fraction
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path, PurePath
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np

import planner
import reference
from planner.api.arguments import ACCEPTED
from planner.artifacts.plan import Plan
from planner.artifacts.plan_folder import Manifest
from planner.feature import features
from planner.gate.verdict import CheckResult
from planner.records import Kind, members_of
from planner.results import BuildResult, Explanation, GradResult, MemoryResult, PlanResult, SimulationResult
from planner.runtime.run_report import RunResult

FOLDER = Path(__file__).parents[2] / "planner" / "schemas"
STUB = FOLDER.parent / "__init__.pyi"
API_STUB = FOLDER.parent / "api" / "__init__.pyi"
RECORDS: Mapping[str, tuple[str, type]] = {
    "build": ("tofu build --json", BuildResult),
    "check": ("tofu check --json", CheckResult),
    "explain": ("tofu explain --json", Explanation),
    "explain-memory": ("tofu explain --view memory --json", MemoryResult),
    "explain-time": ("tofu explain --view time --json", SimulationResult),
    "grad": ("tofu grad --json", GradResult),
    "manifest-file": ("manifest.json, in a plan's folder", Manifest),
    "plan": ("tofu plan --json", PlanResult),
    "plan-file": ("plan.json, in a plan's folder", Plan),
    "run": ("tofu run --json", RunResult),
}
"""By schema of the core its title and the record that it is of."""
_NULL = {"type": "null"}
_SIMPLE: Mapping[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    Fraction: {"type": "number"},
    str: {"type": "string"},
    type(None): _NULL,
    Any: {},
}


def types_of_api() -> str:
    """The stub of the package ``planner.api``: its functions are those of ``planner``."""
    lines = [f"from planner import {name} as {name}" for name in sorted(planner.api.__all__)]
    return "\n".join(["# What `planner.api` has, for type checkers; `make schemas` writes it.", "", *lines, ""])


def types_of_functions() -> str:
    """The stub of the package ``planner``: its functions, with the types that callers may give."""
    names = sorted(planner.__all__)
    functions = [_signature(name) for name in names if name != "TofuError"]
    modules = {module for text in functions for module in re.findall(r"\b((?:\w+\.)+)(?=\w)", text)}
    return "\n".join(
        [
            "# What `import planner` has, for type checkers; `make schemas` writes it.",
            "",
            *(f"import {module.rstrip('.')}" for module in sorted(modules)),
            "from planner import api as api",
            "from planner import errors as errors",
            "from planner.errors import TofuError as TofuError",
            "",
            "__version__: str",
            "__all__ = [",
            *(f'    "{name}",' for name in names),
            "]",
            "",
            *functions,
        ]
    )


def _signature(name: str) -> str:
    function = getattr(planner, name)
    kinds = get_type_hints(function, localns=ACCEPTED)
    lines, is_keyword = [f"def {name}("], False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword:
            lines.append("    *,")
            is_keyword = True
        default = "" if parameter.default is parameter.empty else " = ..."
        lines.append(f"    {parameter.name}: {_typed(kinds[parameter.name])}{default},")
    return "\n".join([*lines, f") -> {_typed(kinds['return'])}: ...", ""])


def _typed(kind: Any) -> str:
    if kind is NoneType:
        return "None"
    return (
        inspect.formatannotation(kind)
        if isinstance(kind, type) and kind is not Any
        else repr(kind).replace("NoneType", "None")
    )


def texts() -> dict[Path, str]:
    """What every schema's file says."""
    core = {FOLDER / f"{name}.json": record for name, record in RECORDS.items()}
    of_features = {
        FOLDER.parent / "features" / feature.name / "schemas" / f"{output.schema}.json": (
            output.line,
            feature.at(output.record),
        )
        for feature in features()
        for output in feature.outputs
    }
    return {
        file: json.dumps(_whole(file.stem, title, record), indent=2) + "\n"
        for file, (title, record) in (core | of_features).items()
    }


def _whole(name: str, title: str, record: type) -> dict[str, Any]:
    definitions = _Definitions()
    version = record.schema_version  # type: ignore[attr-defined]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:tofu:{name}:{version}"}
    body = {**head, "title": title, **definitions.object_of(record)}
    body["properties"] = {"schema_version": {"const": version}, **body["properties"]}
    body["required"] = ["schema_version", *body["required"]]
    return {**body, **({"$defs": dict(sorted(definitions.found.items()))} if definitions.found else {})}


class _Definitions:
    """The schemas of records that one schema refers to, by name."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def object_of(self, record: type) -> dict[str, Any]:
        """The schema of a record's members."""
        properties, required = {}, []
        for name, kind, text, is_optional in _members(record):
            properties[name] = {**({"description": text} if text else {}), **self.schema(kind)}
            if not is_optional:
                required.append(name)
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def schema(self, kind: Any, says: Kind = Kind()) -> dict[str, Any]:
        """The schema of a type.

        Args:
            kind: the type.
            says: what is known beside the type.
        """
        origin, inner = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return self.schema(inner[0], inner[1])
        if origin in (Union, types.UnionType):
            return _joined([self.schema(one, says) for one in inner])
        if origin is Literal:
            return {"enum": list(inner)}
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return {"enum": [one.value for one in kind]}
        if origin is np.ndarray:
            return {"type": "array", "items": self.schema(int)}
        if is_typeddict(kind):
            members = {name: self.schema(one) for name, one in get_type_hints(kind).items()}
            return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}
        if isinstance(origin or kind, type) and issubclass(origin or kind, Mapping):
            names = self.schema(inner[0])
            return {
                "type": "object",
                **({"propertyNames": names} if "enum" in names else {}),
                "additionalProperties": self.schema(inner[1]),
            }
        if origin is tuple and inner[-1] is not Ellipsis:
            items = _joined([self.schema(one) for one in inner])
            return {"type": "array", "items": items, "minItems": len(inner), "maxItems": len(inner)}
        if isinstance(origin, type) and issubclass(origin, Collection):
            return {"type": "array", "items": self.schema(inner[0])}
        if dataclasses.is_dataclass(kind):
            return self._reference(kind)
        if isinstance(kind, type) and issubclass(kind, PurePath):
            return {"type": "string"}
        found = dict(_SIMPLE[kind])
        if kind in (int, float, Fraction):
            bounds = {
                "minimum": says.minimum,
                "maximum": says.maximum,
                "exclusiveMinimum": says.above,
                "exclusiveMaximum": says.below,
            }
            found |= {name: bound for name, bound in bounds.items() if bound is not None}
        if says.pattern is not None:
            found["pattern"] = says.pattern
        return found if says.is_finite else _joined([found, _NULL])

    def _reference(self, record: type) -> dict[str, Any]:
        first = members_of(record)[0]
        if first.name == "=":
            return self.schema(_attribute(record, first.attribute)[0] if first.attribute else str)
        name = record.__name__
        if name not in self.found:
            self.found[name] = {}  # of a record within itself
            about = inspect.cleandoc(record.__doc__ or "").split("\n\n")[0].replace("\n", " ")
            self.found[name] = {"description": about, **self.object_of(record)}
        return {"$ref": f"#/$defs/{name}"}


def _members(record: type) -> Iterator[tuple[str, Any, str, bool]]:
    """Name, type, description and whether it may be left out, of each member of a record."""
    left_out = {one.attribute for one in members_of(record) if one.name == "-"}
    for name, attribute, is_optional in members_of(record):
        if name == "-":
            continue
        kind, text = _attribute(record, attribute)
        if name == "*":
            inner, is_absent = _not_none(kind)
            found = [one for one in _members(inner) if one[0] not in left_out]
            yield from ((of, kind, about, absent or is_absent) for of, kind, about, absent in found)
        else:
            yield name, _unusual(record, attribute, kind) if is_optional else kind, text, is_optional


def _not_none(kind: Any) -> tuple[Any, bool]:
    """A type without None, and whether that was one of what it may be."""
    inner = get_args(kind)
    if get_origin(kind) not in (Union, types.UnionType) or type(None) not in inner:
        return kind, False
    return Union[tuple(one for one in inner if one is not type(None))], True  # noqa: UP007


def _unusual(record: type, attribute: str, kind: Any) -> Any:
    """The type of an optional member where it is there."""
    kind, _ = _not_none(kind)
    usual = record.__dataclass_fields__[attribute].default if attribute in record.__dataclass_fields__ else None
    if kind is bool:
        return Literal[not usual]
    if get_origin(kind) is Literal:
        return Literal[tuple(one for one in get_args(kind) if one != usual)]
    return kind


def _attribute(record: type, path: str) -> tuple[Any, str]:
    """The type of what a word of ``told`` leads to, and what is said of it."""
    is_absent = False
    for part in path.removeprefix("#").split("."):
        kind, text = _own_attribute(record, part)
        record, may_be_none = _not_none(kind)
        is_absent |= may_be_none
    kind = int if path.startswith("#") else record
    return (kind | None if is_absent else kind), text


def _own_attribute(record: type, name: str) -> tuple[Any, str]:
    found = inspect.getattr_static(record, name, None)
    getter: Callable[..., Any] | None = None
    if isinstance(found, property):
        getter = found.fget
    elif isinstance(found, cached_property):
        getter = found.func
    if getter is not None:
        text = inspect.cleandoc(getter.__doc__ or "").split("\n\n")[0]
        return get_type_hints(getter, localns=_imported(getter.__module__), include_extras=True)["return"], text
    names = {key: one for base in record.__mro__ for key, one in _imported(base.__module__).items()}
    kind = get_type_hints(record, localns=names, include_extras=True)[name]
    if kind is ClassVar:
        return Literal[getattr(record, name)], ""
    if getattr(kind, "__parameters__", ()):
        (base,) = record.__orig_bases__  # type: ignore[attr-defined]
        stand = dict(zip(get_origin(base).__parameters__, get_args(base), strict=True))
        kind = kind[tuple(stand[one] for one in kind.__parameters__)]
    return kind, next((_texts(base)[name] for base in record.__mro__ if name in _texts(base)), "")


@cache
def _imported(module: str) -> Mapping[str, Any]:
    """What a module imports for the checker of types alone."""
    if module == "builtins":
        return {}
    blocks = [one for one in ast.parse(inspect.getsource(import_module(module))).body if isinstance(one, ast.If)]
    lines = [line for block in blocks if ast.unparse(block.test) == "TYPE_CHECKING" for line in block.body]
    return {
        alias.name: getattr(import_module(line.module or ""), alias.name)
        for line in lines
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }


@cache
def _texts(record: type) -> Mapping[str, str]:
    """By field, the text below it."""
    if record.__module__ == "builtins":
        return {}
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(record))).body
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value).replace("\n", " ")
        for field, text in zip(body.body, body.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def _joined(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """What is of one of several schemas."""
    several = [one for number, one in enumerate(schemas) if one not in schemas[:number]]
    if len(several) == 2 and _NULL in several and "type" in (one := several[several[0] == _NULL]):
        return {**one, "type": [one["type"], "null"]} if isinstance(one["type"], str) else one
    return several[0] if len(several) == 1 else {"anyOf": several}


def main() -> None:
    """Writes the files that differ."""
    reference.FOLDER.mkdir(exist_ok=True)
    for file, text in {
        STUB: types_of_functions(),
        API_STUB: types_of_api(),
        **texts(),
        **reference.pages(texts()),
    }.items():
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            print(f"wrote {file.name}")


if __name__ == "__main__":
    main()
