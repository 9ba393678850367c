"""Decompositions of com.microsoft's operators, which onnxruntime-training's gradient builder emits.

Operand orders are those of the operators' schemas in onnxruntime. Some it has in ONNX's own domain as well, where ONNX
has none of the name, or has it later.
"""
