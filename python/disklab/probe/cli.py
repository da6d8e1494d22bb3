"""The options of `disklab probe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from disklab.probe.command import probe_path
from disklab.probe.request import Output, Request, plan_of


def probe(  # noqa: PLR0913, PLR0917 - each option is a parameter
    path: Annotated[Path, typer.Argument(metavar="PATH|DEVICE", help="Directory, file or device.")],
    profile: Annotated[
        str, typer.Option(help="sync (latency), async (IOPS and MB/s) or both.")
    ] = "both",
    rw: Annotated[
        str | None,
        typer.Option(help="randread, randwrite, read, write; several with commas.", metavar="LIST"),
    ] = None,
    bs: Annotated[
        str | None, typer.Option(help="Block sizes, such as 4k,8k,1M.", metavar="LIST")
    ] = None,
    duration: Annotated[
        str | None, typer.Option(help="Time of each cell, such as 60s; 5s by default.")
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="Size of the probed region; 1GiB by default.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="2s a cell, 4k and 1M, 256MiB.")] = False,
    engine: Annotated[str, typer.Option(help="fio's engine: libaio or io_uring.")] = "libaio",
    json: Annotated[bool, typer.Option("--json", help="One JSON object a cell.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder that keeps the results; never overwrites.")
    ] = None,
    chart: Annotated[Path | None, typer.Option(help="Write a chart: .html, .svg or .png.")] = None,
    destroy_data: Annotated[
        bool,
        typer.Option("--destroy-data", help="Overwrite what lies on a device made by disklab."),
    ] = False,
) -> None:
    """Measure a disk with fio and hold it against its promise."""
    plan = plan_of(Request(profile, rw, bs, duration, size, engine, quick))
    probe_path(path, plan, Output(json, out, chart), destroy_data=destroy_data)
