"""A partitioned program is equal to its model, shown without running it; called, it is :func:`planner.api.prove`."""

from planner.callable_package import make_callable

make_callable(__name__)
