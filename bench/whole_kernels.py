"""What the kernels of ONNX Runtime's own operators save: processor time of the kernel and of the operator's body.

    python bench/whole_kernels.py        writes bench/results/whole-kernels.md

Both are executed by ONNX Runtime with one thread and its optimizer, in turns; the least of eleven counts. An operator
whose body takes as long as the kernel is read as its body (``planner/graph/decompositions/reading``); the others have
a description, by which they are planned whole. FastGelu is an exception: from opset 20 on its body is ONNX's Gelu.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from planner import opdefs
from planner.features.ops.cases.case import Case, Given, Known, execute_case, make, qualified
from planner.graph.core.model import Graph
from planner.graph.decompositions.expand import expand
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto

FILE = Path(__file__).parent / "results" / "whole-kernels.md"
ROUNDS = 11


def cases() -> Iterator[Case]:
    """Of the sizes of small networks."""

    def op(op_type: str, *operands: Any, opset: int = 17, **attributes: Any) -> Case:
        domain = "" if op_type.startswith("Simplified") else "com.microsoft"
        return make(op_type, *operands, domain=domain, opset=opset, **attributes)

    rows, wide, vector = (2, 512, 1024), (1024, 1024), (1024,)
    places = Known(np.random.default_rng(0).integers(0, 512, (2, 512)), constant=False)
    angles, packed = ((512, 32),) * 2, Given((2048, 64, 16), "uint8", 0, 255)
    bits: dict[str, Any] = {"N": 2048, "K": 2048, "bits": 4, "block_size": 32}
    yield op("RotaryEmbedding", rows, places, *angles, num_heads=16)
    yield op("SimplifiedLayerNormalization", rows, vector)
    yield op("MatMulNBits", (1, 2048), packed, (2048, 64), **bits)
    yield op("MatMulNBits", (512, 2048), packed, (2048, 64), **bits)
    yield op("MoE", (64, 256), (64, 8), (8, 1024, 256), None, (8, 256, 1024), k=2, activation_type="silu")
    yield op("MultiHeadAttention", *((2, 512, 512),) * 3, num_heads=8)
    ends, total = Known(np.array([511], np.int32)), Known(np.array(512, np.int32))
    stated: dict[str, Any] = {"num_heads": 16, "kv_num_heads": 4, "outputs": 3}
    yield op("GroupQueryAttention", (1, 512, 1024), *((1, 512, 256),) * 2, None, None, ends, total, **stated)
    yield op("Gelu", rows)
    yield op("BiasGelu", rows, vector)
    yield op("FastGelu", rows, vector)
    yield op("QuickGelu", rows)
    yield op("FusedMatMul", rows, wide, transB=1, alpha=0.5)
    yield op("FusedGemm", (512, 1024), wide, vector, activation="Relu")
    yield op("FusedConv", (2, 64, 56, 56), (64, 64, 3, 3), (64,), (2, 64, 56, 56), activation="Relu", pads=(1,) * 4)
    yield op("SkipLayerNormalization", rows, rows, vector, vector)
    yield op("SkipSimplifiedLayerNormalization", rows, rows, vector)


def seconds(graphs: tuple[Graph, ...], arrays: dict[str, np.ndarray]) -> list[float]:
    """Processor time of each."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    sessions = [
        onnxruntime.InferenceSession(to_model(graph).SerializeToString(), options, providers=["CPUExecutionProvider"])
        for graph in graphs
    ]
    least = [float("inf")] * len(sessions)
    for _ in range(ROUNDS):
        for position, session in enumerate(sessions):
            before = time.process_time()
            session.run(None, arrays)
            least[position] = min(least[position], time.process_time() - before)
    return least


def main() -> None:
    """Writes the table."""
    lines = ["# Kernels of ONNX Runtime's own operators, and their bodies", "", "`python bench/whole_kernels.py`", ""]
    lines += ["| operator | planned | kernel, ms | body, ms | body / kernel |", "| --- | --- | --- | --- | --- |"]
    described = opdefs.standard()
    for case in cases():
        graph, arrays, _ = execute_case(case)
        is_whole = (case.domain, case.op_type) in described
        read = graph_from_proto(to_model(graph), operators=described)
        kernel, parts = seconds((graph, expand(read, is_plan=False).graph if is_whole else read), arrays)
        how = "whole" if is_whole else "as its body"
        name = qualified(case.domain, case.op_type)
        lines.append(f"| `{name}` | {how} | {1e3 * kernel:.2f} | {1e3 * parts:.2f} | {parts / kernel:.2f} |")
        print(lines[-1], flush=True)
    FILE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
