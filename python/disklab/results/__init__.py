"""What a run found, stored so that nothing finished is lost and anybody can read it.

```python
import polars as pl
trials = pl.read_ndjson("disklab-runs/RUN/trials.jsonl", infer_schema_length=None).unnest("factors")
```
"""

from disklab.interrupts import take_back_ctrl_c
from disklab.results.figures import Level
from disklab.results.histogram import Histogram, HistogramError, Sum, decode, encode, merged
from disklab.results.records import (
    Band,
    Bands,
    Bottleneck,
    CreditsGone,
    ExperimentNote,
    Figure,
    LimitWait,
    Mode,
    Mover,
    NextSize,
    Operation,
    Phase,
    PlannedTrial,
    Price,
    ReadBack,
    Reason,
    Rebuild,
    Recovery,
    RuleFinding,
    RunInfo,
    Share,
    Status,
    SteadyState,
    StepTaken,
    Telemetry,
    TraceRecord,
    TrialResult,
    Yearly,
)
from disklab.results.reference import ReferenceRun, reference_runs
from disklab.results.run import DEFAULT_OUT, Run, begun, find_run, new_run_id, utc_now
from disklab.results.seconds import Second, SecondsWriter, Whole
from disklab.results.telemetry import TelemetryWriter

# These have brought polars.
take_back_ctrl_c()
