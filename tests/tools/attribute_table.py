"""What becomes of every attribute, optional input and omitted output of every operator that is read, as a table.

    python tests/tools/attribute_table.py [--into FILE] [OPERATOR ...]    # makes FILE, or the rows of these operators

Rows come from ONNX's schemas, or ONNX Runtime's. Of the operator's cases (``planner.features.ops.cases``) those that
have the attribute, or have and lack the input, are tried. Beside them the first case is changed in one thing alone:
to every word that ONNX knows and one that it does not, a flag turned, an axis counted from the end, a float that is
no sum of few powers of two, an output without a name, an input without elements. Each model of one op is

    planned, cut in two and run          against stock ONNX Runtime on the model as it is
    checked by ``run --verify``
    differentiated                       against the model's own differences along a random direction
    exported to JAX, and run there       against stock ONNX Runtime
    proven

and each column has a letter; of several cases a fault counts before a right one, and that before one that is refused:

    M  modelled: right numbers, verified, proven          r  refused by name, or by the runtime for what it is fed
    -  nothing to try: ONNX Runtime refuses the model, too, or nothing is differentiable
    P  planned, though ONNX Runtime refuses the model     N  not proven, or not verified
    W  wrong numbers                                      C  a crash
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from fused_cases import FUSED
from planner import api, opdefs
from planner.errors import TofuError
from planner.features.ops.cases.case import Case, Given, by_type, qualified
from planner.features.ops.cases.examples import all_cases
from planner.graph.core.model import Op
from planner.graph.files.protos import MAX_OPSET, op_to_node
from planner.graph.files.to_onnx import to_model
from planner.graph.folding.operands import WORDS
from planner.graph.reading.from_onnx import graph_from_proto
from planner.training.build import build_training_graph
from planner.training.parameters.infer import Decision, Parameters, Verdict
from stock_runtime import NO_ERRORS, run, session

FILE: Final = Path(__file__).parent.parent / "opdefs" / "attributes.json"
COLUMNS: Final = ("plan", "gradient", "judge", "jax", "prove")
WORST: Final = "CWPNMr-"
"""Letters, the worst first; what some case has modelled is, whatever else another case has that is refused."""
DEAR: Final = "link=1000GB/s,memory=1GB/s,compute=1GFLOP/s"
"""By these rates a small op is cut rather than repeated."""
OPTIONAL: Final = "Optional"
NO_SUCH_WORD: Final = "bogus"


def _cells(gates: int) -> dict[str, tuple[tuple[str, Any], ...]]:
    """Functions of a recurrent cell, beside those that it has by itself, with and without parameters."""
    few = max(1, gates - 1)
    return {
        "activations": (("activations", ("Sigmoid", "Relu", "Softsign")[:few]),),
        "activation_alpha": (("activations", ("LeakyRelu",) * few), ("activation_alpha", (0.3,) * few)),
        "activation_beta": (("activations", ("HardSigmoid",) * few), ("activation_alpha", (0.3,) * few),
                            ("activation_beta", (0.4,) * few)),
    }  # fmt: skip


VALUES: Final[dict[str, dict[str, tuple[tuple[str, Any], ...]]]] = {
    "LSTM": _cells(4),
    "GRU": _cells(3),
    "RNN": _cells(1),
    "Attention": {"left_window_size": (("left_window_size", 1),), "right_window_size": (("right_window_size", 1),)},
    "Constant": {name: ((name, value),) for name, value in (
        ("value_floats", (1.0, 2.0)), ("value_ints", (1, 2)), ("value_string", "a"), ("value_strings", ("a", "b")),
        ("sparse_value", "none"),
    )},
    **{name: {"dilations": (("dilations", (2, 2)),), "kernel_shape": (("kernel_shape", (3, 3)),)}
       for name in ("ConvInteger", "QLinearConv", "com.microsoft.FusedConv", "ConvTranspose")},
    "DeformConv": {"dilations": (("dilations", (1, 1)),), "strides": (("strides", (1, 1)),)},
    "MaxUnpool": {"pads": (("pads", (0, 0, 0, 0)),)},
    "TfIdfVectorizer": {"pool_strings": (("pool_strings", ("a", "b")),), "weights": (("weights", (0.5,) * 7),)},
    "com.microsoft.GroupQueryAttention": {name: ((name, "PER_TENSOR"),) for name in ("k_quant_type", "v_quant_type")},
    "com.microsoft.QMoE": {"quant_type": (("quant_type", "fp4"),)},
}  # fmt: skip
"""By operator and attribute, values that nothing here makes by itself, with the attributes that they need beside."""
DTYPES: Final = frozenset({"output_datatype", "stash_type", "softmax_precision", "output_dtype", "precision"})
"""Attributes that name a dtype: float32."""


@cache
def _history() -> dict[str, list[Any]]:
    """By operator of the default domain, the schemas of all its versions."""
    found: dict[str, list[Any]] = {}
    for schema in defs.get_all_schemas_with_history():
        if not schema.domain:
            found.setdefault(schema.name, []).append(schema)
    return found


@cache
def schema_of(domain: str, op_type: str, opset: int) -> Any:
    """What the operator has, by ONNX or by ONNX Runtime."""
    if not domain:
        every = _history().get(op_type, [])
        there = [one for one in every if one.since_version <= opset and not one.deprecated] or every
        if there:
            return max(there, key=lambda one: one.since_version)
    from onnxruntime.capi import onnxruntime_pybind11_state as runtime

    found = [one for one in runtime.get_all_operator_schema() if (one.domain, one.name) == (domain, op_type)]
    return max(found, key=lambda one: one.since_version)


def words_of(op_type: str, name: str, version: int) -> tuple[str, ...]:
    """The words that a string attribute may be; () where any will do."""
    kind = f"{op_type}.{name}"
    return WORDS.get(f"{kind}.{version}") or WORDS.get(kind) or WORDS.get(name) or ()


def _split(operator: str) -> tuple[str, str]:
    domain, _, op_type = operator.rpartition(".")
    return domain, op_type


def row_of(key: str) -> str:
    """The attribute, input or output that a row is of."""
    return key.split("=")[0].removeprefix("no ")


def keys_of_operator(operator: str) -> list[str]:
    """What a schema has: attributes, optional inputs, optional outputs."""
    schema = schema_of(*_split(operator), MAX_OPSET)
    keys = sorted(schema.attributes)
    keys += [f"{side} {one.name}" for side in ("input", "output") for one in getattr(schema, f"{side}s")
             if one.option.name == OPTIONAL]  # fmt: skip
    return keys


def keys_of(case: Case) -> list[str]:
    """The rows that a case says something of."""
    schema, stated = schema_of(case.domain, case.op_type, case.opset), dict(case.attributes)
    keys = [f"{name}={value}" if isinstance(value, str) else name for name, value in stated.items()]
    keys += [f"{name}<0" for name, value in stated.items() if isinstance(value, int) and value < 0]
    for position, formal in enumerate(schema.inputs):
        if formal.option.name == OPTIONAL:
            is_there = position < len(case.operands) and case.operands[position] is not None
            keys.append(f"input {formal.name}" if is_there else f"no input {formal.name}")
    for position, formal in enumerate(schema.outputs):
        if formal.option.name == OPTIONAL:
            is_made = position < case.outputs and position not in case.absent
            keys.append(f"output {formal.name}" if is_made else f"no output {formal.name}")
    keys += [
        f"empty input {slot}" for slot, one in enumerate(case.operands) if isinstance(one, Given) and 0 in one.shape
    ]
    return keys or ["as it is"]


def _default_of(attribute: Any) -> int:
    """Of an integer; ONNX Runtime's schemas hold it in bytes."""
    if hasattr(attribute, "default_value"):
        return int(attribute.default_value.i)
    return int(onnx.AttributeProto.FromString(attribute._default_value).i)


def changed(case: Case) -> Iterator[Case]:
    """The case, and the same changed in one thing."""
    schema, newest = (schema_of(case.domain, case.op_type, opset) for opset in (case.opset, MAX_OPSET))
    stated, values = dict(case.attributes), VALUES.get(qualified(case.domain, case.op_type), {})

    def having(name: str, value: Any) -> Case:
        opset = case.opset if name in schema.attributes else newest.since_version
        return replace(case, attributes=tuple(sorted({**stated, name: value}.items())), opset=opset)

    for name, attribute in sorted(newest.attributes.items()):
        kind, given = attribute.type.name, stated.get(name)
        if name in values:
            made = having(name, None)
            yield replace(made, attributes=tuple(sorted({**stated, **dict(values[name])}.items())))
        if name in DTYPES:
            yield having(name, 1)
        if name in DTYPES or name == "to":
            continue
        if kind == "STRING":
            words = words_of(case.op_type, name, schema.since_version)
            yield from (having(name, word) for word in (*words, NO_SUCH_WORD) if words)
        elif kind == "FLOAT":
            yield having(name, 0.7300000190734863)
        elif kind == "INT":
            default = _default_of(attribute)
            if name in ("axis", "batch_axis", "time_axis") and isinstance(case.operands[0], Given):
                yield having(name, (given if isinstance(given, int) else default) % len(case.operands[0].shape)
                             - len(case.operands[0].shape))  # fmt: skip
            elif given is None:
                yield having(name, 1 - default if default in (0, 1) else default)
    optional = [position for position, one in enumerate(schema.outputs) if one.option.name == OPTIONAL]
    if optional:
        most = max(case.outputs, optional[-1] + 1)
        yield replace(case, outputs=most, absent=())
        for position in optional:
            yield replace(case, outputs=most, absent=(position,))
        yield replace(case, outputs=most, absent=tuple(optional[:-1]))
    first = next((slot for slot, one in enumerate(case.operands) if isinstance(one, Given) and one.shape), None)
    for slot in () if first is None else (first,):
        operand = case.operands[slot]
        assert isinstance(operand, Given)
        empty = replace(operand, shape=(0, *operand.shape[1:]))
        yield replace(case, operands=(*case.operands[:slot], empty, *case.operands[slot + 1 :]))


def model_of(case: Case) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of the one op, and what it is fed."""
    generator, names, feeds, constants = np.random.default_rng(7), [], {}, []
    for slot, operand in enumerate(case.operands):
        names.append("" if operand is None else f"x{slot}")
        if isinstance(operand, Given):
            drawn = generator.uniform(operand.low, operand.high, operand.shape)
            if operand.dtype == "bool":
                drawn = drawn > 0
            elif np.dtype(operand.dtype).kind in "iu":
                drawn = generator.integers(int(operand.low), int(operand.high) + 1, operand.shape)
            feeds[f"x{slot}"] = drawn.astype(operand.dtype)
        elif operand is not None and operand.constant:
            constants.append(numpy_helper.from_array(operand.array, f"x{slot}"))
        elif operand is not None:
            feeds[f"x{slot}"] = operand.array
    made = tuple("" if position in case.absent else f"y{position}" for position in range(case.outputs))
    node = op_to_node(Op("the op", case.op_type, tuple(names), made, case.attributes, case.domain))
    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(one.dtype), one.shape)
              for name, one in feeds.items()]  # fmt: skip
    outputs = [onnx.ValueInfoProto(name=name) for name in made if name]
    graph = helper.make_graph([node], "one", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", case.opset), *([helper.make_opsetid(case.domain, 1)] if case.domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds


def near(one: np.ndarray, other: np.ndarray, tolerance: float = 2e-3) -> bool:
    """Whether an array is what the stock runtime makes, but for rounding."""
    if np.size(one) != np.size(other):
        return False
    one, other = np.asarray(one).astype(np.float64).reshape(np.shape(other)), np.asarray(other).astype(np.float64)
    largest = np.abs(other[np.isfinite(other)]).max(initial=0.0)
    return bool(np.allclose(one, other, rtol=tolerance, atol=tolerance * (largest or 1), equal_nan=True))


def tried(case: Case, reasons: list[str]) -> str:
    """A letter for each column."""
    try:
        model, feeds = model_of(case)
    except (TofuError, ValueError):
        return "-----"
    with tempfile.TemporaryDirectory() as folder:
        return _tried(case, model, feeds, Path(folder), reasons)


def _stock(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray] | None, bool]:
    """What the stock runtime makes, or None; and whether it takes the model at all, whatever it is fed."""
    inferred = onnx.shape_inference.infer_shapes(model)
    try:
        session(inferred, log_level=NO_ERRORS, threads=1)
        return run(inferred, feeds, log_level=NO_ERRORS, threads=1), True
    except Exception as error:  # noqa: BLE001 -- whatever the runtime raises, it refuses
        return None, "while running" in str(error)


def _tried(case: Case, model: onnx.ModelProto, feeds: dict[str, np.ndarray], folder: Path, reasons: list[str]) -> str:
    letters = dict.fromkeys(COLUMNS, "-")

    def step(column: str, action: Any) -> Any:
        try:
            found = action()
        except TofuError as error:
            letters[column], found = "r", None
            reasons.append(f"{case} {column}: {str(error).splitlines()[0]}")
        except Exception as error:  # noqa: BLE001 -- a crash is what is looked for
            letters[column], found = "C", None
            reasons.append(f"{case} {column}: CRASH {type(error).__name__}: {error}")
        return found

    file, plan, inputs = folder / "m.onnx", folder / "plan", folder / "in.npz"
    file.write_bytes(model.SerializeToString())
    np.savez(inputs, **feeds)
    planned = step("plan", lambda: api.plan(file, gpus=2, out=plan, effort="quick", rates=DEAR))
    if planned is None:
        return "".join(letters.values())
    stock, is_taken = _stock(model, feeds)
    ran = step("plan", lambda: api.run(plan, inputs=inputs if feeds else None, result=folder / "out.npz"))
    if ran is None:
        letters["plan"] = "P" if letters["plan"] == "r" and not is_taken else letters["plan"]
        return "".join(letters.values())
    if stock is None:
        letters["plan"] = "M"
        return "".join(letters.values())
    made = np.load(folder / "out.npz")
    ordered = np.sort if dict(case.attributes).get("sorted") == 0 else np.asarray
    is_random = any(word in case.op_type for word in ("Random", "Bernoulli", "Multinomial"))
    right = is_random or all(near(ordered(made[name]), ordered(array))
                             for name, array in stock.items() if name in made)  # fmt: skip
    letters["plan"] = "M" if right else "W"
    judged = step("judge", lambda: api.run(plan, inputs=inputs if feeds else None, verify=True))
    if judged is not None:
        letters["judge"] = "M" if judged.verified else "N"
    proven = step("prove", lambda: api.prove(plan))
    if proven is not None:
        letters["prove"] = "M" if proven.is_proven else "N"
    exported = step("jax", lambda: api.export(plan, jax=folder / "step.py"))
    if exported is not None:
        results = step("jax", lambda: _jax(folder / "step.py", feeds))
        if results is not None:
            same = is_random or all(near(ordered(results[name]), ordered(array))
                                    for name, array in stock.items() if name in results)  # fmt: skip
            letters["jax"] = "M" if same else "W"
    result = next((name for name, array in stock.items() if array.dtype == np.float32), None)
    if result and feeds and next(iter(feeds.values())).dtype == np.float32 and not is_random:
        slope = step("gradient", lambda: _slope(model, feeds, result))
        if slope is not None:
            letters["gradient"] = "M" if slope else "W"
    for column, letter in letters.items():
        if letter in "WN":
            reasons.append(f"{case} {column}: {letter}")
    return "".join(letters.values())


def _jax(file: Path, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    spec = importlib.util.spec_from_file_location("exported", file)
    assert spec is not None
    assert spec.loader is not None
    exported = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(exported)
    state, data = exported.placed(exported.STATE, feeds), exported.placed(exported.DATA, feeds)
    _, results = exported.step(state, data)
    return {name: np.asarray(exported.whole(name, array)) for name, array in results.items()}


def _slope(model: onnx.ModelProto, feeds: dict[str, np.ndarray], result: str) -> bool | None:
    """Whether the gradient by the first input, along a direction, is the difference of the loss there.

    None where the stock runtime refuses the step.
    """
    given = onnx.ModelProto()
    given.CopyFrom(model)
    name = given.graph.input[0].name
    del given.graph.input[0]
    given.graph.initializer.append(numpy_helper.from_array(feeds[name], name))
    del given.graph.output[:]
    weights = np.random.default_rng(5).uniform(0.5, 1.5, run(model, feeds, log_level=NO_ERRORS)[result].shape)
    given.graph.initializer.append(numpy_helper.from_array(weights.astype(np.float32), "weights"))
    given.graph.node.append(helper.make_node("Mul", [result, "weights"], ["weighed"]))
    given.graph.node.append(helper.make_node("ReduceSum", ["weighed"], ["loss"], keepdims=0))
    given.graph.output.append(helper.make_tensor_value_info("loss", onnx.TensorProto.FLOAT, []))
    forward = graph_from_proto(given, state_pairs=())
    training = build_training_graph(
        forward, loss="output:loss", optimizer="sgd", learning_rate=1.0, batchnorm="frozen", parameters=Parameters(
            (Decision(name, feeds[name].shape, Verdict.TRAINED, "asked for"),)
        ),
    )  # fmt: skip
    others = {key: array for key, array in feeds.items() if key != name}
    others |= {key: value for key, value in training.initial.items() if value is not None}
    others = {key: value for key, value in others.items() if key in training.inputs}
    try:
        moved = run(to_model(training), {**others, name: feeds[name]}, log_level=NO_ERRORS)
    except Exception:  # noqa: BLE001 -- its inference knows another size of an LpPool than its kernel
        return None
    following = next(pair.following for pair in training.state if pair.current == name)
    gradient = feeds[name].astype(np.float64) - moved[following]
    for seed, size in ((1, 2e-3), (2, 5e-4), (3, 1e-2), (4, 2e-2), (5, 1e-4)):
        direction = np.random.default_rng(seed).normal(size=feeds[name].shape)
        ends = [run(model, {**feeds, name: (feeds[name] + sign * size * direction).astype(np.float32)},
                    log_level=NO_ERRORS)[result].astype(np.float64) for sign in (1, -1)]  # fmt: skip
        difference = float(((ends[0] - ends[1]) * weights).sum() / (2 * size))
        along = float((gradient * direction).sum())
        if not np.isfinite(difference):
            return True  # the model itself makes no number there
        scale = max(abs(along), float(np.abs(gradient * direction).sum()) / 3, 0.3)
        if abs(difference - along) <= 0.04 * scale:
            return True
    return False


def trials_of(operator: str) -> list[tuple[Case, list[str]]]:
    """Cases of an operator, each with the rows that it says something of and none before it does."""
    cases = by_type((*all_cases(), *FUSED)).get(operator, ())
    known = {key for case in cases[:1] for key in keys_of(case)}
    others = [(other, sorted(set(keys_of(other)) - known)) for base in cases[:1] for other in changed(base)]
    seen: set[str] = set()
    found = []
    for case, keys in (*((case, keys_of(case)) for case in cases), *others):
        if not seen.issuperset(keys):
            found.append((case, keys))
            seen.update(keys)
    return found


def joined(rows: dict[str, str], keys: list[str], letters: str) -> None:
    """Adds what became of a case to the rows: of each column, the worse letter stays."""
    for key in keys:
        before = rows.get(key, "-----")
        rows[key] = "".join(min(pair, key=WORST.index) for pair in zip(letters, before, strict=True))


def operators() -> list[str]:
    """All that are described, and those of ONNX Runtime's that are read as others."""
    return sorted({*(qualified(*key) for key in opdefs.standard().described), *by_type(FUSED)})


def _child(names: list[str]) -> None:
    """Tries operators, each ``NAME:FIRST`` from a trial on, and prints each trial's letters."""
    warnings.simplefilter("ignore")
    for name, _, first in (text.partition(":") for text in names):
        for number, (case, keys) in enumerate(trials_of(name)):
            if number >= int(first):
                print(json.dumps(["begin", name, number, keys, str(case)]), flush=True)
                reasons: list[str] = []
                letters = tried(case, reasons)
                print(json.dumps(["end", name, number, keys, letters, reasons]), flush=True)
        print(json.dumps(["done", name]), flush=True)


def main(names: list[str], file: Path = FILE) -> None:
    """Tries operators in processes that may die, and writes the table as it grows."""
    table: dict[str, dict[str, str]] = json.loads(file.read_text()) if file.exists() else {}
    names = names or sorted(operators(), key=lambda name: -len(keys_of_operator(name)))
    pending = [(name, 0) for name in names]
    for name in names:
        table.pop(name, None)
    while pending:
        batch, pending = pending[:6], pending[6:]
        arguments = [f"{name}:{first}" for name, first in batch]
        child = subprocess.Popen([sys.executable, __file__, "--child", *arguments], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        begun: list[Any] = []
        for kind, name, *more in (json.loads(line) for line in child.stdout if line.startswith('["')):
            if kind == "done":
                batch = [one for one in batch if one[0] != name]
                continue
            begun = [name, *more] if kind == "begin" else []
            if kind == "end":
                joined(table.setdefault(name, {}), more[1], more[2])
                print(*more[3], sep="\n", end="\n" if more[3] else "", flush=True)
                _write(table, file)
        if batch and not begun:
            raise SystemExit(f"{batch[0][0]} cannot be tried")
        if begun:  # the process ended in this trial: it is one, and the rest comes after it
            name, number, keys, case = begun
            joined(table.setdefault(name, {}), keys, "C----")
            print(f"{case}: the process ended ({child.wait()})", flush=True)
            pending = [(name, number + 1), *[one for one in batch if one[0] != name], *pending]
        _write(table, file)


def _write(table: Mapping[str, Mapping[str, str]], file: Path) -> None:
    lines = [f" {json.dumps(name)}: {json.dumps(dict(sorted(table[name].items())))}" for name in sorted(table)]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(sys.argv[2:])
    elif sys.argv[1:2] == ["--into"]:
        main(sys.argv[3:], Path(sys.argv[2]))
    else:
        main(sys.argv[1:])
