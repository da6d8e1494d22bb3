"""Questions to databases of ours over HTTP: put by a process without root where this one has it.

Root makes the connection, which takes no reading; what comes over it is read by `asker.py`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from disklab.databases import asker
from disklab.engine import Account, server_account
from disklab.machines import programs

# Beside the time that the question itself has.
SPARE_SECONDS = 5.0


@dataclass(frozen=True)
class Tls:
    """Whom to believe, and who asks: files of PEM on the machine that asks."""

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Question:
    """An HTTP request."""

    host: str
    port: int
    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: str | None
    seconds: float
    """Without a byte of an answer."""
    tls: Tls | None = None


def ask(question: Question) -> tuple[int, bytes]:
    """Return status and body. Raises OSError: nobody answers, or not so."""
    wire = socket.create_connection((question.host, question.port), question.seconds)
    account = server_account()
    talk, theirs = socket.socketpair()
    with wire, talk:
        with theirs:
            if account is None:
                # This process has no rights that another one has not.
                there = socket.socket(fileno=os.dup(theirs.fileno()))
                work = threading.Thread(target=asker.serve, args=(there, wire.dup()), daemon=True)
                work.start()
            else:
                _ASKER.hand_over(account, theirs, wire)
        talk.settimeout(question.seconds + SPARE_SECONDS)
        talk.sendall(json.dumps(_told(question)).encode())
        talk.shutdown(socket.SHUT_WR)
        try:
            answer = asker.read_all(talk, asker.MOST_ANSWER_BYTES + 4096)
        except ValueError as error:
            raise OSError(f"an answer of {error}") from error
    return _heard(answer)


def _told(question: Question) -> dict[str, object]:
    tls = question.tls
    told: dict[str, object] = {**vars(question), "headers": dict(question.headers)}
    files = () if tls is None else (tls.authority, tls.certificate, tls.key)
    return told | {"tls": [file.read_text("ascii") for file in files] or None}


def _heard(answer: bytes) -> tuple[int, bytes]:
    """Return what the asker says. Raises OSError."""
    head, _, body = answer.partition(b"\n")
    try:
        told = json.loads(head)
        if "error" not in told:
            return int(told["status"]), body
    except (ValueError, TypeError, KeyError, RecursionError):
        raise OSError("who asked has ended without an answer") from None
    raise OSError(str(told["error"])[:500])


class _Asker:
    """The process that asks; it ends when this one lets go of its socket, whatever ended that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: programs.Process | None = None
        self._control: socket.socket | None = None
        self._parent = 0

    def hand_over(self, account: Account, talk: socket.socket, wire: socket.socket) -> None:
        """Let it put a question. Raises OSError when it cannot be started."""
        with self._lock:
            # A fork of this process has its own; one that has died is started again.
            question = [b"?"], [talk.fileno(), wire.fileno()]
            if self._control is not None and self._parent == os.getpid():
                with suppress(OSError):
                    socket.send_fds(self._control, *question)
                    return
            socket.send_fds(self._start(account), *question)

    def _start(self, account: Account) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Python's own library alone, as the user may not look into the folder of this program.
        command = [sys.executable, "-I", "-S", "-B", str(Path(asker.__file__))]
        with theirs:
            process = programs.start(
                [*command, str(theirs.fileno()), str(account.uid), str(account.gid)],
                handles=(theirs.fileno(),),
                variables={"LC_ALL": "C.UTF-8"},
            )
        if self._process is not None and self._parent == os.getpid():
            self._process.poll()
        self._process, self._control, self._parent = process, ours, os.getpid()
        return ours


_ASKER = _Asker()
