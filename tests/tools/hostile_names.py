"""A model whose names would be markup, escapes of a terminal or code, if anybody took them for that."""

from __future__ import annotations

from pathlib import Path

from onnx import TensorProto, helper, save_model

IMAGE = "</script><img src=x onerror=alert(1)>"
ESCAPE = "\x1b[31m[bold]\"'&"
COMMENT = "]]><!--<script>alert(2)</script>"
OP = "<svg onload=alert(3)>`id`"


def hostile_model(folder: Path) -> Path:
    """A product of two tensors, each name a trap."""
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in ((IMAGE, [8, 6]), (ESCAPE, [6, 4]), (COMMENT, [8, 4]))
    ]
    node = helper.make_node("MatMul", [IMAGE, ESCAPE], [COMMENT], OP)
    graph = helper.make_graph([node], "</title><script>alert(4)</script>", values[:2], values[2:])
    file = folder / "hostile.onnx"
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), file)
    return file
