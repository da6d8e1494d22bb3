"""What each test costs the processors, with the programs that it started and saw end.

Summed for `make test`, which prints the dearest of all its runs: see `scripts/part.sh`.
"""

from __future__ import annotations

import resource
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

# Lines of `SECONDS<tab>TEST`; `make test` begins it anew.
FILE = Path("target/tests.tsv")
MARK = "processor_s"


def pytest_configure(config: pytest.Config) -> None:
    """Count in the process that hears of all tests."""
    config.pluginmanager.register(Costs(), "costs of tests")


class Costs:
    """Processor seconds by test, of this process since the last report, and of all that report."""

    def __init__(self) -> None:
        self.since_s = processor_s()
        self.by_test: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        """Tell the report of one phase what the phase has cost; a worker sends it along."""
        report = yield
        now_s = processor_s()
        setattr(report, MARK, now_s - self.since_s)
        self.since_s = now_s
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase to its test."""
        self.by_test[report.nodeid.split("@")[0]] += getattr(report, MARK, 0.0)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Append the tests of this run, where there is a build folder of ours."""
        folder = session.config.rootpath / FILE.parent
        if hasattr(session.config, "workerinput") or not folder.is_dir():
            return
        with (folder / FILE.name).open("a", encoding="utf-8") as file:
            file.writelines(f"{cost:.2f}\t{test}\n" for test, cost in self.by_test.items())


def processor_s() -> float:
    """Return what this process and its ended children have used."""
    usages = (
        resource.getrusage(resource.RUSAGE_SELF),
        resource.getrusage(resource.RUSAGE_CHILDREN),
    )
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
