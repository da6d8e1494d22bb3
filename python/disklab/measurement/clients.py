"""The hosts that make the load of a database that is built on hosts.

Each has a folder in /tmp while the run lasts. A generator works in it: that is how one is found and
ended that a killed run has left, before it disturbs the run that goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import PurePosixPath
from typing import Any

from disklab.databases import remote_host
from disklab.engine.load import LoadDone
from disklab.errors import MachineError
from disklab.machines import own_folders as folders
from disklab.machines.protocol import ClockOffset, Command, Machine
from disklab.measurement.clients_load import Client
from disklab.measurement.hosts_file import Hosts
from disklab.measurement.journal import Journal
from disklab.telemetry.judgement import MOST_CLIENT_THREAD

PARENT = PurePosixPath("/tmp")  # noqa: S108 - a new name in it, made by mkdir alone
AUTHORITIES = "authorities.pem"
USERS = (*remote_host.USERS, "nobody")
"""Who a generator runs as for root: it reads and writes no file."""
MOST_AHEAD_MS = 5.0
"""An open loop's arrivals are merged by the clocks of those that make them."""

MOST_APART_MS = 50.0
"""A twentieth of the second that the course is told in; on hosts that rest it is a millisecond."""


def names_of(hosts: Hosts) -> list[str]:
    """Return the hosts that make load, in the order of the file."""
    return [name for name, host in hosts.file.hosts.items() if host.role == "client"]


def make(
    hosts: Hosts,
    machines: Mapping[str, Machine],
    journal: Journal,
    authorities: bytes | None = None,
) -> list[Client]:
    """Return the hosts that make load, each with a new folder, which is written down before.

    `authorities`: certificates (PEM) that it gets, for a server that is known by them.
    """
    made = []
    for name in names_of(hosts):
        machine = machines[name]
        account = remote_host.account(machine, USERS)
        folder_name, token = folders.new_name("load")
        folder = PARENT / folder_name
        journal.note(name, "end_load", str(folder), before=token)
        folders.make(machine, folder, token)
        known = None
        if authorities is not None:
            known = folder / AUTHORITIES
            # Public, and read by the user that the generator runs as.
            machine.files.write(known, authorities, 0o644)
        made.append(Client(name, machine, account, folder, known))
    return made


def addresses(clients: Sequence[Client], server: Machine) -> Iterator[str]:
    """Yield the IP addresses from which clients reach a server. Raises MachineError for none."""
    for client in clients:
        told = client.machine.address
        try:
            yield str(ip_address(told))
        except ValueError:
            found = server.run(Command(["getent", "ahosts", told])).stdout.decode(errors="replace")
            known = {line.split()[0] for line in found.splitlines() if line.split()}
            if not known:
                raise MachineError(
                    f"{client.name}: {server.name} does not know its address {told}: write its IP "
                    "address as private_address in the hosts file"
                ) from None
            yield from sorted(known)


def seen(
    clients: Sequence[Client], ends: Mapping[str, LoadDone], began_after_ms: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Return for each client its part of the last run and how far its clock is from ours.

    `began_after_ms`: how long after the first client each began, where there are several.
    """
    found = []
    for client in clients:
        told: dict[str, Any] = {"host": client.name}
        # A host that is gone is named by the failure already.
        with suppress(MachineError):
            told["clock"] = in_ms(client.machine.clock())
        done = ends.get(client.name)
        if done is not None:
            told["operations"] = sum(one.count for one in done.operations.values())
            told["cores"] = round(done.cpu_ns / 1e9 / done.elapsed_s, 3) if done.elapsed_s else 0.0
        if client.name in began_after_ms:
            told["began_after_ms"] = began_after_ms[client.name]
        found.append(told)
    return found


def in_ms(clock: ClockOffset) -> dict[str, float]:
    """Return a clock's offset as results have it."""
    return {
        "ahead_ms": round(clock.ahead_s * 1e3, 3),
        "error_ms": round(clock.error_s * 1e3, 3),
    }


def judged(told: Sequence[Mapping[str, Any]], *, is_open: bool) -> tuple[list[str], list[str]]:
    """Return why a result is invalid, and what it must be doubted for, of `seen`."""
    invalid: list[str] = []
    doubts = [*_apart(told)]
    for one in told:
        cores = one.get("cores", 0.0)
        if cores > MOST_CLIENT_THREAD:
            invalid.append(
                f"the client was the limit: {one['host']} used {cores:.2f} cores of its one thread "
                f"(more than {MOST_CLIENT_THREAD:.0%} means that operations wait for the client); "
                "add client hosts"
            )
        clock = one.get("clock")
        if clock is None or not is_open:
            continue
        ahead, error = abs(clock["ahead_ms"]), clock["error_ms"]
        if ahead - error > MOST_AHEAD_MS:
            invalid.append(
                f"the clock of {one['host']} is {ahead:.1f} ms off this machine's (known to "
                f"{error:.1f} ms), and an open loop's may be {MOST_AHEAD_MS:g} ms: set it by NTP"
            )
        elif ahead + error > MOST_AHEAD_MS:
            doubts.append(
                f"the clock of {one['host']} is known to {error:.1f} ms only: whether it is within "
                f"the {MOST_AHEAD_MS:g} ms of an open loop cannot be told over this link"
            )
    return invalid, doubts


def _apart(told: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield that generators did not begin together, as far as their clocks can tell."""
    began = [one for one in told if "began_after_ms" in one]
    if len(began) < 2:
        return
    first = min(began, key=lambda one: one["began_after_ms"])
    last = max(began, key=lambda one: one["began_after_ms"])
    apart_ms = last["began_after_ms"] - first["began_after_ms"]
    error_ms = sum(one.get("clock", {}).get("error_ms", 0.0) for one in (first, last))
    if apart_ms - error_ms > MOST_APART_MS:
        yield (
            f"the load of {last['host']} began {apart_ms:.0f} ms after that of {first['host']}: "
            "their seconds are added up as if they were the same ones"
        )
