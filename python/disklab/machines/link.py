"""One connection to the agent of a host: the user's own OpenSSH, requests and answers as lines.

What comes from the host is not trusted: every line, answer and wait is bounded, and what it says is
shown only as a terminal may show it.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import secrets
import select
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswerError
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from disklab.errors import MachineError
from disklab.machines.child import Started, piped
from disklab.terminal import plain

# What an agent answers, taken apart with care; and who may be asked.


class Asked(Protocol):
    """A far machine as its programs and files see it."""

    @property
    def name(self) -> str:
        """What the user calls it."""

    def ask(self, operation: str, *, seconds: float = ..., **fields: Any) -> dict[str, Any]:
        """Ask the agent, again when the link was lost meanwhile."""

    def tail(
        self, job: str, offset: int, *, stream: str = ..., wait_ms: int = ...
    ) -> tuple[bytes, bool]:
        """Return what a job has said from an offset on, and whether that is the end."""

    def forget(self, job: str) -> None:
        """Let the host remove what it knows of a job."""

    def distrust(self, what: str) -> MachineError:
        """Return the error for a host that does what no agent does."""


def whole(place: str, answer: dict[str, Any], name: str) -> int:
    """Return a number of an answer of this host, from 0 to below 2^63."""
    value = answer.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise MachineError(f"{place}: its agent answered without a right `{name}`")
    return value


def decoded(place: str, answer: dict[str, Any], name: str, most_bytes: int) -> bytes:
    """Return bytes of an answer; raises MachineError for none, or more than were asked for."""
    value = answer.get(name)
    try:
        data = base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        data = None
    if data is None or len(data) > most_bytes:
        raise MachineError(f"{place}: its agent answered without a right `{name}`")
    return data


def exit_code(place: str, program: str, answer: dict[str, Any], seconds: float) -> int:
    """Return the exit code of a job that has ended; raises MachineError when it was not its own."""
    ended = answer.get("ended")
    if not isinstance(ended, dict):
        raise MachineError(
            f"{place}: {program} is gone without an exit code: the host was restarted, or its "
            "keeper was killed (a system that ends a user's programs when he logs out: "
            "`loginctl enable-linger`)"
        )
    code, why = ended.get("code"), ended.get("why")
    if why == "timeout":
        raise MachineError(f"{place}: {program} still ran after {seconds:g} s")
    if why == "spool":
        raise MachineError(f"{place}: {program} was ended: it wrote more than a spool may hold")
    if why == "lease":
        raise MachineError(
            f"{place}: {program} was ended there: nothing was heard of us for as long as its lease"
        )
    if not isinstance(code, int) or not -128 <= code <= 255:
        raise MachineError(f"{place}: its agent answered without a right exit code of {program}")
    return code


PROTOCOL = 1
LINE_BYTES = 1 << 20
"""The longest line, as the agent has it."""
MOST_WANTED = 2
"""An agent is sent once; once more where somebody removed it meanwhile."""
HELLO = {"protocol": (PROTOCOL, PROTOCOL), "processors": (1, 4096), "pid": (1, 1 << 22)}
HELLO |= {"clock_ns": (0, (1 << 63) - 1)}
"""Numbers of an agent's greeting, and their ends. As many processors as Linux is built for is 8192;
nobody rents such a machine, and each one is a thread here."""
HELLO_WORDS = ("hello", "version", "boot", "architecture", "kernel")
NOISE_BYTES = 1 << 20
"""What a login shell may print before the agent speaks."""
STRAY_ANSWERS = 1000
"""Answers to questions that nobody waits for any more, and then it is no agent."""
STDERR_BYTES = 16 << 10
END_SECONDS = 5.0
_CHUNK_BYTES = 64 << 10


class LinkLostError(Exception):
    """The connection is gone, and may come again; its text says what ssh said."""


class RefusedError(MachineError):
    """The agent refused a request, which has changed nothing."""

    def __init__(self, text: str, errno: int | None) -> None:
        super().__init__(text)
        self.errno = errno


@dataclass(frozen=True)
class Agent:
    """The program that serves us on the host, known by its content."""

    path: Path
    sha256: str
    size_bytes: int
    note: str
    """What to do when the host cannot run it."""


class Link:
    """A living connection. Threads may ask at the same time."""

    def __init__(self, name: str, process: subprocess.Popen[bytes]) -> None:
        self._name = name
        self._process = process
        self._pipes = (piped(process.stdin), piped(process.stdout))
        self._stdin, self._stdout = (pipe.fileno() for pipe in self._pipes)
        os.set_blocking(self._stdin, False)
        self._rest = b""
        self._writing = threading.Lock()
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._state = threading.Lock()
        self._next = 0
        self._why: str | None = None
        self._hostile: str | None = None
        self._said: deque[bytes] = deque()
        self.heard = time.monotonic()
        """When the last bytes came."""
        self._stderr_thread = threading.Thread(
            target=self._drain, args=(process.stderr,), name=f"{name} stderr", daemon=True
        )
        self._stderr_thread.start()
        self._reader: threading.Thread | None = None

    @classmethod
    def start(cls, name: str, command: Sequence[str]) -> Link:
        """Start ssh. Nothing is known of the host yet."""
        try:
            process = Started(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                # Ctrl-C in a terminal is for the conductor, who ends what it started.
                start_new_session=True,
            )
        except OSError as error:
            raise MachineError(f"{command[0]} cannot be started: {error}; install it") from error
        return cls(name, process)

    @property
    def is_alive(self) -> bool:
        """Whether answers may come yet."""
        return self._why is None and self._process.poll() is None

    @property
    def hostile(self) -> str | None:
        """What the host did that no agent does; None: nothing."""
        return self._hostile

    def greet(self, token: str, agent: Agent, seconds: float) -> dict[str, Any]:
        """Send the agent if the host has it not, and return its hello; others' lines are skipped.

        Raises LinkLostError when the connection ends, MachineError when the host cannot run it.
        """
        deadline = time.monotonic() + seconds
        skipped = wanted = 0
        while True:
            line = self._line(deadline)
            skipped += len(line) + 1
            if skipped > NOISE_BYTES:
                raise MachineError(
                    f"{self._name}: its login shell prints more than {NOISE_BYTES >> 20} MiB; make "
                    "its start files silent for programs"
                )
            words = line.split(b" ")
            if words[0] == token.encode() and len(words) >= 2:
                if words[1] == b"want":
                    wanted += 1
                    if wanted > MOST_WANTED:
                        raise MachineError(
                            f"{self._name}: it asks for the agent again and again, which it has: "
                            "it runs something else than our script"
                        )
                    self._fits(words[2:3])
                    # As long again as there is something to send: it may be a slow line.
                    self._send_agent(agent, time.monotonic() + 10 * seconds)
                    deadline = time.monotonic() + seconds
                elif words[1] == b"failed":
                    raise LinkLostError(
                        f"the agent did not arrive whole, or cannot be stored there; {self.said()}"
                    )
                continue
            if hello := self._hello(line, token):
                self._reader = threading.Thread(
                    target=self._read, name=f"{self._name} answers", daemon=True
                )
                self._reader.start()
                return hello

    def _fits(self, words: Sequence[bytes]) -> None:
        there = words[0].decode(errors="replace") if words else ""
        if there != os.uname().machine:
            raise MachineError(
                f"{self._name}: it is a machine of another kind ({plain(there)[:40]}) than this "
                f"one ({os.uname().machine}); give an engine for it by $DISKLAB_STATIC_ENGINE"
            )

    def _send_agent(self, agent: Agent, deadline: float) -> None:
        left = agent.size_bytes
        with agent.path.open("rb") as file:
            while left and (chunk := file.read(min(left, _CHUNK_BYTES))):
                left -= len(chunk)
                self._write(chunk, deadline)

    def _hello(self, line: bytes, token: str) -> dict[str, Any] | None:
        if b"hello" not in line:
            return None
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(said, dict) or said.get("hello") != token:
            return None
        if said.get("protocol") != PROTOCOL:
            raise MachineError(
                f"{self._name}: its agent speaks protocol {plain(str(said.get('protocol')))[:20]}, "
                f"and this disklab {PROTOCOL}: the engine is of another release; install it again"
            )
        for name, (least, most) in HELLO.items():
            value = said.get(name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                shown = plain(repr(value))[:40]
                raise MachineError(
                    f"{self._name}: its agent says `{name}` {shown}, which is no number from "
                    f"{least} to {most}: it is no agent of ours, or has been changed"
                )
        # What it says of the host is shown to people.
        words = {name: plain(str(said.get(name, "")))[:200] for name in HELLO_WORDS}
        return {**words, **{name: said[name] for name in HELLO}}

    def ask(self, operation: str, fields: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Ask, and wait for the answer.

        Raises RefusedError, LinkLostError, or MachineError when there is no answer in that time.
        """
        answer = self.send(operation, fields, seconds)
        try:
            return answer.result(seconds)
        except NoAnswerError as error:
            raise MachineError(
                f"{self._name}: no answer to `{operation}` within {seconds:g} s, though the host "
                "is there: it is overloaded, or its disk hangs"
            ) from error

    def send(
        self, operation: str, fields: dict[str, Any], seconds: float
    ) -> Future[dict[str, Any]]:
        """Ask, and return the answer to come."""
        promised: Future[dict[str, Any]] = Future()
        with self._state:
            if self._why is not None:
                raise LinkLostError(self._why)
            number = self._next
            self._next += 1
            self._waiting[number] = promised
        line = json.dumps({"id": number, "op": operation, **fields}).encode() + b"\n"
        try:
            if len(line) > LINE_BYTES:
                raise MachineError(
                    f"{self._name}: a request of {len(line)} bytes is longer than {LINE_BYTES}; "
                    "put large input into a file"
                )
            self._write(line, time.monotonic() + seconds)
        except BaseException:
            with self._state:
                self._waiting.pop(number, None)
            raise
        return promised

    def _write(self, data: bytes, deadline: float) -> None:
        left = memoryview(data)
        with self._writing:
            if self._why is not None:
                raise LinkLostError(self._why)
            while left:
                wait = deadline - time.monotonic()
                if wait <= 0:
                    # A part of a line was sent: nothing can follow it.
                    self.lose("it takes no more bytes")
                    raise LinkLostError(self._why)
                if not select.select([], [self._stdin], [], min(wait, 1.0))[1]:
                    if self._why is not None:
                        raise LinkLostError(self._why)
                    continue
                try:
                    left = left[os.write(self._stdin, left) :]
                except BlockingIOError:
                    continue
                except OSError as error:
                    self._await_last_words()
                    self.lose(self.said() or str(error))
                    raise LinkLostError(self._why) from error

    def lose(self, why: str) -> None:
        """End the connection; whoever waits is told why."""
        with self._state:
            if self._why is None:
                self._why = why
            waiting = list(self._waiting.values())
            self._waiting.clear()
        for promised in waiting:
            if not promised.done():
                promised.set_exception(LinkLostError(self._why))
        if self._process.poll() is None:
            # With what it has started: the ways through jump hosts.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the connection: the agent sees the end of its input and goes."""
        stdin, stdout = self._pipes
        with suppress(OSError):
            stdin.close()
        if self._why is None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
        self.lose("it was closed")
        self._process.wait()
        if self._reader is not None:
            self._reader.join(END_SECONDS)
        self._stderr_thread.join(END_SECONDS)
        stdout.close()

    def said(self) -> str:
        """Return the end of what ssh and the host's programs wrote on standard error."""
        text = b"".join(self._said)[-STDERR_BYTES:].decode(errors="replace")
        return plain(text.replace("\r", "")).strip()

    def _await_last_words(self) -> None:
        self._stderr_thread.join(1.0)

    def _drain(self, pipe: IO[bytes]) -> None:
        with pipe:
            while chunk := os.read(pipe.fileno(), 4096):
                self._said.append(chunk)
                # A bound, not a measure: of the last chunks at least this much is shown.
                while len(self._said) > 64:
                    self._said.popleft()

    def _line(self, deadline: float) -> bytes:
        """Return the next line; raises LinkLostError at the end, or when none comes in time."""
        while True:
            line, found, rest = self._rest.partition(b"\n")
            if found:
                self._rest = rest
                return line.rstrip(b"\r")
            if len(self._rest) > LINE_BYTES:
                raise MachineError(f"{self._name} sent a line of more than {LINE_BYTES} bytes")
            wait = deadline - time.monotonic()
            if wait <= 0 or not select.select([self._stdout], [], [], wait)[0]:
                raise LinkLostError(f"its agent did not answer in time; {self.said()}")
            chunk = os.read(self._stdout, _CHUNK_BYTES)
            if not chunk:
                self._await_last_words()
                raise LinkLostError(self.said() or "the connection was closed")
            self.heard = time.monotonic()
            self._rest += chunk

    def _read(self) -> None:
        """Hand out answers as they come, until the connection ends."""
        rest = bytearray(self._rest)
        strays = 0
        try:
            while chunk := os.read(self._stdout, _CHUNK_BYTES):
                self.heard = time.monotonic()
                rest += chunk
                if b"\n" in chunk:
                    *lines, last = rest.split(b"\n")
                    rest = bytearray(last)
                    for line in lines:
                        strays += not self._hand_out(bytes(line))
                if len(rest) > LINE_BYTES or strays > STRAY_ANSWERS:
                    self._hostile = (
                        f"it sent a line of more than {LINE_BYTES} bytes"
                        if strays <= STRAY_ANSWERS
                        else "it sends lines that were not asked for"
                    )
                    self.lose(self._hostile)
                    return
        except OSError:
            pass
        self._await_last_words()
        self.lose(self.said() or "the connection was closed")

    def _hand_out(self, line: bytes) -> bool:
        """Give an answer to whoever waits for it; return False when it is none."""
        if not line.strip():
            return True
        try:
            said = json.loads(line)
        except ValueError:
            return False
        except RecursionError:
            # No answer is like this: whoever waits for one is not to wait on.
            self._hostile = "it sent a line of lists within lists"
            self.lose(self._hostile)
            return False
        number = said.get("id") if isinstance(said, dict) else None
        if not isinstance(number, int) or len(line) > LINE_BYTES:
            return False
        with self._state:
            promised = self._waiting.pop(number, None)
        if promised is None:
            return False
        answer, error = said.get("answer"), said.get("error")
        if isinstance(answer, dict):
            promised.set_result(answer)
        else:
            promised.set_exception(self._refusal(error))
        return True

    def _refusal(self, error: object) -> RefusedError:
        parts = error if isinstance(error, dict) else {}
        words = [plain(str(parts.get(name, "")))[:300] for name in ("place", "value", "rule")]
        text = ": ".join(word for word in words if word) or "its agent refused without a reason"
        errno = parts.get("errno")
        return RefusedError(f"{self._name}: {text}", errno if isinstance(errno, int) else None)


def new_token() -> str:
    """Return a name that nobody else has."""
    return secrets.token_hex(16)
