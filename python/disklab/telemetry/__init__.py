"""Watching a run once a second, and judging what was seen."""

from disklab.telemetry.judgement import Judgement, Sampler, judge
from disklab.telemetry.sources import (
    DatabaseWatch,
    Disk,
    Emulator,
    Machine,
    Memory,
    ProcessCpu,
    Source,
)
