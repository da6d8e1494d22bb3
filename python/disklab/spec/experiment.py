"""An experiment file, read once: its trials, and why some of them cannot be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from disklab.catalog.suggest import did_you_mean
from disklab.errors import Problem, UserError, refuse
from disklab.reading import MOST_TOLD, bounded, digits
from disklab.spec import feasible
from disklab.spec.located import (
    Document,
    Located,
    Site,
    complaints,
    document_of,
    read_document,
)
from disklab.spec.model import (
    ExperimentFile,
    Observed,
    Rehearse,
    TrialSpec,
    WrittenTrial,
)
from disklab.spec.patches import Factor, Level, Merge, combinations, factors_of
from disklab.spec.replay import OwnReplay, Replay, replay_of
from disklab.spec.share import Portion, Share, scaled_down, share_of
from disklab.spec.timetable import (
    MEASURED_KINDS,
    WHY_NOT_MEASURED,
    nodes_of,
)
from disklab.spec.timetable_checks import decided, section_problems

Mode = Literal["predict", "rehearse", "measure", "published"]

HEAD = ("title", "source", "observed", "rehearse", "factors")
"""Keys of a file that are not part of a trial."""


@dataclass(frozen=True)
class Refusal:
    """Why a trial is not run, as data."""

    place: str
    value: str
    rule: str
    way_out: str
    more: tuple[Problem, ...] = ()
    """Further reasons, where there are several."""

    @property
    def problems(self) -> list[Problem]:
        """All reasons, as errors tell them."""
        return [Problem(self.place, self.value, self.rule, self.way_out), *self.more]

    def __str__(self) -> str:
        """Return the first reason on one line."""
        return f"{self.place}: {self.value}: {self.rule}; {self.way_out}"


@dataclass(frozen=True)
class Trial:
    """One cell of the matrix."""

    index: int
    """Its number in the whole matrix, from 0; a selection keeps it."""
    factors: dict[str, str | int | float]
    """The level of each factor, as written, in the order of the file."""
    spec: TrialSpec
    """The full system."""
    share: Share
    """What of it is done here."""
    refused: Refusal | None = None
    replay: OwnReplay = field(default=None, repr=False, compare=False)
    """The trace of a workload that is one, as it lies on the volume."""

    @property
    def here(self) -> TrialSpec:
        """The trial with the figures of the share: what is really run."""
        return scaled_down(self.spec, self.share)


@dataclass(frozen=True)
class _Cell:
    """A trial before a mode has decided on its share."""

    index: int
    levels: tuple[Level, ...]
    tree: Located
    spec: TrialSpec
    volume_bytes: dict[str, int]
    problems: tuple[Problem, ...]
    replay: Replay | None = None


@dataclass(frozen=True)
class Experiment:
    """A checked experiment file."""

    document: Document
    title: str
    source: str
    rehearse: Rehearse
    factors: tuple[Factor, ...]
    cells: tuple[_Cell, ...] = field(repr=False)
    compares_copies: bool = False
    """Whether replication factors are among what the whole matrix compares."""
    observed: Observed | None = None

    @property
    def path(self) -> Path:
        """The file."""
        return self.document.path

    @property
    def kind(self) -> Literal["cluster", "device"]:
        """Whether a cluster or one device is measured."""
        return "cluster" if self.cells[0].spec.cluster is not None else "device"

    def trials(
        self,
        mode: Mode,
        *,
        scale: Fraction | None = None,
        nodes: int | None = None,
        time_dilation: int | None = None,
    ) -> list[Trial]:
        """Return the matrix in its order, the last factor fastest.

        What is given overrides the file's `rehearse`; other modes have the full system.
        """
        told = {"scale": scale, "nodes": nodes, "time_dilation": time_dilation}
        given = {name: value for name, value in told.items() if value is not None}
        wanted = self.rehearse.model_copy(update=given)
        portions = [portion_of(one.spec, mode, wanted, self.compares_copies) for one in self.cells]
        return [self._trial(*both, mode) for both in zip(self.cells, portions, strict=True)]

    def select(self, **levels: str | int | float | Sequence[str | int | float]) -> Experiment:
        """Return the part of the matrix in which each factor named has one of the levels.

        Raises UserError for factors and levels that the file does not have.
        """
        return self.only(
            {
                name: [given] if isinstance(given, str | int | float) else list(given)
                for name, given in levels.items()
            }
        )

    def only(
        self, wanted: Mapping[str, Sequence[str | int | float]], place: str = "--only"
    ) -> Experiment:
        """Return the part of the matrix in which each factor named has one of the levels.

        Raises UserError for factors and levels that the file does not have.
        """
        chosen = self.levels(wanted, place)
        kept = tuple(
            cell
            for cell in self.cells
            if all(
                str(level.label) in chosen.get(factor.name, [str(level.label)])
                for factor, level in zip(self.factors, cell.levels, strict=True)
            )
        )
        return replace(self, cells=kept)

    def levels(
        self, wanted: Mapping[str, Sequence[str | int | float]], place: str = "--only"
    ) -> dict[str, list[str]]:
        """Return a choice of levels by the factors' full names, each level by itself.

        The last part of a dotted path is enough where no other factor ends in it: `threads`. A
        level may be several with commas: `attached,local`. Raises UserError with all unknown ones.
        """
        problems: list[Problem] = []
        known = self.by_name()
        found: dict[str, list[str]] = {}
        for name, given in wanted.items():
            if name not in known:
                varied = ", ".join(factor.name for factor in self.factors)
                way_out = did_you_mean(name, known, f"the file varies {varied or 'nothing'}")
                problems.append(Problem(place, name, "is not a factor of the experiment", way_out))
                continue
            labels = [str(level.label) for level in known[name].levels]
            each = [one for level in given for one in split_levels(str(level), labels)]
            for level in each:
                if level not in labels:
                    way_out = did_you_mean(level, labels, f"choose {', '.join(labels)}")
                    problems.append(Problem(place, level, f"is not a level of {name}", way_out))
            found.setdefault(known[name].name, []).extend(each)
        refuse(problems)
        return found

    def by_name(self) -> dict[str, Factor]:
        """Return the factors by name, and by the last part of a path that no other ends in."""
        known = {factor.name: factor for factor in self.factors}
        ends = Counter(name.rpartition(".")[2] for name in known)
        for factor in self.factors:
            end = factor.name.rpartition(".")[2]
            if ends[end] == 1:
                known.setdefault(end, factor)
        return known

    def _trial(self, cell: _Cell, portion: Portion, mode: Mode) -> Trial:
        problems = [*cell.problems, *self._timetable_problems(cell, portion, mode)]
        copies = cell.spec.copies
        if not portion.fewer_copies and portion.nodes < copies <= cell.spec.nodes:
            rule = (
                f"replication factor {copies} needs {copies} nodes; this rehearsal has "
                f"{portion.nodes}"
            )
            place = self.document.place(("database", "replication_factor"), cell.tree)
            problems.append(Problem(place, str(copies), rule, f"--nodes {copies}"))
        share = share_of(cell.spec, portion, feasible.catalogue(), cell.volume_bytes)
        labels = {
            factor.name: level.label
            for factor, level in zip(self.factors, cell.levels, strict=True)
        }
        return Trial(cell.index, labels, cell.spec, share, refusal_of(problems), cell.replay)

    def _timetable_problems(self, cell: _Cell, portion: Portion, mode: Mode) -> Iterator[Problem]:
        """Yield what a mode cannot do of a trial's timetable or trace."""
        for number, event in enumerate(cell.spec.events):
            if mode == "measure" and event.kind not in MEASURED_KINDS:
                rule = (
                    f"on hosts a timetable has {', '.join(MEASURED_KINDS)} of databases that "
                    f"disklab builds: {WHY_NOT_MEASURED[event.kind]}"
                )
                place = self.document.place(("events", number, event.kind), cell.tree)
                yield Problem(place, event.kind, rule, "use `disklab rehearse`")
        if cell.spec.workload.trace is not None and mode == "measure":
            rule = (
                "a trace is replayed only on emulated disks, because it writes where the trace did"
            )
            place = self.document.place(("workload", "trace"), cell.tree)
            yield Problem(place, cell.spec.workload.trace.file, rule, "use `disklab rehearse`")
        if cell.spec.client.on_server and mode == "measure":
            rule = "on hosts the load comes from client hosts, or from where disklab runs"
            place = self.document.place(("client", "on_server"), cell.tree)
            yield Problem(place, "true", rule, "use `disklab rehearse`, or leave the key out")
        added = {event.node for event in cell.spec.events if event.kind == "add"}
        for number, event in enumerate(cell.spec.events):
            most = max(map(_number, {*nodes_of(event, cell.spec.cluster)} - added), default=0)
            if mode == "rehearse" and most > portion.nodes:
                rule = f"this rehearsal has {portion.nodes} of the cluster's nodes"
                place = self.document.place(("events", number, event.kind), cell.tree)
                yield Problem(place, event.node, rule, f"--nodes {most}")


def _number(node: str) -> int:
    return int(node.removeprefix("n"))


def portion_of(spec: TrialSpec, mode: Mode, wanted: Rehearse, compares_copies: bool) -> Portion:
    """Return what a mode runs of a trial's system.

    A database that stands in for the cluster's shows what one of its nodes does, and so does one
    node of a cluster all of whose trials have as many copies.
    """
    full = spec.nodes
    if mode != "rehearse":
        return Portion(nodes=full)
    engine = wanted.engine
    stands_in = spec.database is not None and engine not in (None, spec.engine)
    return Portion(
        nodes=min(wanted.nodes or spec.copies, full),
        scale=wanted.scale,
        rate_scale=wanted.rate_scale,
        time_dilation=wanted.time_dilation,
        engine=engine,
        stands_in=stands_in,
        fewer_copies=stands_in or not compares_copies,
    )


def split_levels(text: str, labels: Sequence[str]) -> list[str]:
    """Return the levels of a list with commas; a level's own name may have commas as well."""
    if text in labels:
        return [text]
    parts = [part.strip() for part in text.split(",")]
    found: list[str] = []
    while parts:
        # The longest run of parts that is a level's name; else the part alone, to be refused.
        run = next((n for n in range(len(parts), 0, -1) if ", ".join(parts[:n]) in labels), 1)
        found.append(", ".join(parts[:run]))
        parts = parts[run:]
    return found


def refusal_of(problems: Sequence[Problem]) -> Refusal | None:
    """Return the problems as one refusal."""
    if not problems:
        return None
    first = problems[0]
    return Refusal(first.place, first.value, first.rule, first.way_out, tuple(problems[1:]))


def load(path: Path | str) -> Experiment:
    """Return the experiment of a file.

    Raises UserError with all problems: each has file, line, key, value, rule and way out. What
    holds for some trials only (caching that a disk does not have, data that do not fit) refuses
    those.
    """
    return experiment_of(read_document(Path(path)))


def parse(text: str, path: Path | str = "experiment.yaml") -> Experiment:
    """Return the experiment of a text; `path` is what the errors call it."""
    return experiment_of(document_of(Path(path), text))


def experiment_of(document: Document) -> Experiment:
    """Return a document's experiment. Raises UserError with all problems."""
    problems: list[Problem] = []
    head = _head(document, problems)
    factors = factors_of(document, problems)
    entries = document.root.mapping or {}
    base = replace(document.root, value={k: v for k, v in entries.items() if k not in HEAD})
    _check_baseline(document, base, problems)
    merge = Merge(document, problems)
    made: list[tuple[int, tuple[Level, ...], Located, TrialSpec]] = []
    for index, levels in enumerate(combinations(factors)):
        # What is wrong in the baseline is wrong in each trial.
        problems[:] = dict.fromkeys(problems)
        if len(problems) > MOST_TOLD:
            break
        tree = merge.tree(base, levels)
        problems += islice(feasible.unknown_names(Site(document, tree)), MOST_TOLD + 1)
        spec = _validated(document, tree, problems)
        if spec is not None:
            made.append((index, levels, tree, spec))
    if head is None or problems:
        raise _error_of(problems)
    cells = [_cell(document, *parts) for parts in made]
    shared = set(cells[0].problems).intersection(*(cell.problems for cell in cells))
    # In their own order: that of a set differs from run to run.
    raise_all(problem for problem in cells[0].problems if problem in shared)
    copies = {cell.spec.copies for cell in cells}
    return Experiment(
        document,
        head.title,
        head.source,
        head.rehearse,
        tuple(factors),
        tuple(cells),
        compares_copies=len(copies) > 1,
        observed=head.observed,
    )


def raise_all(problems: Iterable[Problem]) -> None:
    """Raise UserError when there are problems: each once, in the order of the file."""
    some = list(problems)
    if some:
        raise _error_of(some)


def _error_of(problems: Iterable[Problem]) -> UserError:
    unique = sorted(dict.fromkeys(problems), key=_line)
    return UserError(*bounded(unique, unique[0].place.split(": ")[0]))


def _line(problem: Problem) -> int:
    parts = problem.place.split(": ")[0].rsplit(":", 1)
    return (digits(parts[1]) or 0) if len(parts) == 2 else 0


def _head(document: Document, problems: list[Problem]) -> ExperimentFile | None:
    """Return title, source, observed and rehearse."""
    entries = {k: v for k, v in (document.root.mapping or {}).items() if k in HEAD}
    plain = {key: value.plain() for key, value in entries.items() if key != "factors"}
    if plain.get("rehearse", {}) is None:
        plain.pop("rehearse")
    # The workload is the trials' business; any one will do here.
    probe = {"workload": {"operations": {"read": 1}}, **plain}
    try:
        return ExperimentFile.model_validate(probe)
    except ValidationError as error:
        found = complaints(error, ExperimentFile, document, document.root)
        problems += [problem for _, _, problem in found]
        return None


def _check_baseline(document: Document, base: Located, problems: list[Problem]) -> None:
    """Note wrong words of the baseline, also where every level overrides them.

    What is missing, or contradicts another key, may be a level's to mend: the trials tell.
    """
    try:
        WrittenTrial.model_validate(base.plain())
    except ValidationError as error:
        for key, kind, problem in complaints(error, ExperimentFile, document, base):
            if kind == "extra_forbidden" or (kind != "missing" and base.at(key).mapping is None):
                problems.append(problem)


def _validated(document: Document, tree: Located, problems: list[Problem]) -> TrialSpec | None:
    """Return a trial's spec with its defaults decided."""
    try:
        spec = WrittenTrial.model_validate(tree.plain())
    except ValidationError as error:
        problems += [problem for _, _, problem in complaints(error, ExperimentFile, document, tree)]
        return None
    before = len(problems)
    problems += section_problems(spec, Site(document, tree))
    return decided(spec) if len(problems) == before else None


def _cell(
    document: Document, index: int, levels: tuple[Level, ...], tree: Located, spec: TrialSpec
) -> _Cell:
    site = Site(document, tree)
    problems = [*feasible.impossible(spec, site), *feasible.newcomer_problems(spec, site)]
    volumes: dict[str, int] = {}
    replay = None
    try:
        resolved = feasible.resolve_volumes(spec, site)
    except UserError as error:
        problems += error.problems
    else:
        volumes = {name: made.volume.size_bytes for name, made in resolved.items()}
        data = volumes["data"] if "data" in volumes else volumes[_data_device(spec)]
        rows = feasible.rows_that_fill(spec, data)
        if rows is not None and spec.dataset is not None:
            dataset = spec.dataset.model_copy(update={"rows": rows})
            spec = spec.model_copy(update={"dataset": dataset})
        problems += feasible.too_large(spec, data, site)
        if spec.workload.trace is not None:
            replay, found = _replay(document, spec, data, site)
            problems += found
    return _Cell(index, levels, tree, spec, volumes, tuple(problems), replay)


def _replay(
    document: Document, spec: TrialSpec, volume_bytes: int, site: Site
) -> tuple[Replay | None, list[Problem]]:
    """Return the trace of a trial on its volume, or what is wrong with it."""
    place = site.place(("workload", "trace"))
    try:
        return replay_of(spec, document.path.parent, volume_bytes, place)
    except UserError as error:
        return None, [*error.problems]


def _data_device(spec: TrialSpec) -> str:
    return spec.cluster.device_of("data") if spec.cluster else "data"


__all__ = ["Experiment", "Mode", "Refusal", "Trial", "load", "parse"]
