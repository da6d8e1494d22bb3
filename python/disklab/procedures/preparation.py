"""Everything that is looked at before anything is changed; all problems at once."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from disklab import reading
from disklab.catalog import Catalog, load_catalog
from disklab.catalog.quantity import about_bytes
from disklab.databases import NodePlace, provision
from disklab.engine import server_account, unreachable
from disklab.engine.load import MOST_RATE_PER_S
from disklab.engine.locks import own_name
from disklab.errors import Problem, UserError, refuse
from disklab.hosts import requirements
from disklab.hosts.node import Progress
from disklab.hosts.places import Places
from disklab.procedures import device, replay
from disklab.procedures.build import Site, request_of, sizes_of
from disklab.procedures.jobs import FULL, QUICK
from disklab.procedures.life import Planned
from disklab.procedures.outcome import planned_record, share_record
from disklab.procedures.plan import data_bytes, expected_s, how_ordered, order
from disklab.procedures.turn import Turn
from disklab.results import (
    ExperimentNote,
    Run,
    RunInfo,
    Status,
    new_run_id,
    pricing,
    utc_now,
)
from disklab.spec import Experiment, Trial, parse
from disklab.spec.amounts import MOST_TIME_DILATION

DEFAULT_REPEATS = 3
"""The fewest with which a median tells an outlier from a trend."""
# Beside the rows: journals, commit log segments, and a compaction's second copy.
SPARE_RATIO = 2.5
SPARE_BYTES = 2 << 30


Check = Callable[[Sequence[Trial], Sequence[Turn], Catalog, Progress], dict[str, str]]
"""Raises everything that stands in the way on this machine; returns the versions used."""


@dataclass(frozen=True)
class Options:
    """How an experiment is to be rehearsed. Stored in the run: `--resume` goes on with the same."""

    scale: Fraction | None = None
    nodes: int | None = None
    time_dilation: int | None = None
    repeats: int = DEFAULT_REPEATS
    seed: int = 1
    quick: bool = False
    only: dict[str, list[str]] = field(default_factory=dict)

    def stored(self) -> dict[str, Any]:
        """Return the options for `run.json`."""
        return {
            "scale": None if self.scale is None else str(self.scale),
            "nodes": self.nodes,
            "time_dilation": self.time_dilation,
            "repeats": self.repeats,
            "seed": self.seed,
            "quick": self.quick,
            "only": self.only,
        }

    @classmethod
    def of(cls, stored: object, place: str) -> Options:
        """Return the options that a run was begun with. Raises UserError; `place` is its file."""
        try:
            return TypeAdapter(cls).validate_python(stored)
        except ValidationError as error:
            way_out = "begin another run; this one's file was changed or is damaged"
            raise UserError(
                *(
                    Problem(
                        f"{place}: {'.'.join(map(str, ('rehearse', *one['loc'])))}",
                        reading.shown(one["input"]),
                        one["msg"],
                        way_out,
                    )
                    for one in error.errors(include_url=False)
                )
            ) from None


@dataclass(frozen=True)
class Prepared(Planned):
    """A rehearsal that can begin."""

    options: Options
    site: Site

    @property
    def host_prefix(self) -> str:
        """What the names of this rehearsal's hosts begin with: no other process has them."""
        return own_name("rehearsal")


def prepare(
    experiment: Experiment,
    options: Options,
    out: Path,
    say: Progress,
    look: Check | None = None,
) -> Prepared:
    """Check everything and make the run's folder. Raises UserError with all problems.

    `look`: what looks at this machine; `check` by default.
    """
    refuse(list(_option_problems(options)))
    trials, turns = _plan(experiment, options, frozenset())
    catalog = load_catalog()
    versions = (look or check)(trials, turns, catalog, say)
    run = _create(experiment, trials, turns, options, out, catalog, versions)
    return _prepared(experiment, trials, turns, options, run, catalog)


def resume(  # noqa: PLR0913, PLR0917 - what the options of the command say
    name: str,
    out: Path,
    say: Progress,
    again: Collection[Status] = (),
    repeats: int | None = None,
    look: Check | None = None,
) -> Prepared:
    """Return a run that was stopped, with what is left of it; with more `repeats`, also those.

    Trials whose status is one of `again` are left too: what they measure next counts instead, and
    what they measured before stays in the run's files. Raises UserError.
    """
    account = server_account()
    run = Run.open_own(name, out, "--resume", None if account is None else account.uid)
    stored = (run.info.model_extra or {}).get("rehearse")
    if run.info.mode != "rehearse" or stored is None:
        rule = f"is a run of mode {run.info.mode}: only rehearsals can be resumed"
        raise UserError(Problem("--resume", str(run.folder), rule, "name a rehearsal"))
    options = Options.of(stored, str(run.folder / "run.json"))
    experiment = parse(run.experiment_text(), run.info.experiment.file)
    if repeats is not None:
        options = _with_repeats(run, options, repeats)
    stays = frozenset(result.key for result in run.results() if result.status not in again)
    trials, turns = _plan(experiment, options, stays)
    catalog = load_catalog()
    if turns:
        (look or check)(trials, turns, catalog, say)
    return _prepared(experiment, trials, turns, options, run, catalog)


def _with_repeats(run: Run, options: Options, repeats: int) -> Options:
    """Return the options with more repeats, and note them in the run. Raises UserError."""
    if repeats < options.repeats:
        rule = f"the run was started with {options.repeats} repeats, and its results are kept"
        way_out = f"give {options.repeats + 1} or more, or leave it out"
        raise UserError(Problem("--repeat", str(repeats), rule, way_out))
    more = replace(options, repeats=repeats)
    run.plan_again({"repeats": repeats, "rehearse": more.stored(), "ended": None})
    return more


def _plan(
    experiment: Experiment, options: Options, finished: frozenset[tuple[int, int]]
) -> tuple[list[Trial], list[Turn]]:
    chosen = experiment
    if options.only:
        chosen = experiment.only(options.only)
    trials = chosen.trials(
        "rehearse",
        scale=options.scale,
        nodes=options.nodes,
        time_dilation=options.time_dilation,
    )
    effort = QUICK if options.quick else FULL
    return trials, order(trials, options.repeats, options.seed, effort, finished)


def _prepared(  # noqa: PLR0913, PLR0917 - the parts of what it returns
    experiment: Experiment,
    trials: list[Trial],
    turns: list[Turn],
    options: Options,
    run: Run,
    catalog: Catalog,
) -> Prepared:
    places = Places.usual()
    site = Site(catalog, places, run.folder / "logs", options.seed)
    expected = expected_s(turns)
    return Prepared(
        experiment=experiment,
        trials=trials,
        turns=turns,
        expected_s=expected,
        seed=options.seed,
        run=run,
        catalog=catalog,
        options=options,
        site=site,
    )


def check(
    trials: Sequence[Trial],
    turns: Sequence[Turn],
    catalog: Catalog,
    say: Progress,
) -> dict[str, str]:
    """Raise everything that stands in the way on this machine; return the versions used."""
    problems = list(requirements.problems())
    if not turns:
        first = next(trial.refused for trial in trials if trial.refused is not None)
        raise UserError(*first.problems)
    kinds = {
        volume.filesystem
        for turn in turns
        if turn.spec.cluster is not None
        for volume in turn.spec.cluster.volumes.values()
    }
    for program in [*(f"mkfs.{kind}" for kind in sorted(kinds)), "mount", "umount", "blkid"]:
        if requirements.find_program(program) is None:
            way_out = f"install it: {requirements.how_to_get(program)}"
            rule = "the program is not installed"
            problems.append(Problem("this machine", program, rule, way_out))
    versions: dict[str, str] = {"disklab": version("disklab")}
    problems += _engine_problems(turns, catalog, say, versions)
    problems += _rate_problems(turns)
    problems += _space_problems(turns, Places.usual())
    if any(turn.spec.database is not None for turn in turns):
        problems += _reach_problems(Places.usual())
    if problems:
        raise UserError(*dict.fromkeys(problems))
    return versions


def _option_problems(options: Options) -> Iterator[Problem]:
    """Yield what is wrong with the options by themselves."""
    if options.repeats < 1:
        rule = "every trial runs at least once"
        yield Problem("--repeat", str(options.repeats), rule, "give 1 or more")
    if options.nodes is not None and options.nodes < 1:
        rule = "a cluster has at least one node"
        yield Problem("--nodes", str(options.nodes), rule, "give 1 or more")
    if options.time_dilation is not None and not 1 <= options.time_dilation <= MOST_TIME_DILATION:
        rule = f"time runs 1 to {MOST_TIME_DILATION} times slower"
        yield Problem("--time-dilation", str(options.time_dilation), rule, "write for example 8")


def _engine_problems(
    turns: Sequence[Turn], catalog: Catalog, say: Progress, versions: dict[str, str]
) -> list[Problem]:
    """Return what fio or the database lacks: Java, memory, a provider, settings that it knows.

    Nothing is started, but what has to be fetched is fetched. What is used is added to `versions`.
    """
    problems: list[Problem] = []
    seen = set()
    for turn in turns:
        database = turn.spec.database
        checked = turn.bed, "" if database is None else json.dumps(dict(database.settings))
        if checked not in seen:
            seen.add(checked)
            try:
                if turn.trial.spec.device is not None:
                    (device if turn.trial.spec.workload.trace is None else replay).check(turn)
                    continue
                turn.workload()
                found = provision(
                    request_of(turn, sizes_of(turn, catalog)), planned_places(turn), say
                )
                for name, release in found.versions.items():
                    # Turns may differ in it.
                    known = versions.get(name, release).split(", ")
                    versions[name] = ", ".join(dict.fromkeys([*known, release]))
            except UserError as error:
                problems += error.problems
    return problems


def planned_places(turn: Turn) -> list[NodePlace]:
    """Return places as the nodes of a turn will have them; nothing of them is there yet."""
    folder = Path("/nonexistent")
    volumes = {name: folder / name for name in turn.on_cluster.cluster.volumes}
    return [
        NodePlace(f"n{number}", f"127.0.0.{number}", volumes, folder / "run", folder / "logs")
        for number in range(1, turn.spec.nodes + 1)
    ]


def _rate_problems(turns: Sequence[Turn]) -> Iterator[Problem]:
    """Yield the rates that no load client offers. Lower ones are tried, and fall short or not."""
    for turn in turns:
        load = turn.spec.workload.load if turn.spec.workload else None
        rate = load.scheduled_per_s if load is not None else None
        if load is None or rate is None or rate <= MOST_RATE_PER_S:
            continue
        rule = f"of it {rate:,.0f}/s fall to this machine; at most {MOST_RATE_PER_S:,}/s"
        way_out = "offer less, or shrink the rates: `rehearse: {rate_scale: 1/10}`"
        key = "rate" if load.threads is None else "at_most"
        share = getattr(turn.trial.share, f"{key}_per_s")
        full = rate if share is None else float(share.full)
        yield Problem(f"workload.load.{key}", f"{full:,.0f}/s", rule, way_out)


def _space_problems(turns: Sequence[Turn], places: Places) -> Iterator[Problem]:
    """Yield that the largest bed does not fit the data directory."""
    folder, free = places.room()
    needed = max(data_bytes(turn) for turn in turns) * SPARE_RATIO + SPARE_BYTES
    if needed > free:
        rule = f"{folder} has {about_bytes(free)} free, the largest data set needs about that"
        way_out = "use a smaller --scale such as 1/1000, or set DISKLAB_DATA_DIR"
        yield Problem("DISKLAB_DATA_DIR", about_bytes(int(needed)), rule, way_out)


def _reach_problems(places: Places) -> Iterator[Problem]:
    """Yield that the user that databases run as cannot reach the run directory."""
    account = server_account()
    closed = unreachable(account, [places.run / "databases", places.run / "mounts"])
    if account is not None and closed is not None:
        rule = f"databases run as the user {account.name}, who may not pass through {closed}"
        way_out = f"open it (chmod o+x {closed}), or set DISKLAB_RUN_DIR to another directory"
        yield Problem("DISKLAB_RUN_DIR", str(places.run), rule, way_out)


def _create(  # noqa: PLR0913, PLR0917 - the parts of what it writes
    experiment: Experiment,
    trials: list[Trial],
    turns: list[Turn],
    options: Options,
    out: Path,
    catalog: Catalog,
    versions: dict[str, str],
) -> Run:
    file = str(experiment.path)
    info = RunInfo(
        id=new_run_id(file, "rehearse"),
        mode="rehearse",
        experiment=ExperimentNote(title=experiment.title, source=experiment.source, file=file),
        seed=options.seed,
        repeats=options.repeats,
        command=_command(file, options),
        started=utc_now(),
        environment=environment(),
        versions=versions,
        share=share_record(trials[0].share),
        prices=pricing.prices(catalog, trials),
        notes=[
            how_ordered(turns, options.repeats, options.seed),
            *slow_motion(trials[0].share.time_dilation),
        ],
    ).model_copy(update={"rehearse": options.stored()})
    planned = [planned_record(trial) for trial in trials]
    return Run.create(out, info, experiment_text=experiment.document.text, planned=planned)


def slow_motion(dilation: int) -> Iterator[str]:
    """Yield what a reader must know about the time that the figures are in."""
    if dilation == 1:
        return
    yield (
        f"time dilation {dilation}: a second of the described system took {dilation} s here, "
        f"disks, load and the database's own periods alike, so that {os.cpu_count()} CPUs do what "
        f"{dilation} times as many would; all figures are in the described system's time. Not "
        "slowed: the kernel's and the Java machine's own periods"
    )


def _command(file: str, options: Options) -> list[str]:
    """Return the one command that redoes the run."""
    command = ["disklab", "rehearse", file, "--seed", str(options.seed)]
    command += ["--repeat", str(options.repeats)]
    if options.scale is not None:
        command += ["--scale", str(options.scale)]
    if options.nodes is not None:
        command += ["--nodes", str(options.nodes)]
    if options.time_dilation is not None:
        command += ["--time-dilation", str(options.time_dilation)]
    if options.quick:
        command.append("--quick")
    for name, levels in options.only.items():
        command += [word for level in levels for word in ("--only", f"{name}={level}")]
    return command


def environment() -> dict[str, Any]:
    """Return what this machine is."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "memory_bytes": memory,
        "python": platform.python_version(),
    }
