"""What killed measurements have left on hosts, for `disklab clean`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from disklab.errors import DisklabError, UserError
from disklab.folders import Inside
from disklab.machines.protocol import Machine
from disklab.measurement import hosts_file
from disklab.measurement.endpoint import Access
from disklab.measurement.hosts_file import Hosts, HostsFile
from disklab.measurement.journal import Change, Drop, Journal, forget, remembered, undo_all
from disklab.measurement.machines_of import open_machine
from disklab.measurement.preparation import HOSTS
from disklab.measurement.running_database import drop
from disklab.results import durable

Done = tuple[str, bool]
"""A line for the user, and whether all is well: False where something is left."""


def clean_left(*, dry_run: bool = False) -> Iterator[Done]:
    """Undo what measurements have left that are gone; yield what was done, line by line.

    A run that goes on is left alone. Without anything left it yields nothing and reaches no host.
    """
    for folder in remembered():
        yield from _clean_folder(folder, dry_run=dry_run)


def _clean_folder(folder: Path, *, dry_run: bool) -> Iterator[Done]:
    if not folder.is_dir():
        # Without the run's folder nobody knows what was changed; the hosts have the answer.
        yield f"{folder} is gone, and with it the record of what it changed on its hosts", False
        forget(folder)
        return
    try:
        with durable.sole_writer(folder):
            yield from _clean_run(folder, dry_run=dry_run)
    except UserError as error:
        yield f"left alone {folder}: {error.problems[0].rule}", True


def _clean_run(folder: Path, *, dry_run: bool) -> Iterator[Done]:
    journal = Journal.of(folder)
    left = journal.left()
    if dry_run:
        yield from ((f"would undo {in_words(change)}", True) for change in left)
        return
    if not left:
        journal.done()
        return
    hosts = hosts_file.load(Inside(folder, HOSTS))
    with ExitStack() as undo:
        machines: dict[str, Machine] = {}
        for name in dict.fromkeys(one.host for one in left if one.kind != "drop"):
            found = _opened(name, hosts.file, undo)
            if isinstance(found, str):
                yield found, False
            else:
                machines[name] = found
        told = undo_all(journal, machines, _dropper(hosts))
    still = {change.number for change in journal.left()}
    for change in left:
        if change.number not in still:
            yield f"undid {in_words(change)}", True
    yield from ((line, not still) for line in told)


def _dropper(hosts: Hosts) -> Drop | None:
    """Return what drops our tables in the running database of a hosts file, if it has one."""
    endpoint = hosts.file.database
    if endpoint is None:
        return None
    access = Access(hosts, endpoint)
    return lambda change: drop(access, change.before, change.path)


def _opened(name: str, given: HostsFile, undo: ExitStack) -> Machine | str:
    """Return a host as a machine, or why it cannot be reached."""
    try:
        return open_machine(name, given.hosts[name], given.ssh_config, undo)
    except (DisklabError, KeyError) as error:
        return f"could not undo what is left on {name}: {error}"


def in_words(change: Change) -> str:
    """Return a change on one line."""
    what = {
        "drop": f"the schema or keyspace {change.path}",
        "remove_database": f"the database in {change.path}",
        "end_load": f"the load that works in {change.path}",
        "remove_file": f"the file {change.path}",
        "remove_folder": f"the folder {change.path}",
        "unmount": f"the mount at {change.path}",
        "stop_stripe": f"the stripe {change.path} of {change.now}",
        "join": f"the way to {change.path} cut",
        "swapon": f"swapping to {change.path} switched off",
        "write": f"{change.path} set from {change.before} to {change.now}",
    }[change.kind]
    return f"{what} on host {change.host}"
