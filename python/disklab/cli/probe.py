"""The options of `disklab probe`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from disklab.cli.amounts import disk_names, vm_names
from disklab.cli.fio_files import as_experiment
from disklab.cli.output import Check, code_of
from disklab.cli.root_part import root_part
from disklab.errors import Problem, UserError, refuse_given
from disklab.probe.known import CACHING, Disk
from disklab.probe.run import Request, known, plan_of
from disklab.spec.fio_file import is_fio_file

if TYPE_CHECKING:
    from disklab.cli.probing import Override
    from disklab.probe.run import CellResult

Caching = Annotated[
    list[str] | None,
    typer.Option(
        help="Host caching of --disk: None, ReadOnly, ReadWrite; several are compared.",
        metavar="MODE",
    ),
]
Disks = Annotated[
    str | None,
    typer.Option(
        help="The disk that PATH is sold as; without PATH, an emulated one made for the probe.",
        metavar="DISKS",
        autocompletion=disk_names,
    ),
]
Vm = Annotated[
    str | None, typer.Option(help="The VM of --disk.", metavar="VM", autocompletion=vm_names)
]
Target = Annotated[
    Path | None,
    typer.Argument(
        metavar="PATH|DEVICE", help="Directory, file, device, experiment (.yaml) or fio job (.fio)."
    ),
]


HostsFile = Annotated[
    Path | None,
    typer.Option(
        "--hosts",
        help="Instead of PATH: the volumes of all hosts of this file, compared.",
        metavar="FILE",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="With --hosts: do not ask.")]
DestroyData = Annotated[
    bool, typer.Option("--destroy-data", help="Overwrite what is on a device that disklab created.")
]

Profile = Annotated[
    str, typer.Option(help="sync (latency), async (IOPS and MB/s) or both.", metavar="PROFILE")
]
Jobs = Annotated[
    int | None,
    typer.Option(min=1, max=256, help="fio jobs at the same time; by default the profile's."),
]
Depth = Annotated[
    int | None,
    typer.Option(min=1, max=1024, help="I/Os in flight per job; by default the profile's."),
]
Directions = Annotated[
    str | None,
    typer.Option(
        help="randread, randwrite, randrw, read, write, rw; several with commas.", metavar="LIST"
    ),
]
Mixture = Annotated[
    int | None,
    typer.Option(
        "--rwmixread",
        min=0,
        max=100,
        metavar="N",
        help="Reads in 100 I/Os of randrw and rw; 50 by default.",
    ),
]
Blocks = Annotated[str | None, typer.Option(help="Block sizes, such as 4k,8k,1M.", metavar="LIST")]
Duration = Annotated[
    str | None, typer.Option(help="Time of each cell, such as 60s; 5s by default.", metavar="T")
]
Out = Annotated[
    Path | None,
    typer.Option(help="Folder for the run; without it, none is kept.", metavar="DIR"),
]
Pvc = Annotated[
    str | None,
    typer.Option("--pvc", help="Kubernetes: a new volume of this storage class.", metavar="CLASS"),
]
Image = Annotated[
    str | None,
    typer.Option("--image", help="With --pvc: an image with disklab and fio.", metavar="IMAGE"),
]
VolumeSize = Annotated[
    str, typer.Option("--volume-size", help="With --pvc: size of the volume.", metavar="SIZE")
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", help="With --pvc: kubectl's own by default.", metavar="NAME"),
]

Chart = Annotated[
    Path | None, typer.Option(help="Write a chart: .html, .svg or .png.", metavar="FILE")
]
Region = Annotated[str | None, typer.Option(help="Probed region; 1GiB by default.", metavar="SIZE")]


def probe(  # noqa: PLR0913, PLR0917 - each option is a parameter
    path: Target = None,
    disk: Disks = None,
    vm: Vm = None,
    caching: Caching = None,
    profile: Profile = "both",
    jobs: Jobs = None,
    depth: Depth = None,
    rw: Directions = None,
    rwmixread: Mixture = None,
    bs: Blocks = None,
    duration: Duration = None,
    size: Region = None,
    quick: Annotated[bool, typer.Option("--quick", help="2s a cell, 4k and 1M, 256MiB.")] = False,
    check: Check = False,
    engine: Annotated[
        str, typer.Option(help="fio's engine: libaio or io_uring.", metavar="NAME")
    ] = "libaio",
    json: Annotated[bool, typer.Option("--json", help="One JSON object a cell.")] = False,
    out: Out = None,
    chart: Chart = None,
    hosts: HostsFile = None,
    yes: Yes = False,
    destroy_data: DestroyData = False,
    pvc: Pvc = None,
    image: Image = None,
    volume_size: VolumeSize = "100Gi",
    namespace: Namespace = None,
) -> None:
    """Measure a disk with fio and compare it with its promise. Example: `disklab probe /data`."""
    # Loaded here because it brings the chart library: no other command is to wait for that.
    from disklab.cli import probing  # noqa: PLC0415
    from disklab.privilege.probing import look_by  # noqa: PLC0415
    from disklab.probe.emulated import At  # noqa: PLC0415

    request = Request(profile, rw, rwmixread, bs, duration, size, engine, quick, jobs, depth)
    output = probing.Output(json, out, chart)
    if pvc is not None:
        given: dict[str, object]
        given = {"PATH": path, "--disk": disk, "--hosts": hosts, "--out": out, "--chart": chart}
        way_out = "leave it out, or keep the lines of --json"
        rule = "a new volume is probed in its pod"
        refuse_given({**given, "--check": check or None}, rule, way_out)
        from disklab.cli.cloud import probe_claim  # noqa: PLC0415 - see above

        probe_claim((pvc, image, volume_size), namespace, request, as_json=json)
        return
    disks = named_disks(disk, vm, caching or [])
    if hosts is not None:
        given = {"PATH": path, "--disk": disk, "--destroy-data": destroy_data or None}
        refuse_given(given, "the hosts file says what is probed")
        from disklab.cli.measuring import probe_all  # noqa: PLC0415 - see above

        end(probe_all(hosts, plan_of(request), output, yes=yes), check=check)
    look = look_by(root_part())
    if path is None:
        if not disks:
            raise missing_target()
        end(probing.probe_emulated(disks, plan_of(request), output, look), check=check)
    if is_fio_file(path) or path.suffix in (".yaml", ".yml"):
        asked = (None if disk is None else [disk], vm, ", ".join(caching or []) or None)
        with as_experiment(path, *asked, None) as file:
            end(probing.probe_experiment(file, override_of(request), output, look), check=check)
    if len(disks) > 1:
        rule = "a real disk has one host caching"
        raise UserError(Problem("--caching", ", ".join(caching or []), rule, "give one of them"))
    promised = disks[0] if disks else None
    wanted = At(seen_from_root(path), plan_of(request), promised, destroy_data)
    end(probing.probe_path(wanted, output, look), check=check)


def end(results: Sequence[CellResult], *, check: bool) -> NoReturn:
    """End with 0, or with `check` as the promises of valid cells were kept: 0, 3 or 4."""
    from disklab.probe.verdict import Outcome  # noqa: PLC0415 - see above

    if not check:
        raise typer.Exit
    from disklab.results import required  # noqa: PLC0415 - it brings polars

    kept = {
        Outcome.MET: required.Outcome.MET,
        Outcome.ABOVE: required.Outcome.MET,
        Outcome.SHORT: required.Outcome.MISSED,
    }
    outcomes = [
        None if cell.invalid or cell.verdict is None else kept.get(cell.verdict.outcome)
        for cell in results
    ]
    raise typer.Exit(code_of(outcomes))


def seen_from_root(path: Path) -> Path:
    """Return a path as root's part needs it, where there is one: it works in another directory."""
    return path if root_part() is None else path.absolute()


def override_of(request: Request) -> Override:
    """Return what the options change in an experiment; refuse those that its file decides."""
    given = {
        "--profile": None if request.profile == "both" else request.profile,
        "--jobs": request.jobs,
        "--depth": request.depth,
        "--rw": request.directions,
        "--rwmixread": request.rwmixread,
        "--bs": request.blocks,
    }
    refuse_given(given, "the experiment's file decides it", "change it in the file")
    from disklab.cli.probing import Override  # noqa: PLC0415 - see `probe`

    plan = plan_of(request)
    timed = request.duration is not None or request.quick
    sized = request.size is not None or request.quick
    return Override(
        plan.duration_s if timed else None, plan.size_bytes if sized else None, plan.engine
    )


def missing_target() -> UserError:
    """Return the error for a probe of nothing."""
    way_out = "name a directory, a file, a device, or --disk azure/P30 for an emulated one"
    return UserError(Problem("disklab probe", "(nothing)", "there is nothing to probe", way_out))


def named_disks(disk: str | None, vm: str | None, caching: list[str]) -> list[Disk]:
    """Return the disks that the options name, one for each host caching."""
    if disk is None:
        given = {"--vm": vm, "--caching": ", ".join(caching) or None}
        refuse_given(given, "describes the disk of --disk", "add --disk, such as azure/P30")
        return []
    modes = [known(mode, "--caching", CACHING) for mode in caching or ["None"]]
    return [Disk(disk, vm, mode) for mode in dict.fromkeys(modes)]
