"""Equal runs of calls are one function, and nothing else is."""

from __future__ import annotations

from planner.features.export.blocks import Block, Call, folded

_FORMS = ("matmul_1", "a + b", "relu", "matmul_2", "a * b", "tanh")


def _layers(count: int, forms: tuple[str, ...] = _FORMS) -> list[Call]:
    """Layers, each of a weight of its own and of what the one before made."""
    calls, last = [], "x"
    for layer in range(count):
        for number, form in enumerate(forms):
            output = f"t{layer}.{number}"
            calls.append(Call(form, True, (last, f"w{layer}.{number % 2}"), (output,)))
            last = output
    return calls


def _executed(calls: list[Call], blocks: dict[str, Block], values: dict[str, str]) -> dict[str, str]:
    """What each tensor is made of, in words."""
    for call in calls:
        arguments = [values.get(name, name) for name in call.inputs]
        if call.form in blocks:
            block = blocks[call.form]
            inner = _executed(list(block.calls), blocks, dict(zip(block.inputs, arguments, strict=True)))
            results = [inner[name] for name in block.outputs]
        else:
            results = [f"{call.form}({', '.join(arguments)})"]
        values.update(zip(call.outputs, results, strict=True))
    return values


def test_layers_are_one_block() -> None:
    calls = _layers(12)
    calls_left, blocks = folded(calls, ("t11.5",))
    assert (blocks[0].name, blocks[0].count, len(blocks[0].calls)) == ("block_1", 12, 6)
    assert blocks[0].inputs == ("x", "w0.0", "w0.1")
    assert blocks[0].outputs == ("t0.5",)
    assert len(calls_left) <= 12


def test_folded_calls_make_the_same() -> None:
    calls = [*_layers(7), Call("loss", True, ("t6.5", "t2.3"), ("loss",)), *_layers(3, (*_FORMS, "exp"))]
    calls_left, blocks = folded(calls, ("loss", "t1.2"))
    by_name = {block.name: block for block in blocks}
    unfolded, short = _executed(calls, {}, {}), _executed(calls_left, by_name, {})
    assert blocks
    assert (short["loss"], short["t1.2"]) == (unfolded["loss"], unfolded["t1.2"])


def test_another_wiring_is_another_block() -> None:
    calls = _layers(2)
    calls[9] = Call("matmul_2", True, ("t0.2", "w1.1"), ("t1.3",))  # reads what the first layer made
    calls_left, blocks = folded(calls, ("t1.5",))
    assert not blocks
    assert calls_left == calls
