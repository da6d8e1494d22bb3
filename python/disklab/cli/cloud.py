"""`disklab cloud`: what would be made in a cloud."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from disklab import spec
from disklab.catalog import load_catalog
from disklab.cli.experiment import ExperimentFile, Only, chosen
from disklab.cli.output import print_json

app = typer.Typer(no_args_is_help=True, help="Show what a cloud would be asked for to make hosts.")


@app.callback()
def _cloud() -> None:
    """Show what a cloud would be asked for to make hosts."""


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
    cloud: Annotated[
        Literal["azure", "aws"],
        typer.Option(help="azure: an ARM template. aws: the parameters of EC2's calls."),
    ] = "azure",
) -> None:
    """Print what a cloud is asked for to make the hosts of an experiment. Nothing is made.

    Example: [bold]disklab cloud template azure-local-disks --only profile=sync[/bold]
    """
    from disklab.cloud.aws import template as ec2  # noqa: PLC0415
    from disklab.cloud.azure import template as arm  # noqa: PLC0415
    from disklab.cloud.layout import layout_of  # noqa: PLC0415

    wanted = chosen(spec.load(experiment), only)
    layout = layout_of(wanted, wanted.trials("measure"), load_catalog(), cloud=cloud)
    if cloud == "aws":
        print_json(ec2.template(layout, {}, zones[0] if zones else None))
        return
    print_json(arm.template(layout, {}, zones or ()))
