"""A run on the disk: made once, appended to, read by anybody at any time."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import polars as pl

from disklab import durable, reading
from disklab.catalog.suggest import suggestions
from disklab.errors import Problem, UserError
from disklab.folders import Inside, check_own
from disklab.results.histogram import Histogram
from disklab.results.records import (
    FORMAT,
    ExperimentNote,
    Mode,
    PlannedTrial,
    RunInfo,
    TrialResult,
)
from disklab.results.required import StoredTrial
from disklab.results.seconds import (
    Course,
    Second,
    SecondsWriter,
    read_course,
    read_wholes,
    stream,
)
from disklab.results.telemetry import TelemetryWriter, parts_of, results_frame, scan_telemetry

DEFAULT_OUT = Path("disklab-runs")
INFO, EXPERIMENT, PLAN, TRIALS = "run.json", "experiment.yaml", "resolved.json", "trials.jsonl"
FOLDERS = ("histograms", "telemetry", "logs")


def new_run_id(file: str, mode: str, now: datetime | None = None) -> str:
    """Return `<file stem>-<mode>-<UTC time>-<4 random>`; of `x.disklab.yaml` the stem is `x`."""
    stamp = (now or datetime.now(timezone.utc)).strftime("%Y%m%dT%H%M%S")
    return f"{Path(file).stem.removesuffix('.disklab')}-{mode}-{stamp}-{secrets.token_hex(2)}"


def utc_now() -> str:
    """Return the time as results note it: UTC, ISO 8601, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def begun(mode: Mode, experiment: ExperimentNote, **more: Any) -> RunInfo:
    """Return what is known of a run that this command begins; `more`: other facts of it."""
    return RunInfo(
        # A probe of a disk alone has no file.
        id=new_run_id(experiment.file or "disk", mode),
        mode=mode,
        experiment=experiment,
        command=["disklab", *sys.argv[1:]],
        started=utc_now(),
        **more,
    )


@dataclass
class Run:
    """A run's folder. Reading needs no lock and works while another process appends."""

    folder: Path
    info: RunInfo
    torn: tuple[str, ...] = ()
    """What was unreadable in `trials.jsonl`, for a warning: a crash's last line."""
    _results: dict[tuple[int, int], TrialResult] = field(default_factory=dict, repr=False)
    _planned: list[PlannedTrial] | None = field(default=None, repr=False)

    @classmethod
    def create(
        cls,
        out: Path,
        info: RunInfo,
        *,
        experiment_text: str = "",
        planned: Sequence[PlannedTrial] = (),
        beside: Mapping[str, str] | None = None,
    ) -> Run:
        """Make the folder `<out>/<info.id>`; a user error when it cannot be made or is there.

        `beside`: texts of more files by name, which it needs to go on.
        """
        folder = out / info.id
        try:
            out.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
            for name in FOLDERS:
                Inside(folder, name).make_folder()
            for name, text in {EXPERIMENT: experiment_text, **(beside or {})}.items():
                durable.write_whole(Inside(folder, name), text)
            plan = [trial.model_dump(mode="json") for trial in planned]
            durable.write_whole(
                Inside(folder, PLAN), json.dumps(plan, ensure_ascii=False, indent=1)
            )
            run = cls(folder, info)
            # Written last: a folder with run.json is a run.
            durable.write_whole(run.inside(INFO), run._info_text())
        except OSError as error:
            if not isinstance(error, FileExistsError):
                with suppress(OSError):  # nothing has run, and half a run is in the way
                    Inside(out, info.id).remove_tree()
            rule = f"cannot be written: {error.strerror}"
            way_out = "name a folder that you may write to, with space in it"
            raise UserError(Problem("--out", str(folder), rule, way_out)) from None
        return run

    @classmethod
    def open(cls, name: str | Path, out: Path = DEFAULT_OUT) -> Run:
        """Return a run by its folder, its id, or an unambiguous beginning of the id in `out`."""
        folder = find_run(name, out)
        info = reading.record(Inside(folder, INFO), RunInfo, reading.RUN_INFO)
        if info.format > FORMAT:
            rule = f"has format {info.format}, this disklab reads up to {FORMAT}"
            raise UserError(Problem("RUN", str(folder), rule, "use a newer disklab"))
        run = cls(folder, info)
        run.reload()
        return run

    @classmethod
    def open_own(cls, name: str | Path, out: Path, place: str, also: int | None = None) -> Run:
        """Return a run that is to be gone on with, as `open` does.

        A user error for one that may be another's trap: a folder of another user, or one that
        holds links, pipes or devices. `also`: a user of the system whose logs may lie in it.
        Nothing is written.
        """
        folder = find_run(name, out)
        check_own(folder, place, also)
        return cls.open(folder)

    def inside(self, name: str) -> Inside:
        """Return a file or folder of the run, by its name below the run's folder."""
        return Inside(self.folder, name)

    def reload(self) -> None:
        """Read `trials.jsonl` again: another process may have appended."""
        with reading.many():
            self._results, self.torn = _read_trials(self.inside(TRIALS))

    @contextmanager
    def writing(self) -> Iterator[Run]:
        """Be the only writer: lock the run, and set aside what a crash tore.

        Raises a user error when another process writes to it.
        """
        with ExitStack() as lock:
            with durable.writing_to(self.folder):
                lock.enter_context(durable.sole_writer(self.folder))
                durable.set_torn_end_aside(self.inside(TRIALS))
            self.reload()
            yield self

    def append(self, result: TrialResult) -> None:
        """Store a finished repeat; when this returns, it is on the disk.

        A later result of the same trial and repeat counts instead of an earlier one, which stays
        in the file.
        """
        told = result if result.run else result.model_copy(update={"run": self.info.id})
        with durable.writing_to(self.folder):
            durable.append_line(self.inside(TRIALS), told.model_dump_json())
        self._results[told.key] = told

    def plan_again(self, update: Mapping[str, Any]) -> None:
        """Note that a run goes on further than planned: what `update` changes of its facts."""
        self.info = self.info.model_copy(update=dict(update))
        self._write_info()

    def end(self, notes: Sequence[str] = ()) -> None:
        """Note that the run is over."""
        update = {"ended": utc_now(), "notes": [*self.info.notes, *notes]}
        self.info = self.info.model_copy(update=update)
        self._write_info()

    def results(self) -> list[TrialResult]:
        """Return what is finished, in the order of trial and repeat."""
        return [self._results[key] for key in sorted(self._results)]

    def finished(self) -> set[tuple[int, int]]:
        """Return which (trial, repeat) have a result, of whatever status."""
        return set(self._results)

    def planned(self) -> list[PlannedTrial]:
        """Return the trials as they were resolved before the run. Raises UserError."""
        if self._planned is None:
            path = self.inside(PLAN)
            there = path.exists()
            with reading.many():
                stored = reading.records(path, StoredTrial, reading.PLAN) if there else []
            self._planned = [*stored]
        return self._planned

    def experiment_text(self) -> str:
        """Return the experiment's text as it was when the run began. Raises UserError."""
        return reading.text(self.inside(EXPERIMENT), reading.EXPERIMENT)

    def frame(self) -> pl.DataFrame:
        """Return one row for each finished repeat; see `disklab.results.telemetry`."""
        return results_frame(self.info, self.results())

    def record_seconds(self, trial: int, repeat: int) -> SecondsWriter:
        """Return the writer of a repeat's course; what an interrupted try left is kept aside."""
        path = self._of_repeat("histograms", trial, repeat, "jsonl")
        with durable.writing_to(self.folder):
            durable.set_aside(path)
            return SecondsWriter(path)

    def record_telemetry(self, trial: int, repeat: int) -> TelemetryWriter:
        """Return the writer of a repeat's telemetry; what an interrupted try left is kept aside."""
        path = self._of_repeat("telemetry", trial, repeat, "parquet")
        with durable.writing_to(self.folder):
            durable.set_aside(path)
            durable.set_aside(parts_of(path))
            return TelemetryWriter(path)

    def course(self, trial: int, repeat: int) -> Course:
        """Return the seconds and histograms of a repeat; empty when none were kept."""
        return read_course(self._of_repeat("histograms", trial, repeat, "jsonl"))

    def seconds(self, trial: int, repeat: int) -> Iterator[Second]:
        """Yield the seconds of a repeat as they lie in the file: runs may be long."""
        for one in stream(self._of_repeat("histograms", trial, repeat, "jsonl")):
            if isinstance(one, Second):
                yield one

    def response(self, trial: int, repeat: int) -> Histogram | None:
        """Return a repeat's response times in ns, of all operations; None when none were kept."""
        wholes = read_wholes(self._of_repeat("histograms", trial, repeat, "jsonl"))
        return Course(wholes=wholes).response()

    def telemetry(self, trial: int, repeat: int) -> pl.LazyFrame:
        """Return the telemetry of a repeat; empty when none was kept."""
        return scan_telemetry(self._of_repeat("telemetry", trial, repeat, "parquet"))

    def log_folder(self, trial: int, repeat: int) -> Path:
        """Return where a repeat's logs go; makes it."""
        folder = self.inside(f"logs/{trial}-{repeat}")
        with durable.writing_to(self.folder):
            self.inside("logs").make_folder(exist_ok=True)
            folder.make_folder(exist_ok=True)
        return folder.path

    def _of_repeat(self, kind: str, trial: int, repeat: int, suffix: str) -> Inside:
        return self.inside(f"{kind}/{trial}-{repeat}.{suffix}")

    def _write_info(self) -> None:
        with durable.writing_to(self.folder):
            durable.write_whole(self.inside(INFO), self._info_text())

    def _info_text(self) -> str:
        return self.info.model_dump_json(indent=1) + "\n"


def find_run(name: str | Path, out: Path = DEFAULT_OUT) -> Path:
    """Return a run's folder by folder, id or beginning of an id; a user error otherwise."""
    given = Path(name)
    for folder in (given, out / given):
        # A name can be too long for any file.
        with suppress(OSError):
            # A link to a run is followed here, and nowhere below.
            real = folder.resolve() if folder.is_symlink() else folder
            if Inside(real, INFO).exists():
                return real
            if str(name) and all((folder / part).is_dir() for part in FOLDERS):
                rule = f"was killed before it began: it has no {INFO}, and nothing has run"
                raise UserError(Problem("RUN", str(folder), rule, "remove it, and start the run"))
    known = sorted((path.parent.name for path in out.glob(f"*/{INFO}")), key=_age, reverse=True)
    begun = [run for run in known if str(name) and run.startswith(str(name))]
    if len(begun) == 1:
        return out / begun[0]
    if begun:
        rule, way_out = "is the beginning of several runs", f"name one: {', '.join(begun[:4])}"
    elif known:
        near = suggestions(str(name), known) or known[:3]
        rule = f"is neither a run's folder nor the id of one in {out}"
        way_out = f"the nearest: {', '.join(near)}"
    else:
        rule = f"is not a run's folder, and {out} holds no runs"
        way_out = "name the folder that holds run.json"
    raise UserError(Problem("RUN", str(name), rule, way_out))


def _age(run_id: str) -> str:
    """Return the part of an id that sorts by time."""
    return "-".join(run_id.split("-")[-2:])


def _read_trials(path: Inside) -> tuple[dict[tuple[int, int], TrialResult], tuple[str, ...]]:
    """Return the results by trial and repeat, and the lines that are none of this run's."""
    results: dict[tuple[int, int], TrialResult] = {}
    torn: list[str] = []
    if not path.exists():
        return results, ()
    for number, line in enumerate(reading.lines(path, reading.TRIALS), start=1):
        if line is not None and not line.strip():
            continue
        found = _result(line, next(iter(results.values()), None))
        if isinstance(found, TrialResult):
            results[found.key] = found
        else:
            torn.append(f"{path}:{number}: left out, {found}")
    more = len(torn) - reading.MOST_TOLD
    if more > 0:
        torn[reading.MOST_TOLD :] = [f"{path}: {more} more lines are left out"]
    return results, tuple(torn)


def _result(line: bytes | None, first: TrialResult | None) -> TrialResult | str:
    """Return what a line tells, or why it is not a result of the run that `first` is of."""
    if line is None:
        return f"it has more than {reading.TRIALS.most_line_bytes} bytes"
    try:
        found = reading.parse(TrialResult, line)
    except reading.NotAsExpectedError as error:
        return f"it is not a result: {error}"
    if first is not None and found.factors.keys() != first.factors.keys():
        names = ", ".join(map(reading.shown, found.factors))
        return f"its factors are not the first result's: {names or 'none'}"
    return found
