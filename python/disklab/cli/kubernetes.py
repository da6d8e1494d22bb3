"""`disklab kubernetes`: Jobs for volumes of a storage class, printed or run."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer

from disklab import spec
from disklab.cli.experiment import ExperimentFile, Only, chosen
from disklab.cli.output import notes, print_json
from disklab.errors import Problem, UserError
from disklab.probe.run import Request, plan_of

app = typer.Typer(
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


@app.callback()
def _kubernetes() -> None:
    """Write the manifest that measures a Kubernetes storage class."""


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
