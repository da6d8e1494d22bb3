"""Watching a run once a second, and judging what was seen."""

from disklab.telemetry.judgement import Course, Judgement, Sampler, judge
from disklab.telemetry.sources import (
    DatabaseWatch,
    Disk,
    Emulator,
    Machine,
    Memory,
    ProcessCpu,
    Source,
)

__all__ = [
    "Course",
    "DatabaseWatch",
    "Disk",
    "Emulator",
    "Judgement",
    "Machine",
    "Memory",
    "ProcessCpu",
    "Sampler",
    "Source",
    "judge",
]
