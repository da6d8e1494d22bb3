"""`disklab report`, `serve`, `knob`: runs, live or ended, and the simulator, as pages."""

from __future__ import annotations

import os
import secrets
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from disklab.cli import fio_files
from disklab.cli.output import Json, console, notes, print_json
from disklab.cli.output import report as tell
from disklab.errors import Problem, UserError, refuse
from disklab.results import DEFAULT_OUT, ExperimentNote, Run, begun


def report(  # noqa: PLR0913, PLR0917 - each option is a parameter
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="A run's folder, its id, or the beginning of it."),
    ],
    html: Annotated[
        Path | None,
        typer.Option(
            help="Write the page here; without it, report.html in the first run's folder."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="`reference`: what was published of this experiment.", metavar="reference"
        ),
    ] = None,
    png: Annotated[
        Path | None, typer.Option(help="Write the charts as PNG into this folder.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Write the charts as SVG into this folder.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write the data of the charts as CSV into this folder.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to look for runs by id.")] = DEFAULT_OUT,
    json: Json = False,
    disk: fio_files.Measured = None,
    vm: fio_files.Vm = None,
    caching: fio_files.Caching = None,
) -> None:
    """Say what runs found: the verdict with its reasons, and a page with charts and tables.

    Several runs are compared cell by cell: an old and a new one, a prediction and a rehearsal.
    fio's JSON output for a disk becomes a run and is compared with what the disk promises.

    Examples: [bold]disklab report disklab-runs/RUN[/bold],
    [bold]disklab report fio.json --disk azure/P30[/bold],
    [bold]disklab report RUN --against reference[/bold], [bold]disklab report OLD NEW[/bold]
    """
    # Charts take a second to import; other commands should not wait for them.
    from disklab.advice.advise import PAGE  # noqa: PLC0415
    from disklab.report import files  # noqa: PLC0415
    from disklab.report.report import Report, content  # noqa: PLC0415
    from disklab.report.terminal import show  # noqa: PLC0415

    names = [imported(name, out, (disk, vm, caching)) for name in runs]
    opened, unreadable = readable_ones(names, out)
    made = Report.of([*opened, *files.references(opened, checked(against))])
    page = html or opened[0].inside("report.html")
    written = [
        files.write_page(made, page),
        *files.write_tables(made, page),
        *files.write_pictures(made, png=png, svg=svg, csv=csv),
    ]
    if json:
        print_json(content(made))
    else:
        show(made, console())
    for path in written:
        notes().print(Text(f"report: {path}"))
    for run in opened:
        if run.inside(PAGE).is_file():
            notes().print(Text(f"advice: {run.folder / PAGE}"))
    if unreadable is not None:
        tell(unreadable, as_json=False)
        raise typer.Exit(unreadable.exit_code)


def imported(name: str, out: Path, on: tuple[str | None, str | None, str | None]) -> str:
    """Return the run of a name: of fio's output one that is made of it. Raises UserError."""
    path = Path(name)
    if path.suffix != ".json" or not path.is_file():
        return name
    from disklab.probe import fio_results  # noqa: PLC0415 - as above

    read = fio_results.read(path, fio_files.disk_of_output(path, *on))
    note = ExperimentNote(title=f"fio's {path.name}", source="fio", file=name)
    info = begun("measure", note, notes=["imported from fio"])
    run = Run.create(out, info, experiment_text=read.experiment_text)
    with run.writing():
        for result in read.results:
            run.append(result)
        run.end()
    for result in read.results:
        console().print(fio_files.beside_its_promise(result), markup=False)
    return str(run.folder)


def readable_ones(names: list[str], out: Path) -> tuple[list[Run], UserError | None]:
    """Return the runs that can be read, and what is wrong with the others.

    A bad run hides no other. Raises UserError where none can be read.
    """
    opened: list[Run] = []
    problems: list[Problem] = []
    for name in names:
        try:
            run = Run.open(name, out)
            run.planned()
            opened.append(run)
        except UserError as error:  # noqa: PERF203 - each run has its own
            problems += error.problems
    unreadable = UserError(*problems) if problems else None
    if unreadable is not None and not opened:
        raise unreadable
    return opened, unreadable


def checked(against: str | None) -> bool:
    """Return whether the published figures are wanted."""
    if against not in (None, "reference"):
        rule = "the only name that a run can be compared with is `reference`"
        way_out = "write --against reference, or name the other run after the first"
        raise UserError(Problem("--against", str(against), rule, way_out))
    return against is not None


# `disklab serve`: a live page of running and finished runs.

PORT = 8350
TOKEN = "DISKLAB_TOKEN"  # noqa: S105 - the name of a variable
LEAST_TOKEN = 16  # characters; a random one of 32 bytes is made otherwise


def serve(
    folder: Annotated[
        Path, typer.Argument(metavar="[RUN|FOLDER]", help="A run, or a folder of runs.")
    ] = DEFAULT_OUT,
    address: Annotated[str, typer.Option(help="Where to listen; others need TLS.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = PORT,
    tls_cert: Annotated[Path | None, typer.Option(help="TLS certificate, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key, PEM.")] = None,
) -> None:
    """Watch runs in a browser: rate, tail, disks, limits, time left; pause and stop them.

    The page opens with a token, which is in the address printed here; DISKLAB_TOKEN sets it.
    /metrics has the same for Prometheus (docs/serve.md).

    Examples: [bold]disklab serve[/bold], [bold]disklab serve disklab-runs/RUN[/bold]
    """
    import uvicorn  # noqa: PLC0415 - other commands should not wait for it

    from disklab.web.access import MOST_HEAD_BYTES, Address, Connection, check_address, quiet_logs  # noqa: PLC0415
    from disklab.web.server import application  # noqa: PLC0415

    check_folder(folder, tls_cert, tls_key)
    check_address(address, tls=tls_cert is not None)
    token = os.environ.get(TOKEN) or secrets.token_urlsafe(32)
    if len(token) < LEAST_TOKEN:
        rule = f"is shorter than {LEAST_TOKEN} characters"
        raise UserError(Problem(TOKEN, "***", rule, "leave it out: a random one is made"))
    config = uvicorn.Config(
        "",
        host=address,
        port=port,
        log_level="warning",
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
        timeout_graceful_shutdown=1,
        server_header=False,
        http=Connection,
        ws="none",
        h11_max_incomplete_event_size=MOST_HEAD_BYTES,
    )
    quiet_logs()
    try:
        listener = config.bind_socket()
    except SystemExit:
        rule = "cannot be listened on: the port is taken, or the address is not of this machine"
        way_out = "choose another --port; 0 takes any that is free"
        raise UserError(Problem("--port", f"{address}:{port}", rule, way_out)) from None
    served = Address(address, listener.getsockname()[1], tls_cert is not None)
    config.app = application(folder, token, served)
    notes().print(f"{served.origin}/?token={token}", soft_wrap=True, markup=False, highlight=False)
    notes().print("Ctrl-C ends the page; runs go on.")
    uvicorn.Server(config).run(sockets=[listener])


def check_folder(folder: Path, cert: Path | None, key: Path | None) -> None:
    """Refuse what cannot be served, everything at once."""
    problems = []
    if not folder.is_dir():
        rule = "is not a folder"
        way_out = "name a run's folder, or the folder that your runs are in (--out)"
        problems.append(Problem("FOLDER", str(folder), rule, way_out))
    if (cert is None) != (key is None):
        rule = "a certificate and its key belong together"
        problems.append(Problem("--tls-cert", str(cert), rule, "give both, or neither"))
    refuse(problems)


# `disklab knob`: the simulator as a page of one file.


def knob(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="Write the page here, and do not open it."),
    ] = None,
) -> None:
    """Open the simulator in a browser: three scenes to play with, then a system of your own.

    The page is one file that works without a server and contacts no other host; its address
    contains what you choose. In a clone the simulator for browsers is built first if it is missing
    (once, a minute or two). Without FILE the page is knob.html in this folder.

    Examples: [bold]disklab knob[/bold], [bold]disklab knob page.html[/bold]
    """
    from disklab.durable import write_file  # noqa: PLC0415
    from disklab.knob import build_module, made_page  # noqa: PLC0415 - others should not wait

    build_module()
    page = file or Path("knob.html")
    write_file(page, made_page().text.encode("utf-8"), "FILE")
    console().print(str(page), soft_wrap=True, markup=False, highlight=False)
    if file is None and not open_page(page.resolve().as_uri()):
        notes().print("No browser can be opened from here: open that file in one.")


def open_page(address: str) -> bool:
    """Open an address in the browser of the desktop; return whether there is one."""
    graphical = sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & {*os.environ}
    # A browser is not started with root's rights.
    return bool(graphical) and os.geteuid() != 0 and webbrowser.open(address)
