"""ONNX Runtime's operators that do several things at once, written in others before a plan is made.

Written out, each part is split by itself, has a gradient and a reference of its own, and ONNX Runtime's optimizer makes
the kernel again where a worker has all of it. Operators whose kernel does what its parts cannot keep a description
(``planner.opdefs``): attentions, mixtures of experts, products with weights of few bits.
"""
