"""`disklab reproduce`: a published study, predicted and rehearsed beside its own figures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from disklab import spec
from disklab.catalog.suggest import did_you_mean
from disklab.cli.experiment import Only, choices
from disklab.cli.output import Json, console, notes, print_json
from disklab.cli.root_part import root_part
from disklab.errors import Problem, UserError
from disklab.results import DEFAULT_OUT, Run

if TYPE_CHECKING:
    from disklab.report.report import Report


@dataclass(frozen=True)
class Study:
    """A published study."""

    question: str
    experiments: tuple[str, ...]
    """Bundled experiment files; each has the title under which its figures were published."""


STUDIES = {
    "host-caching": Study(
        "Host caching, client threads and read-ahead for Cassandra (Azure-Samples 2019)",
        ("cassandra-disk-caching-threads", "cassandra-disk-caching-read-ahead"),
    ),
    "local-or-attached": Study(
        "Local or attached disks for Cassandra (Azure-Samples 2020)",
        ("cassandra-local-or-attached", "cassandra-cache-cliff"),
    ),
    "local-disks": Study(
        "Temp, cached, ephemeral and NVMe disks under fio (Silk 2022)", ("azure-local-disks",)
    ),
    "yugabytedb": Study(
        "YugabyteDB on three disk types (Microsoft 2022)", ("yugabytedb-disk-types",)
    ),
    "vm-types": Study("VM types for Cassandra (Instaclustr 2019)", ("cassandra-vm-types",)),
}


def complete(incomplete: str) -> list[str]:
    """Return the studies that continue a word."""
    return [name for name in STUDIES if name.startswith(incomplete)]


def reproduce(  # noqa: PLR0913, PLR0917 - each option is a parameter
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="[STUDY]", help="Without it: the list of studies.", autocompletion=complete
        ),
    ] = None,
    rehearse: Annotated[
        bool,
        typer.Option("--rehearse", help="Also rehearse it here, with a real database (as root)."),
    ] = False,
    fidelity: Annotated[
        str, typer.Option(help="Fidelity of the prediction: full, or quick.", metavar="F")
    ] = "quick",
    only: Only = None,
    out: Annotated[Path, typer.Option(help="Folder for the runs.", metavar="DIR")] = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Repeat a published study: predict it, rehearse it, and compare both with its figures.

    Examples: [bold]disklab reproduce[/bold], [bold]disklab reproduce host-caching[/bold],
    [bold]disklab reproduce local-or-attached --rehearse --only workload=read[/bold]
    """
    if study is None:
        show_studies(as_json=json)
        return
    if study not in STUDIES:
        way_out = did_you_mean(study, STUDIES, f"choose {', '.join(STUDIES)}")
        raise UserError(Problem("STUDY", study, "is not a study that disklab knows", way_out))
    pages = []
    found = True
    for name in STUDIES[study].experiments:
        runs = [predicted(name, fidelity, only, out)]
        if rehearse:
            runs.append(rehearsed(name, only, out))
        found = found and all(any(one.usable for one in run.results()) for run in runs)
        report, page = together(runs)
        pages.append({"experiment": name, "runs": [str(r.folder) for r in runs], "page": page})
        if not json:
            show(report)
            notes().print(Text(f"report: {page}"))
    if json:
        print_json({"ok": found, "study": study, "reports": pages})
    if not found:
        raise typer.Exit(1)


def show_studies(*, as_json: bool) -> None:
    """Print the studies."""
    if as_json:
        print_json({name: vars(study) for name, study in STUDIES.items()})
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("study", "what was asked", "experiment files"):
        table.add_column(heading, overflow="fold")
    for name, study in STUDIES.items():
        table.add_row(name, study.question, "\n".join(study.experiments))
    console().print(table)
    console().print("\nnext: disklab reproduce STUDY", markup=False, highlight=False)


def predicted(name: str, fidelity: str, only: list[str] | None, out: Path) -> Run:
    """Predict an experiment without bands, into a run folder."""
    from disklab.cli.predict import fidelity_of, progress  # noqa: PLC0415 - they bring polars
    from disklab.prediction import Options, predict  # noqa: PLC0415

    options = Options(fidelity=fidelity_of(fidelity), out=out, command=("disklab", *sys.argv[1:]))
    with progress(as_json=False) as emit:
        return predict(experiment(name, only), options, emit)


def rehearsed(name: str, only: list[str] | None, out: Path) -> Run:
    """Rehearse an experiment at the scale of its file, a quick repeat of each cell."""
    from disklab.cli.rehearsing import divided, root_of  # noqa: PLC0415
    from disklab.cli.run_progress import RunView  # noqa: PLC0415 - they bring NumPy and polars
    from disklab.procedures import preparation  # noqa: PLC0415
    from disklab.procedures.rehearsal import rehearse  # noqa: PLC0415

    tell = notes()
    say: Callable[[str], Any] = lambda text: tell.print(text, style="dim", markup=False)  # noqa: E731
    asked = preparation.Options(repeats=1, quick=True, only=choices(only))
    described = spec.load(name)
    root, look = root_of(root_part())
    with RunView(tell) as view:
        prepared = preparation.prepare(described, asked, out, say, look)
        run = rehearse(prepared, view, None if root is None else divided(root, prepared))
    if view.interrupted:
        raise KeyboardInterrupt
    return run


def experiment(name: str, only: list[str] | None) -> spec.Experiment:
    """Return a bundled experiment, or the part of it that is wanted."""
    return spec.load(name).only(choices(only))


def together(runs: Sequence[Run]) -> tuple[Report, str]:
    """Return the report of runs beside what was published, and where its page was written."""
    from disklab.report import files  # noqa: PLC0415 - charts take a second to import
    from disklab.report.report import Report  # noqa: PLC0415

    report = Report.of([*runs, *published(runs)])
    return report, str(files.write_page(report, runs[0].inside("report.html")))


def published(runs: Sequence[Run]) -> Iterator[Any]:
    """Yield the published run of the same experiment, where there is one."""
    from disklab.report import files  # noqa: PLC0415

    try:
        yield from files.references(list(runs), wanted=True)
    except UserError:
        # The cache cliff is shown in a chart of the study, without figures of its own.
        return


def show(report: Report) -> None:
    """Print the answer of a report."""
    from disklab.report.terminal import show as print_report  # noqa: PLC0415

    print_report(report, console())
