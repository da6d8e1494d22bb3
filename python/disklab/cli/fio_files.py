"""Files of other tools: fio's jobs where an experiment is expected, results of yugabyte/tpcc."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from disklab import reading, spec
from disklab.cli.amounts import Out, disk_names, vm_names
from disklab.cli.experiment import ExperimentFile, Only, chosen
from disklab.cli.output import Json, console, notes, print_json
from disklab.errors import Problem, UserError, refuse_given
from disklab.report import wording
from disklab.results import (
    DEFAULT_OUT,
    ExperimentNote,
    Run,
    TrialResult,
    begun,
)
from disklab.results import yugabyte_tpcc as tpcc
from disklab.spec.fio_file import On, experiment_text, is_fio_file

Disks = Annotated[
    list[str] | None,
    typer.Option(
        "--disk",
        help="Of fio's job file: the disk; several are compared.",
        metavar="DISKS",
        autocompletion=disk_names,
    ),
]
Measured = Annotated[
    str | None,
    typer.Option(
        "--disk",
        help="Of fio's JSON output: the disk that it measured.",
        metavar="DISKS",
        autocompletion=disk_names,
    ),
]
Vm = Annotated[
    str | None,
    typer.Option(
        "--vm",
        help="Of fio's files: the VM; without it a large one, so that the disk decides.",
        metavar="VM",
        autocompletion=vm_names,
    ),
]
Caching = Annotated[
    str | None,
    typer.Option("--caching", help="Of fio's files: host caching.", metavar="MODE"),
]
Write = Annotated[
    Path | None,
    typer.Option("--write", help="Of fio's job file: keep the experiment file.", metavar="FILE"),
]

LARGE_VMS = {
    "azure": "azure/Standard_E64s_v3",
    "aws": "aws/m6i.32xlarge",
    "gcp": "gcp/n2-standard-80",
}
"""Where a disk is asked alone: limits above those of nearly every disk."""


@contextmanager
def as_experiment(
    path: Path, disks: list[str] | None, vm: str | None, caching: str | None, write: Path | None
) -> Iterator[Path]:
    """Yield the experiment file of a path: of a job file one made of it, else the path itself."""
    if not is_fio_file(path):
        given = {"--disk": ", ".join(disks or ()) or None, "--vm": vm, "--caching": caching}
        rule = "an experiment file names its own disks; this is for fio's job files"
        refuse_given({**given, "--write": write}, rule)
        yield path
        return
    if not disks:
        rule = "a job file does not say which disk it is for"
        raise UserError(Problem(str(path), "(no disk)", rule, "add --disk, such as azure/P30"))
    text = experiment_text(path, On(tuple(disks), vm or large_vm(disks[0]), caching or "None"))
    if write is not None:
        kept_at(write, text)
        yield write
        return
    with TemporaryDirectory(prefix="disklab-fio-") as folder:
        file = Path(folder) / f"{path.stem}.yaml"
        file.write_text(text)
        yield file


def large_vm(disks: str) -> str:
    """Return a VM of the disk's cloud that leaves the decision to the disk."""
    cloud = disks.rpartition("x ")[2].strip().partition("/")[0]
    if cloud not in LARGE_VMS:
        rule = "disklab has no default VM for its cloud"
        raise UserError(Problem("--vm", disks, rule, "name the VM"))
    notes().print(f"on {LARGE_VMS[cloud]}; --vm names yours", markup=False)
    return LARGE_VMS[cloud]


def kept_at(file: Path, text: str) -> None:
    """Write an experiment file where none is."""
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        rule = "is there already"
        raise UserError(Problem("--write", str(file), rule, "name a new file")) from None
    except OSError as error:
        rule = f"cannot be written: {error.strerror}"
        raise UserError(Problem("--write", str(file), rule, "name another place")) from None


def disk_of_output(path: Path, disk: str | None, vm: str | None, caching: str | None) -> On:
    """Return the disk of fio's output. Raises UserError where none is named."""
    if disk is None:
        rule = "fio's output does not say which disk it measured"
        raise UserError(Problem(str(path), "(no disk)", rule, "add --disk, such as azure/P30"))
    return On((disk,), vm or large_vm(disk), caching or "None")


def beside_its_promise(result: TrialResult) -> str:
    """Return a sentence: what was measured, and what the disk owes."""
    name = ", ".join(map(str, result.factors.values()))
    more = result.model_extra or {}
    parts = [f"{wording.rate(result.ops_per_s or 0)} IOPS, {more['mb_per_s']:.3g} MB/s"]
    for kind, part in result.per_operation.items():
        tails = [
            f"{name} {wording.milliseconds(part.latency_ms[name])} ms"
            for name in ("p50", "p99")
            if name in part.latency_ms
        ]
        parts.append(f"{kind} {' and '.join(tails)}" if tails else kind)
    measured = f"{f'{name}: ' if name else ''}{'; '.join(parts)}"
    promised, verdict = more.get("promise"), more.get("verdict")
    if not promised or not verdict:
        why = (
            "; ".join(result.warnings)
            or "not compared with the disk's promise: it does not run alone"
        )
        return f"{measured}. {why}"
    owed = f"{wording.rate(promised['ops_per_s'])} IOPS, limited by {promised['bound_by']}"
    return f"{measured}. Promised: {owed}: {verdict['outcome']}"


# `disklab import`: results that another program measured, as a run beside ours.


def import_results(  # noqa: PLR0913, PLR0917 - each option is a parameter
    experiment: ExperimentFile,
    results: Annotated[
        list[Path],
        typer.Argument(metavar="OUTPUT.JSON...", help="Results of yugabyte/tpcc, one per repeat."),
    ],
    only: Only = None,
    into: Annotated[
        str | None, typer.Option(help="An imported run to add them to.", metavar="RUN")
    ] = None,
    out: Out = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Import TPC-C results of yugabyte/tpcc as repeats of one cell of an experiment.

    They are stored as a run of mode measure, which `disklab report` compares with ours.

    Examples: [bold]disklab import FILE output.json --only disk=Ultra --only workload=TPC-C[/bold],
    [bold]disklab import FILE v2.json --only disk=v2 --only workload=TPC-C --into RUN[/bold]
    """
    loaded = spec.load(experiment)
    cells = chosen(loaded, only).trials("measure")
    if len(cells) != 1:
        rule = f"results are of one cell, and this names {len(cells)}"
        way_out = "name a level of each factor: " + ", ".join(
            f"{f.name}=..." for f in loaded.factors
        )
        raise UserError(Problem("--only", ", ".join(only or ["nothing"]), rule, way_out))
    cell = cells[0]
    if cell.spec.workload.tpcc is None:
        rule = "the results are TPC-C's"
        levels = ", ".join(f"{name}={level}" for name, level in cell.factors.items())
        raise UserError(Problem("--only", levels, rule, "name a cell whose workload is TPC-C"))
    # All are read before anything is made.
    reports = [tpcc.read(reading.text(path, reading.IMPORTED), str(path)) for path in results]
    run = Run.open_own(into, out, "--into") if into else _made(loaded, experiment, out)
    if run.info.experiment.title != loaded.title or run.info.mode != "measure":
        rule = f"it is a run of mode {run.info.mode} of {run.info.experiment.title!r}"
        raise UserError(Problem("--into", str(into), rule, "name a run that was imported for FILE"))
    with run.writing():
        repeats = [repeat for trial, repeat in run.finished() if trial == cell.index]
        for repeat, report in enumerate(reports, start=max(repeats, default=-1) + 1):
            run.append(tpcc.trial_of(report, loaded.title, cell.index, repeat, dict(cell.factors)))
        run.end()
    if json:
        print_json({"run": run.info.id, "folder": str(run.folder), "imported": len(reports)})
    else:
        console().print(
            f"{len(reports)} imported into {run.folder}; see: disklab report {run.info.id}"
        )


def _made(asked: spec.Experiment, experiment: Path, out: Path) -> Run:
    note = ExperimentNote(title=asked.title, source=asked.source, file=str(experiment))
    info = begun("measure", note, notes=["imported from yugabyte/tpcc"])
    return Run.create(out, info, experiment_text=asked.document.text)
