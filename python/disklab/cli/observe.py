"""`disklab observe`: look at a database that runs, and write what it does as an experiment file."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from disklab import reading, spec
from disklab.catalog import HostRequest, VolumeRequest, find_vm, load_catalog, resolve
from disklab.catalog.resolve import Places
from disklab.cli.amounts import disk_names, one_of, vm_names
from disklab.cli.experiment_new import caching_of
from disklab.cli.output import Json, console, notes, print_json
from disklab.cli.root_part import root_part
from disklab.cli.run_progress import waits_shown
from disklab.database_facts import facts_of, names
from disklab.durable import write_new
from disklab.errors import Problem, UserError
from disklab.interrupts import passed_on
from disklab.spec.amounts import LONGEST_S, Unreadable, seconds

if TYPE_CHECKING:
    from disklab.machines.protocol import Machine
    from disklab.observation.blocks import BlocksSeen, Seen
    from disklab.observation.file import Stated
    from disklab.observation.found import Found
    from disklab.observation.machine import Disk, MachineSeen

OBSERVED = [name for name in names() if facts_of(name).observed]
PASSWORD = reading.Kind(
    "a file with a password", 4096, "name a file that contains only the password"
)
DEFAULT_OUT = Path("observed.yaml")
TRACE_SUFFIX = ".blkparse.txt"
LONGEST_TRACE_S = 600.0
"""A replay has at most a million I/Os, which is less of most disks that work."""

DatabaseArgument = Annotated[str, typer.Argument(help="What runs there.", **one_of(OBSERVED))]
Address = Annotated[
    list[str],
    typer.Option(
        help="HOST or HOST:PORT of a node; of Cassandra one is enough.", metavar="ADDRESS"
    ),
]
User = Annotated[str | None, typer.Option(help="Database user.", show_default="nobody")]
PasswordFile = Annotated[
    Path | None, typer.Option(help="A file with the password.", metavar="FILE", show_default=False)
]
PasswordVariable = Annotated[
    str | None,
    typer.Option(
        help="Instead: the environment variable that holds it.", metavar="NAME", show_default=False
    ),
]
For = Annotated[
    str, typer.Option("--for", help="How long to watch: 30s, 5min, 24h.", metavar="TIME")
]
Vm = Annotated[
    str | None,
    typer.Option(
        help="VM size that it runs on, so that advice can say what another would save.",
        autocompletion=vm_names,
        show_default="unknown",
    ),
]
Disks = Annotated[
    str | None,
    typer.Option(
        help="Disks of each node, such as '4 x azure/P30'.",
        autocompletion=disk_names,
        show_default="unknown",
    ),
]
P99 = Annotated[
    float | None,
    typer.Option(
        help="What the file requires: 99 of 100 answers within this many ms.",
        show_default="as now, at least 10",
        min=0.01,
        max=LONGEST_S * 1000,
    ),
]
BlockTrace = Annotated[
    str | None,
    typer.Option(
        "--block-trace",
        help="First record the I/Os of this machine's disks for this long, as root: 30s. The trace "
        "is written next to the file.",
        metavar="TIME",
        show_default="none",
    ),
]
HostsOption = Annotated[
    Path | None,
    typer.Option("--hosts", help="A hosts file: where its machines are.", metavar="FILE"),
]


def observe(  # noqa: PLR0913, PLR0917 - each option is a parameter
    database: DatabaseArgument,
    address: Address,
    user: User = None,
    password_file: PasswordFile = None,
    password_variable: PasswordVariable = None,
    name: Annotated[
        str, typer.Option("--database", help="PostgreSQL: the database to look at.")
    ] = "postgres",
    tls: Annotated[bool, typer.Option("--tls", help="Encrypt every connection.")] = False,
    ca_file: Annotated[
        Path | None,
        typer.Option(
            help="Certificates of the authorities that the server's must be signed by.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    window: For = "5min",
    vm: Vm = None,
    disks: Disks = None,
    caching: Annotated[
        str, typer.Option(help="Host caching of those: None, ReadOnly or ReadWrite.")
    ] = "None",
    p99: P99 = None,
    hosts: HostsOption = None,
    block_trace: BlockTrace = None,
    sample: Annotated[
        bool, typer.Option("--sample/--no-sample", help="Measure the length of some rows.")
    ] = True,
    out: Annotated[
        Path, typer.Option(help="The experiment file to write.", metavar="FILE")
    ] = DEFAULT_OUT,
    json: Json = False,
) -> None:
    """Look at a running database, without changing it, and write an experiment file.

    It reads counters that the server keeps anyway. Ctrl-C ends the window early; what was seen
    until then is used. `disklab advise` on the file answers whether to move, and to what.

    Examples: [bold]disklab observe cassandra --address 10.0.0.4 --user watch --password-file
    FILE --vm azure/Standard_E16s_v5 --disks '4 x azure/P30'[/bold],
    [bold]disklab observe postgresql --address 10.0.0.4 --user watch --database shop --for
    24h[/bold],
    [bold]sudo disklab observe cassandra --address 127.0.0.1 --block-trace 30s[/bold]
    """
    # Loaded here: no other command is to wait for the databases.
    from disklab.observation.file import Stated  # noqa: PLC0415

    length_s = window_of(window)
    trace_s = None if block_trace is None else trace_of(block_trace)
    stated = Stated(vm, disks, caching_of(caching), p99)
    check(stated, out, database, user)
    target = {
        "addresses": tuple(address),
        "user": user,
        "password": password_of(password_file, password_variable),
        "database": name,
        "tls": tls,
        "ca_file": None if ca_file is None else str(ca_file),
        "sample": sample,
    }
    found, traces = looked_at(database, target, hosts, length_s, trace_s)
    named = dict(zip(trace_files(out, traces), traces, strict=True))
    blocks = tuple(replace(told, file=str(file)) for file, (told, _) in named.items())
    finish(replace(found, blocks=blocks), stated, out, as_json=json)
    for file, (_, seen) in named.items():
        write_trace(file, seen)


def looked_at(
    database: str,
    target: Mapping[str, Any],
    hosts: Path | None,
    length_s: float,
    trace_s: float | None = None,
) -> tuple[Found, list[tuple[BlocksSeen, Seen]]]:
    """Look, and return what was found, with the block traces that were asked for."""
    from disklab.observation.found import busy, found_of  # noqa: PLC0415
    from disklab.observation.machine import watch  # noqa: PLC0415

    with ExitStack() as undo:
        undo.enter_context(waits_shown(notes()))
        observer = connected(database, target)
        undo.callback(observer.close)
        shape = observer.shape(())
        machines = machines_of([one.address for one in shape.nodes], hosts, undo)
        folders = {one.address: one.folders for one in shape.nodes}
        seen = seen_of(machines, folders)
        disks_seen = [one.disk for one in seen if one.disk is not None]
        own = {} if trace_s is None else traceable(disks_seen)
        with ended_by_interrupt() as stop:
            traces = [] if trace_s is None else traced(own, trace_s, stop)
            with progress(length_s) as tell:
                looked = watch(observer, disks_seen, length_s, stop, tell)
        return found_of(database, looked, observer.shape(busy(looked)), seen), traces


def traceable(disks: Sequence[Disk]) -> dict[str, str]:
    """Return the disks of this machine by node. Raises UserError: there is none."""
    numbers = {disk.node: disk.number for disk in disks if disk.machine.is_here}
    if not numbers:
        rule = "no disk of this machine is below the database"
        way_out = "run disklab where the database's disks are, or leave it out"
        raise UserError(Problem("--block-trace", "(disks)", rule, way_out))
    return numbers


def traced(
    disks: Mapping[str, str], seconds: float, stop: threading.Event
) -> list[tuple[BlocksSeen, Seen]]:
    """Record the I/Os of these disks. Raises MachineError."""
    from disklab.observation.blocks import look_at  # noqa: PLC0415
    from disklab.privilege.probing import recorder_by  # noqa: PLC0415

    notes().print(f"recording I/Os for {seconds:g} s", highlight=False)
    return look_at(disks, seconds, stop.is_set, recorder_by(root_part()))


def trace_files(out: Path, traces: Sequence[tuple[BlocksSeen, Seen]]) -> list[Path]:
    """Return where traces are written: beside the experiment file, by device if there are more."""
    if len(traces) == 1:
        return [out.with_name(f"{out.stem}{TRACE_SUFFIX}")]
    return [
        out.with_name(f"{out.stem}-{told.device.replace(',', '-')}-{number}{TRACE_SUFFIX}")
        for number, (told, _) in enumerate(traces, 1)
    ]


def write_trace(file: Path, seen: Seen) -> None:
    """Write a block trace. Raises UserError: the file is there."""
    from disklab.observation.blocks import blkparse_text  # noqa: PLC0415

    write_new(file, "".join(blkparse_text(seen)))


def finish(found: Found, stated: Stated, out: Path, *, as_json: bool) -> None:
    """Write the file, and say what was found, assumed, and comes next."""
    from disklab.observation.file import assumed, file_of  # noqa: PLC0415

    text = file_of(found, stated)
    write_new(out, text)
    # What was seen in a day is kept, even where it contradicts the disks that were stated.
    spec.parse(text, out)
    following = next_of(found, out)
    if as_json:
        told = assumed(found, stated)
        print_json(
            {"ok": True, **found.as_json(), "assumed": told, "file": str(out), "next": following}
        )
        return
    to = console()
    to.print(found.sentence(), style="bold", markup=False)
    to.print()
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in found.facts():
        table.add_row(*row)
    to.print(table)
    to.print()
    for one in assumed(found, stated):
        to.print(one, markup=False, highlight=False)
    to.print(f"{out}", markup=False)
    to.print(f"next: {following}", markup=False, highlight=False)


def next_of(found: Found, out: Path) -> str:
    """Return the command that goes on from the file."""
    from disklab.database_facts import facts_of  # noqa: PLC0415

    if found.per_s <= 0:
        return "look again while something reads or writes"
    return f"disklab {'advise' if facts_of(found.engine).advised else 'rehearse'} {out}"


def connected(database: str, target: Mapping[str, Any]) -> Any:
    """Return the observer of a database."""
    from disklab.databases.observing import Target, Understood  # noqa: PLC0415
    from disklab.databases.registry import record_of  # noqa: PLC0415

    observe_it = record_of(database).observe
    return Understood(database, lambda: observe_it(Target(**target)))


def check(stated: Stated, out: Path, database: str, user: str | None) -> None:
    """Raise UserError for what cannot be, before anything is asked."""
    if out.exists():
        rule = "exists already and is not overwritten"
        raise UserError(Problem("--out", str(out), rule, "choose another name"))
    facts = facts_of(database)
    if facts.asks_who and user is None:
        rule = f"{facts.title} needs to know who logs in"
        raise UserError(Problem("--user", "(missing)", rule, "write --user NAME"))
    if stated.vm is not None:
        find_vm(load_catalog(), stated.vm, Places(vm="--vm"))
    if stated.disks is not None:
        volume = VolumeRequest(disks=stated.disks, caching=stated.caching)
        host = HostRequest(vm=stated.beginning[0])
        resolve(load_catalog(), host, volume, places=Places(disks="--disks"))


def trace_of(text: str) -> float:
    """Read how long I/Os are recorded. Raises UserError; also where this is not root."""
    found = time_of("--block-trace", text)
    if not 1 <= found <= LONGEST_TRACE_S:
        rule = f"I/Os are recorded for 1 s to {LONGEST_TRACE_S:g} s"
        raise UserError(Problem("--block-trace", text, rule, "write for example 30s"))
    if os.geteuid() != 0 and root_part() is None:
        rule = "the kernel shows its I/Os only to root"
        raise UserError(Problem("--block-trace", text, rule, "start disklab with sudo"))
    return found


def time_of(option: str, text: str) -> float:
    """Read an option's time in seconds. Raises UserError."""
    try:
        return seconds(text)
    except Unreadable as error:
        raise UserError(Problem(option, text, error.rule, error.way_out)) from None


def window_of(text: str) -> float:
    """Read how long to look. Raises UserError."""
    found = time_of("--for", text)
    if found < 1:
        rule = "a rate needs at least a second"
        raise UserError(Problem("--for", text, rule, "write for example 5min"))
    return found


def password_of(file: Path | None, variable: str | None) -> str | None:
    """Return the password. Raises UserError where it is not."""
    if file is not None and variable is not None:
        rule = "the password comes from a file or from a variable"
        raise UserError(Problem("--password-variable", variable, rule, "give one of them"))
    if variable is not None:
        found = os.environ.get(variable)
        if found is None:
            rule, way_out = "the environment has no such variable", f"export {variable}=..."
            raise UserError(Problem("--password-variable", variable, rule, way_out))
        return found
    return None if file is None else reading.text(file, PASSWORD, "--password-file").rstrip("\r\n")


def machines_of(nodes: Sequence[str], hosts: Path | None, undo: ExitStack) -> dict[str, Machine]:
    """Return the machine of each node that can be seen: this one, or one of the hosts file."""
    from disklab.hosts.addresses import is_ours  # noqa: PLC0415
    from disklab.machines.local import LocalMachine  # noqa: PLC0415
    from disklab.measurement import hosts_file  # noqa: PLC0415
    from disklab.measurement.machines_of import open_machine  # noqa: PLC0415

    found: dict[str, Machine] = {}
    given = None if hosts is None else hosts_file.load(hosts).file
    for node in nodes:
        host = node.rpartition(":")[0]
        if is_ours(host):
            found[node] = LocalMachine("this machine", host)
            continue
        for name, one in (given.hosts if given is not None else {}).items():
            reached = (one.address or "").rpartition("@")[2]
            if host in (one.private_address, reached):
                config = given.ssh_config if given is not None else None
                found[node] = open_machine(name, one, config, undo)
    return found


def seen_of(
    machines: Mapping[str, Machine], folders: Mapping[str, tuple[str, ...]]
) -> list[MachineSeen]:
    """Return what the machines are."""
    from disklab.observation.machine import look  # noqa: PLC0415

    return [look(node, machine, folders[node]) for node, machine in machines.items()]


@contextmanager
def ended_by_interrupt() -> Iterator[threading.Event]:
    """Yield what the first Ctrl-C sets; the second one ends the program."""
    stop = threading.Event()

    def heard(_number: int) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    with passed_on(heard):
        yield stop


@contextmanager
def progress(length_s: float) -> Iterator[Any]:
    """Yield a listener that shows how much of the window is over, on a terminal."""
    bar = Progress(
        TextColumn("looking"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn(f"of {length_s:g} s; Ctrl-C ends it early"),
        console=notes(),
        transient=True,
        disable=not notes().is_terminal,
    )
    if not notes().is_terminal:
        notes().print(f"watching for {length_s:g} s; Ctrl-C ends it early", highlight=False)
    task = bar.add_task("", total=length_s)
    with bar:
        yield lambda over: bar.update(task, completed=min(over, length_s))
