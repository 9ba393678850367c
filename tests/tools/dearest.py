"""``--dearest N``: what tests take of the processor, all in all and the N that take most, at the end of a run.

Processes that a test starts and waits for are counted with it. The clock on the wall says more about what else runs.
"""

from __future__ import annotations

import resource
from collections.abc import Generator, Iterator
from typing import Any

import pytest

_BEGUN = pytest.StashKey[float]()
_SECONDS = "processor_seconds"


def _processor_seconds() -> float:
    """Of this process since it began, and of those that it has waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    item.stash[_BEGUN] = _processor_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Writes the time into the last of a test's reports, which xdist brings to the process that prints."""
    report = yield
    if call.when == "teardown":
        report.user_properties.append((_SECONDS, _processor_seconds() - item.stash[_BEGUN]))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if count := config.getoption("--dearest"):
        seconds = dict(_of_tests(terminalreporter))
        terminalreporter.section(f"{sum(seconds.values()) / 60:.1f} minutes of the processor; the dearest tests")
        for name in sorted(seconds, key=lambda name: -seconds[name])[:count]:
            terminalreporter.line(f"{seconds[name]:7.1f} s  {name}")


def _of_tests(reporter: pytest.TerminalReporter) -> Iterator[tuple[str, float]]:
    for report in (report for reports in reporter.stats.values() for report in reports):
        for name, seconds in getattr(report, "user_properties", ()):
            if name == _SECONDS:
                yield report.nodeid, seconds
