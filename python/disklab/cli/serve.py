"""`disklab serve`: a live page of running and finished runs."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from disklab.cli.output import notes
from disklab.errors import Problem, UserError
from disklab.results import DEFAULT_OUT

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
    """Show runs in a browser while they go on: rate, tail, disks, limits, time left; pause, stop.

    The page opens with a token, which is in the address printed here; DISKLAB_TOKEN sets it.
    /metrics has the same for Prometheus (docs/serve.md).

    Examples: [bold]disklab serve[/bold], [bold]disklab serve disklab-runs/RUN[/bold]
    """
    import uvicorn  # noqa: PLC0415 - other commands should not wait for it

    from disklab.web.access import MOST_HEAD_BYTES, Address, Connection, check_address, quiet_logs  # noqa: PLC0415
    from disklab.web.server import application  # noqa: PLC0415

    checked(folder, tls_cert, tls_key)
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


def checked(folder: Path, cert: Path | None, key: Path | None) -> None:
    """Refuse what cannot be served, everything at once."""
    problems = []
    if not folder.is_dir():
        rule = "is not a folder"
        way_out = "name a run's folder, or the folder that your runs are in (--out)"
        problems.append(Problem("FOLDER", str(folder), rule, way_out))
    if (cert is None) != (key is None):
        rule = "a certificate and its key belong together"
        problems.append(Problem("--tls-cert", str(cert), rule, "give both, or neither"))
    if problems:
        raise UserError(*problems)
