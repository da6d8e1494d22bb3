"""`disklab kubernetes`: Jobs for volumes of a storage class, printed or run."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer

from disklab import spec
from disklab.cli.experiment import ExperimentFile, Only, chosen
from disklab.cli.output import notes, print_json

app = typer.Typer(no_args_is_help=True, help="Volumes of a storage class: manifest, probe.")

StorageClass = Annotated[
    str, typer.Option("--class", help="The storage class of the volume.", metavar="NAME")
]
Size = Annotated[
    str, typer.Option("--size", help="Of the volume, as Kubernetes writes it.", metavar="SIZE")
]
Image = Annotated[
    str, typer.Option("--image", help="An image with disklab and fio.", metavar="IMAGE")
]


@app.callback()
def _kubernetes() -> None:
    """Volumes of a storage class: manifest, probe."""


@app.command()
def manifest(
    experiment: ExperimentFile,
    image: Image,
    storage_class: StorageClass,
    size: Size = "100Gi",
    only: Only = None,
) -> None:
    """Print the Job that does an experiment's fio on a volume of a class. Nothing is made.

    Example: [bold]disklab kubernetes manifest FILE --class gp3 --size 100Gi --image IMAGE
    | kubectl create -f -[/bold]
    """
    from disklab.cloud.kubernetes import manifest as made  # noqa: PLC0415

    claim = made.Claim(storage_class, size, image)
    claim.check()
    probes, seconds = made.probes_of(chosen(spec.load(experiment), only))
    print_json(made.job(new_name(), claim, probes, seconds))


@app.command()
def probe(  # noqa: PLR0913, PLR0917 - each option is a parameter
    storage_class: Annotated[
        str, typer.Option("--pvc", help="The storage class of the volume.", metavar="CLASS")
    ],
    image: Image,
    size: Size = "100Gi",
    namespace: Annotated[
        str | None, typer.Option(help="kubectl's own by default.", metavar="NAME")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="2s a cell, 4k and 1M, 256MiB.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a cell.")] = False,
) -> None:
    """Probe a new volume of a class through kubectl, and remove it.

    Example: [bold]disklab kubernetes probe --pvc gp3 --size 100Gi --image IMAGE --quick[/bold]
    """
    from disklab.cloud.kubernetes import manifest as made  # noqa: PLC0415
    from disklab.cloud.kubernetes.kubectl import Kubectl  # noqa: PLC0415

    claim = made.Claim(storage_class, size, image)
    claim.check()
    words = [*(["--quick"] if quick else []), *(["--json"] if json else [])]
    # Cells of the whole probe are measured within some minutes; the rest is in the Job's slack.
    job = made.job(new_name(), claim, [words], 600.0)
    Kubectl(namespace).run(job, lambda text: notes().print(text, markup=False))


def new_name() -> str:
    """Return a name for a Job that no other has."""
    return f"disklab-{secrets.token_hex(4)}"
