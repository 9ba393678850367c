"""What commands print, as tables, pages, pictures and JSON; called, it is :func:`planner.api.report`."""

from planner.callable_package import make_callable

make_callable(__name__)
