"""Products."""

from __future__ import annotations

from planner.features.export.emitters.registry import Form, emitter


@emitter("MatMul")
def matmul(form: Form) -> str:
    """As NumPy has it."""
    return f"jnp.matmul({form[0]}, {form[1]})"


@emitter("Gemm")
def gemm(form: Form) -> str:
    """Alpha A B + beta C."""
    lhs, rhs = (
        f"{form[position]}.T" if form.integer(name) else form[position]
        for position, name in enumerate(("transA", "transB"))
    )
    product = f"jnp.matmul({lhs}, {rhs})"
    alpha, beta = form.number("alpha", 1.0), form.number("beta", 1.0)
    text = product if alpha == 1 else f"{alpha!r} * {product}"
    if form.has(2):
        text += f" + {form[2]}" if beta == 1 else f" + {beta!r} * {form[2]}"
    return text


@emitter("Einsum")
def einsum(form: Form) -> str:
    """By its equation."""
    texts = ", ".join(form[position] for position in range(len(form.operands)))
    return f"jnp.einsum({str(form.attribute('equation'))!r}, {texts})"
