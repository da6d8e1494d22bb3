"""What cannot be had of a database that runs already, whichever it is: refusals with a way out."""

from __future__ import annotations

from collections.abc import Iterator

from disklab.databases.protocol import Conditions, Request
from disklab.errors import Problem, UserError

START_IT = "or let disklab start the database"


def used_as_it_ran(address: str) -> str:
    """Return what a reader of its figures should know."""
    return f"{address} was used as it ran: settings, memory and page cache are its own"


def address_of(request: Request, service: str, port: int) -> tuple[str, int, list[Problem]]:
    """Return host and port of a request's address, and what is wrong with it.

    `service`: CQL or YSQL; `port`: the one that it has where the address names none.
    """
    host, _, told = str(request.address).rpartition(":")
    host, told = (host, told) if host else (told, str(port))
    if told.isdigit() and host:
        return host, int(told), []
    rule = f"an address is HOST or HOST:PORT of the {service} service"
    way_out = f"write for example 10.0.0.4:{port}"
    return host, port, [Problem("database.address", str(request.address), rule, way_out)]


def refused_settings(request: Request) -> Iterator[Problem]:
    """Yield a problem for each setting: they are the cluster's own."""
    for name, value in request.settings.items():
        rule = f"{request.address} runs already, with settings of its own"
        way_out = "set it there, and leave it out here"
        yield Problem(f"database.settings.{name}", repr(value), rule, way_out)


def refuse_settling(address: str, language: str, conditions: Conditions) -> None:
    """Raise UserError when conditions ask for more than a truncated table."""
    problems = []
    for asked, place, what in (
        (conditions.flushed, "before", "flush its memtables"),
        (conditions.compacted, "before.compactions", "tell when its compactions have ended"),
    ):
        if asked:
            rule = f"{address} runs already, and {language} cannot {what}"
            problems.append(Problem(place, "asked for", rule, f"use `as-left`, {START_IT}"))
    if problems:
        raise UserError(*problems)


def refuse_cold(address: str) -> UserError:
    """Return why its page cache is not dropped: it is another machine's, or another's business."""
    rule = f"{address} runs already, and its page cache is not ours to drop"
    way_out = f"use `page_cache: as-left`, {START_IT}"
    return UserError(Problem("before.page_cache", "cold", rule, way_out))
