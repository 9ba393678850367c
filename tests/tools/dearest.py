"""``--dearest N``: what tests take of the processor, all in all and the N that take most, at the end of a run.

Processes that a test starts and waits for are counted with it. The clock on the wall says more about what else runs.

``--most-seconds N`` fails a run whose tests take more. A slow machine is no fault of a test: the seconds are of a
processor that does a fixed loop in ``LOOP_SECONDS``, and the loop is timed as the run ends.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Generator, Iterator
from typing import Any, Final

import pytest

_BEGUN = pytest.StashKey[float]()
_SECONDS = "processor_seconds"
LOOP_SECONDS: Final = 0.1
"""What ``_loop_seconds`` gave on the machine on which the limit in ``.ci/run`` was set."""


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


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails a run whose tests take too much of the processor."""
    most, reporter = (
        session.config.getoption("--most-seconds"),
        session.config.pluginmanager.get_plugin("terminalreporter"),
    )
    if not most or reporter is None or hasattr(session.config, "workerinput"):
        return
    seconds = sum(dict(_of_tests(reporter)).values()) * LOOP_SECONDS / _loop_seconds()
    reporter.write_line(f"\nthe tests take {seconds:.0f} seconds of the processor, of {most:g} that they may take")
    if seconds > most and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _loop_seconds() -> float:
    """Of the processor, for the same work on every machine: the least of ten."""
    tries = []
    for _ in range(10):
        begun = time.process_time()
        sum({number: number % 7 for number in range(700_000)}.values())
        tries.append(time.process_time() - begun)
    return min(tries)


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
