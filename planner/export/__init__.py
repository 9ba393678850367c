"""Plans for other runtimes: a step in JAX, placements for PyTorch; called, it is :func:`planner.api.export`."""

from planner.callable_package import make_callable

make_callable(__name__)
