"""The command line as a whole. A room with a command of its own registers it here."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Annotated

import typer

from disklab.cli import (
    calibrate,
    catalog,
    clean,
    disk,
    doctor,
    experiment,
    import_results,
    predict,
    probe,
    rehearse,
    report,
)
from disklab.cli.output import report as tell
from disklab.errors import DisklabError

HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    no_args_is_help=True,
    context_settings=HELP_OPTIONS,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command("catalog")(catalog.catalog)
app.add_typer(disk.app, name="disk")
app.add_typer(experiment.app, name="experiment")
app.command("predict")(predict.predict)
app.command("calibrate")(calibrate.calibrate)
app.command("probe")(probe.probe)
app.command("rehearse")(rehearse.rehearse)
app.command("report")(report.report)
app.command("import")(import_results.import_results)
app.command("doctor")(doctor.doctor)
app.command("clean")(clean.clean)


def tell_version(wanted: bool) -> None:
    """Print the version and end, when asked to."""
    if wanted:
        typer.echo(f"disklab {metadata.version('disklab')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=tell_version, is_eager=True, help="Say which release."),
    ] = False,
) -> None:
    """Which disks should my distributed database live on?"""


def main() -> None:
    """Run the command line. Exit code 0: done, 1: an operating fault, 2: the user's mistake."""
    try:
        app()
    except DisklabError as error:
        tell(error, as_json="--json" in sys.argv)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)  # 128 + SIGINT, as a shell reports it
