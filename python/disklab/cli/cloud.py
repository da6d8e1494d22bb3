"""`disklab cloud`, `disklab kubernetes`: what would be made in a cloud or a cluster."""

from __future__ import annotations

import secrets
from typing import Annotated, Literal

import typer

from disklab import spec
from disklab.catalog import load_catalog
from disklab.cli.experiment import ExperimentFile, Only, chosen
from disklab.cli.output import notes, print_json
from disklab.errors import Problem, UserError
from disklab.probe.run import Request, plan_of

clouds = typer.Typer(no_args_is_help=True, help="Show what disklab would request from a cloud.")


@clouds.callback()
def _cloud() -> None:
    """Show what disklab would request from a cloud."""


@clouds.command()
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
    """Print the request that would create the hosts of an experiment. Nothing is created.

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


# `disklab kubernetes`: Jobs for volumes of a storage class, printed or run.

kubernetes = typer.Typer(
    no_args_is_help=True, help="Write the manifest that measures a Kubernetes storage class."
)

StorageClass = Annotated[
    str, typer.Option("--class", help="The storage class of the volume.", metavar="NAME")
]
Size = Annotated[
    str, typer.Option("--size", help="Size of the volume, as Kubernetes writes it.", metavar="SIZE")
]
Image = Annotated[
    str, typer.Option("--image", help="An image with disklab and fio.", metavar="IMAGE")
]


@kubernetes.callback()
def _kubernetes() -> None:
    """Write the manifest that measures a Kubernetes storage class."""


@kubernetes.command()
def manifest(
    experiment: ExperimentFile,
    image: Image,
    storage_class: StorageClass,
    size: Size = "100Gi",
    only: Only = None,
) -> None:
    """Print the Job that runs an experiment's fio on a volume of a class. Nothing is created.

    Example: [bold]disklab kubernetes manifest FILE --class gp3 --size 100Gi --image IMAGE
    | kubectl create -f -[/bold]
    """
    from disklab.cloud.kubernetes import manifest as made  # noqa: PLC0415

    claim = made.Claim(storage_class, size, image)
    claim.check()
    probes, seconds = made.probes_of(chosen(spec.load(experiment), only))
    print_json(made.job(new_name(), claim, probes, seconds))


def probe_claim(
    claim: tuple[str, str | None, str], namespace: str | None, request: Request, *, as_json: bool
) -> None:
    """Probe a new volume through kubectl, its log to standard output, and remove it.

    `claim`: storage class, image and size. Raises UserError, or CloudError when it fails.
    """
    from disklab.cli.run_progress import waits_shown  # noqa: PLC0415
    from disklab.cloud.kubernetes import manifest as made  # noqa: PLC0415
    from disklab.cloud.kubernetes.manifest import Kubectl  # noqa: PLC0415

    storage_class, image, size = claim
    if image is None:
        rule = "the pod needs an image with disklab and fio"
        raise UserError(Problem("--image", "(nothing)", rule, "see docs/kubernetes.md"))
    wanted = made.Claim(storage_class, size, image)
    wanted.check()
    plan = plan_of(request)
    words = [*request.words, *(["--json"] if as_json else [])]
    seconds = len(plan.cells) * plan.duration_s
    job = made.job(new_name(), wanted, [words], seconds)
    to = notes()
    with waits_shown(to):
        Kubectl(namespace).run(job, lambda text: to.print(text, markup=False))


def new_name() -> str:
    """Return a name for a Job that no other has."""
    return f"disklab-{secrets.token_hex(4)}"
