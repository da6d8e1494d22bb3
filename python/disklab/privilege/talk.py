"""Asking root's part: one request at a time, what it tells meanwhile, and the wish to stop."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import struct
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from disklab.errors import DisklabError, EngineError, MachineError, Problem, UserError
from disklab.interrupts import ended_once, listen_to, passed_on
from disklab.reading import RESOLVED

# The socket between root's part and the caller's: whole JSON messages of a bounded size.

# The catalogue, with every price list, has 2 MB.
MOST_BYTES = 64 << 20
_LENGTH = struct.Struct("!I")

_KINDS: dict[str, type[DisklabError]] = {"MachineError": MachineError, "EngineError": EngineError}


class Link:
    """One end of the socket. Sending is safe from any thread, receiving from one."""

    def __init__(self, end: socket.socket) -> None:
        """Take one end of a pair of stream sockets."""
        self._end = end
        self._sending = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message. Raises MachineError when nobody is at the other end."""
        data = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
        if len(data) > MOST_BYTES:
            raise MachineError(f"a message of {len(data)} bytes is too large for root's part")
        try:
            with self._sending:
                self._end.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise MachineError(f"the other part of disklab has ended: {error.strerror}") from error

    def receive(self) -> dict[str, Any] | None:
        """Return the next message; None: the other end is gone.

        Raises MachineError for what is not a message.
        """
        head = self._exactly(_LENGTH.size)
        if head is None:
            return None
        (length,) = _LENGTH.unpack(head)
        if length > MOST_BYTES:
            raise MachineError(f"a message of {length} bytes is larger than any of ours")
        data = self._exactly(length)
        if data is None:
            return None
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise MachineError(f"this is not a message: {error}") from error
        if not isinstance(found, dict):
            raise MachineError("this is not a message: it is not an object")
        return found

    def close(self) -> None:
        """Leave: the other end sees it."""
        self._end.close()

    def _exactly(self, length: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < length:
            try:
                part = self._end.recv(min(length - len(parts), 1 << 20))
            except ConnectionError:
                return None
            if not part:
                return None
            parts += part
        return bytes(parts)


def told(error: DisklabError) -> dict[str, Any]:
    """Return an error as a message has it."""
    problems = [vars(one) for one in error.problems] if isinstance(error, UserError) else []
    return {"kind": type(error).__name__, "text": str(error), "problems": problems}


def error_of(said: dict[str, Any]) -> DisklabError:
    """Return the error that a message tells of."""
    if said["kind"] == "UserError":
        return UserError(*(Problem(**one) for one in said["problems"]))
    return _KINDS.get(said["kind"], DisklabError)(said["text"])


@dataclass(frozen=True)
class Said:
    """A line for the user."""

    text: str


@dataclass(frozen=True)
class Forms:
    """What may be asked of a command's root's part, told by it and answered: closed lists."""

    requests: Mapping[str, TypeAdapter[Any]]
    names: Mapping[type, str]
    """Of the requests, by their class."""
    told: Mapping[str, TypeAdapter[Any]]
    answers: Mapping[str, TypeAdapter[Any]]

    def asked(self, request: object) -> dict[str, Any]:
        """Return a request as a message has it."""
        name = self.names[type(request)]
        form = self.requests[name]
        words = form.dump_python(request, mode="json", round_trip=True, by_alias=True)
        return {"ask": name, "with": words}

    def request_of(self, message: dict[str, Any]) -> tuple[str, Any]:
        """Return what a message asks. Raises MachineError: it is not in the list, or not so."""
        name = message.get("ask")
        if not isinstance(name, str) or name not in self.requests:
            listed = [*self.requests]
            raise MachineError(f"refused: {str(name)[:80]!r} is not a request; there are {listed}")
        try:
            return name, self.requests[name].validate_python(message.get("with"), context=RESOLVED)
        except (ValidationError, RecursionError) as error:
            said = f"refused: this is not a request {name!r}: {str(error)[:500]}"
            raise MachineError(said) from None


class Talk:
    """Root's part, as the caller's sees it."""

    def __init__(self, link: Link, forms: Forms) -> None:
        """Take the caller's end of the socket."""
        self._link = link
        self._forms = forms
        self.is_gone = False
        """Whether it has ended, and all that it held with it."""
        self._is_sending = False

    def ask(self, request: object, hear: Callable[[Any], None]) -> Any:
        """Return the answer; what is told meanwhile is heard. Raises what root's part raised.

        KeyboardInterrupt: the request was ended, and root's part is ready for the next one.
        """
        words = self._forms.asked(request)
        told = self._forms.told
        with self._stopping() as wanted:
            self._send(words)
            if wanted:
                self._stop()
            while "told" in (message := self._receive()):
                hear(told[message["told"]].validate_python(message["what"]))
        error = message.get("error")
        if wanted or (error is not None and error["kind"] == "interrupted"):
            raise KeyboardInterrupt
        if error is not None:
            raise error_of(error)
        return self._forms.answers[words["ask"]].validate_python(message["answer"])

    def _send(self, words: dict[str, Any]) -> None:
        self._is_sending = True
        try:
            self._link.send(words)
        except MachineError:
            self.is_gone = True
            raise
        finally:
            self._is_sending = False

    def _stop(self) -> None:
        with suppress(DisklabError):
            self._link.send({"stop": True})

    def _receive(self) -> dict[str, Any]:
        message = self._link.receive()
        if message is None:
            self.is_gone = True
            raise MachineError("root's part of disklab has ended; run `disklab clean`")
        return message

    @contextmanager
    def _stopping(self) -> Iterator[list[int]]:
        """Pass a wish to stop on inside the block, and yield where it is noted.

        An exception in the middle of a message would lose its beginning.
        """
        wanted: list[int] = []

        def stop(number: int) -> None:
            wanted.append(number)
            # Never in the middle of another message.
            if not self._is_sending:
                self._stop()

        with passed_on(stop):
            yield wanted


# Root's part: answers the requests of a list, one at a time, until the caller's has gone.

STOP = signal.SIGUSR1
"""What this process tells itself when the caller's part wants a request to end."""


class Serving(ABC):
    """What root does for one command of one caller."""

    forms: Forms
    """All that it answers."""

    def __init__(self, link: Link) -> None:
        """Take the end of the socket; `serve` does the rest."""
        self._link = link
        self._asked: queue.SimpleQueue[dict[str, Any] | MachineError | None] = queue.SimpleQueue()
        self._is_unwanted = False
        """Whether the request that came last is to end."""

    @abstractmethod
    def done(self, request: Any) -> object:
        """Do what a request asks, and return the answer."""

    def close(self) -> None:  # noqa: B027 - most have made nothing that ends with them
        """Take away what was made and is not to stay."""

    def left(self) -> None:  # noqa: B027 - nearly all end by the signal
        """End what is under way and does not end by itself: the caller's part has gone."""

    def request_of(self, message: dict[str, Any]) -> tuple[str, Any]:
        """Return what a message asks. Raises MachineError: it is not in the list, or not so."""
        return self.forms.request_of(message)

    def serve(self) -> None:
        """Answer until the caller's part has gone; then nothing is left of what was made."""
        # Ctrl-C in the terminal comes here as well: the caller's part decides, and says so.
        listen_to(STOP)
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            while (message := self._asked.get()) is not None:
                self._answer(message)
        except MachineError:
            # Nobody hears the answer.
            pass
        finally:
            self.close()

    def tell(self, what: object) -> None:
        """Tell the caller's part of what has happened meanwhile."""
        name = type(what).__name__
        self._link.send(
            {"told": name, "what": self.forms.told[name].dump_python(what, mode="json")}
        )

    def _listen(self) -> None:
        """Take messages as they come: a wish to stop is for the request under way."""
        while True:
            try:
                message = self._link.receive()
            except MachineError as error:
                self._asked.put(error)
                message = None
            if message is not None and "ask" in message:
                self._is_unwanted = False
            if message is None or message.get("stop") is True:
                # It may not have begun.
                self._is_unwanted = True
                os.kill(os.getpid(), STOP)
            if message is None or "ask" in message:
                self._asked.put(message)
            if message is None:
                self.left()
                return

    def _answer(self, message: dict[str, Any] | MachineError) -> None:
        answer: dict[str, Any] = {"error": {"kind": "interrupted"}}
        try:
            if isinstance(message, MachineError):
                raise message
            name, request = self.request_of(message)
            with ended_once():
                if self._is_unwanted:
                    raise KeyboardInterrupt
                found = self.forms.answers[name].dump_python(self.done(request), mode="json")
            answer = {"answer": found}
        except KeyboardInterrupt:
            pass
        except DisklabError as error:
            answer = {"error": told(error)}
        except OSError as error:
            said = f"{error.filename or 'this machine'}: {error.strerror}"
            answer = {"error": told(MachineError(said))}
        except Exception as error:
            traceback.print_exc()
            said = f"root's part failed: {type(error).__name__}: {error}"
            answer = {"error": told(MachineError(said))}
        self._link.send(answer)
