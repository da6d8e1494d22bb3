"""`disklab cloud`: what would be made in a cloud."""

from __future__ import annotations

from typing import Annotated

import typer

from disklab import spec
from disklab.catalog import load_catalog
from disklab.cli.experiment import ExperimentFile, Only, chosen
from disklab.cli.output import print_json

app = typer.Typer(no_args_is_help=True, help="Hosts made in a cloud: template.")


@app.callback()
def _cloud() -> None:
    """Hosts made in a cloud: template."""


@app.command()
def template(
    experiment: ExperimentFile,
    only: Only = None,
    zones: Annotated[
        list[str] | None,
        typer.Option(
            "--zone",
            help="A zone of the region; may be given several times. Without it: none.",
            metavar="ZONE",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print the ARM template of the hosts that an experiment needs. Nothing is made.

    Example: [bold]disklab cloud template azure-local-disks --only profile=sync[/bold]
    """
    from disklab.cloud.azure import template as arm  # noqa: PLC0415
    from disklab.cloud.layout import layout_of  # noqa: PLC0415

    wanted = chosen(spec.load(experiment), only)
    layout = layout_of(wanted, wanted.trials("measure"), load_catalog())
    print_json(arm.template(layout, {}, zones or ()))
