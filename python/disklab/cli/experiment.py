"""`disklab experiment`: check a file, show its matrix, print the schema."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.table import Table
from rich.text import Text

from disklab import spec
from disklab.catalog.quantity import about_bytes
from disklab.catalog.suggest import did_you_mean
from disklab.cli.amounts import bundled_names, scale_of
from disklab.cli.experiment_new import new
from disklab.cli.kit import KitFile
from disklab.cli.output import Json, console, print_json
from disklab.errors import Problem, UserError, refuse
from disklab.kits import name_kits
from disklab.spec import Trial, bundled
from disklab.spec.schema import schema_text

app = typer.Typer(no_args_is_help=True, help="Experiment files: new, check, show, schema.")
app.command()(new)

# More rows of a table than a person reads at once; --json has them all.
MOST_ROWS = 200

TimeDilation = Annotated[
    int | None,
    typer.Option(
        "--time-dilation",
        help="Seconds here for each second of the described system; 1: no slow motion.",
        metavar="N",
        show_default="as the CPUs require",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        help="A part of the matrix: 'data disks=attached,local'. May be given several times.",
        metavar="FACTOR=LEVEL,...",
        show_default=False,
    ),
]
ExperimentFile = Annotated[
    Path,
    typer.Argument(
        metavar="EXPERIMENT",
        help="Experiment file, or the name of one that comes with disklab.",
        callback=bundled.found,
        autocompletion=bundled_names,
    ),
]


def chosen(experiment: spec.Experiment, only: list[str] | None) -> spec.Experiment:
    """Return the part of the matrix that `--only` names."""
    return experiment.only(choices(only))


def choices(only: list[str] | None) -> dict[str, list[str]]:
    """Read `FACTOR=LEVEL,...`; several choices of one factor add up."""
    found: dict[str, list[str]] = {}
    problems = []
    for text in only or []:
        name, sign, levels = text.partition("=")
        if not sign:
            way_out = "write for example --only workload=read"
            problems.append(Problem("--only", text, "a choice reads FACTOR=LEVEL,...", way_out))
            continue
        found.setdefault(name.strip(), []).append(levels.strip())
    refuse(problems)
    return found


def mode_of(text: str) -> spec.Mode:
    """Return the mode of that name."""
    for mode in get_args(spec.Mode):
        if text == mode:
            return text  # type: ignore[return-value]
    way_out = did_you_mean(text, get_args(spec.Mode), f"choose {', '.join(get_args(spec.Mode))}")
    raise UserError(Problem("--mode", text, "is not a mode", way_out))


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Experiment files.")],
    kit: KitFile = None,
    json: Json = False,
) -> None:
    """Check experiment files: every problem in every file, with its line and how to fix it.

    The exit code is 2 if there is one. An impossible cell, such as more data than its disk can
    hold, is not a problem of the file: it is named with its reason, and left out of a run. The exit
    code is 1 if all cells of a file are impossible.

    Example: [bold]disklab experiment check mine.yaml[/bold]
    """
    name_kits([kit])
    problems: list[Problem] = []
    checked: list[dict[str, Any]] = []
    for file in files:
        try:
            trials = spec.load(file).trials("predict")
        except UserError as error:  # noqa: PERF203 - each file has problems of its own
            problems += error.problems
        else:
            reasons = refusals(trials)
            count = sum(len(cells) for cells in reasons.values())
            checked.append(
                {"file": str(file), "trials": len(trials), "refused": count, "reasons": reasons}
            )
    if not json:
        out = console()
        for one in checked:
            note = f", {one['refused']} refused" if one["refused"] else ""
            out.print(
                f"{one['file']}: {one['trials']} trial{'s' if one['trials'] != 1 else ''}{note}",
                markup=False,
            )
            for reason, cells in one["reasons"].items():
                more = f" and {len(cells) - 1} more" if len(cells) > 1 else ""
                out.print(f"  {cells[0]}{more}: {reason}", markup=False, highlight=False)
    refuse(problems)
    if json:
        print_json({"ok": True, "files": checked})
    if any(each["trials"] and each["refused"] == each["trials"] for each in checked):
        raise typer.Exit(1)


def refusals(trials: Sequence[Trial]) -> dict[str, list[str]]:
    """Return the cells that are impossible, by their reason, in the order of the file."""
    found: dict[str, list[str]] = {}
    for trial in trials:
        if trial.refused is not None:
            levels = ", ".join(str(level) for level in trial.factors.values())
            rule = f"{trial.refused.rule}; {trial.refused.way_out}"
            found.setdefault(rule, []).append(levels or "the only cell")
    return found


@app.command()
def show(  # noqa: PLR0913, PLR0917 - each option is a parameter
    experiment: ExperimentFile,
    mode: Annotated[
        str, typer.Option(help="predict, rehearse or measure.", metavar="MODE")
    ] = "predict",
    only: Only = None,
    scale: Annotated[
        str | None, typer.Option(help="Instead of the file's, such as 1/100.", metavar="S")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(help="Rehearsed nodes, instead of the file's.", min=1)
    ] = None,
    time_dilation: TimeDilation = None,
    json: Json = False,
) -> None:
    """Show the matrix: trials, levels, what a rehearsal makes of the figures, refused cells.

    Examples: [bold]disklab experiment show FILE --mode rehearse[/bold],
    [bold]disklab experiment show FILE --only 'data disks=attached' --json[/bold]
    """
    found = chosen(spec.load(experiment), only)
    trials = found.trials(
        mode_of(mode), scale=scale_of(scale), nodes=nodes, time_dilation=time_dilation
    )
    if json:
        print_json({"experiment": found.title, "mode": mode, "trials": [*map(as_json, trials)]})
        return
    print_matrix(found, trials)


def as_json(trial: spec.Trial) -> dict[str, Any]:
    """Return a trial as JSON: the form of `resolved.json`."""
    refused = None
    if trial.refused is not None:
        refused = {
            key: getattr(trial.refused, key) for key in ("place", "value", "rule", "way_out")
        }
    return {
        "trial": trial.index,
        "factors": trial.factors,
        "refused": refused,
        "share": trial.share.model_dump(mode="json"),
        "spec": trial.spec.model_dump(mode="json"),
    }


def print_matrix(experiment: spec.Experiment, trials: list[spec.Trial]) -> None:
    """Print the matrix as a table, and below it why cells are refused."""
    out = console()
    out.print(experiment.title, style="bold")
    if experiment.source:
        out.print(experiment.source, style="dim", markup=False)
    figures = [name for name in FIGURES if any(figure_text(t, name) for t in trials)]
    table = Table(box=None, pad_edge=False)
    table.add_column("trial", justify="right")
    for factor in experiment.factors:
        table.add_column(factor.name, overflow="fold")
    for name in figures:
        table.add_column(FIGURES[name], justify="right")
    table.add_column("")
    for trial in trials[:MOST_ROWS]:
        levels = [str(level) for level in trial.factors.values()]
        numbers = [figure_text(trial, name) for name in figures]
        state = Text("refused" if trial.refused else "", "yellow")
        table.add_row(str(trial.index), *levels, *numbers, state)
    out.print(table)
    if len(trials) > MOST_ROWS:
        out.print(f"... and {len(trials) - MOST_ROWS} more; --json has all of them")
    if any(not trial.share.is_full for trial in trials):
        share = trials[0].share
        nodes = f"{share.nodes.here} of {share.nodes.full} nodes"
        slow = f", time dilation {share.time_dilation}" if share.time_dilation != 1 else ""
        out.print(f"full system -> here: scale {share.scale}, {nodes}{slow}")
    for reason, indices in reasons(trials).items():
        where = ", ".join(map(str, indices))
        out.print(f"\nrefused: {where}\n  {reason}", markup=False)


FIGURES = {
    "rows": "rows",
    "operations": "operations",
    "threads": "threads",
    "rate_per_s": "rate/s",
    "at_most_per_s": "at most/s",
    "host_cache_bytes": "host cache",
    "page_cache_bytes": "page cache",
}
"""The figures of a share that the table shows, and their headings."""


def figure_text(trial: spec.Trial, name: str) -> str:
    """Return a figure of the full system and, in a rehearsal, what becomes of it."""
    figure: spec.Figure | None = getattr(trial.share, name)
    if figure is None:
        return ""
    text = about_bytes if name.endswith("_bytes") else number_text
    return (
        text(figure.full) if trial.share.is_full else f"{text(figure.full)} -> {text(figure.here)}"
    )


def number_text(amount: float) -> str:
    """Return a count with three digits or so, as an experiment file could write it."""
    for unit, factor in (("M", 10**6), ("k", 10**3)):
        if amount >= factor:
            form = ".0f" if amount >= 1000 * factor else ".3g"
            return f"{amount / factor:{form}}{unit}"
    return f"{amount:.4g}"


def reasons(trials: list[spec.Trial]) -> dict[str, list[int]]:
    """Return each reason with the trials that it refuses."""
    found: dict[str, list[int]] = {}
    for trial in trials:
        if trial.refused is not None:
            for reason in (str(trial.refused), *map(str, trial.refused.more)):
                found.setdefault(reason, []).append(trial.index)
    return found


@app.command()
def schema() -> None:
    """Print the JSON Schema of the experiment file, for editors.

    Example: [bold]disklab experiment schema > experiment.schema.json[/bold]
    """
    typer.echo(schema_text(), nl=False)
