"""Asking root's part: one request at a time, what it tells meanwhile, and the wish to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from disklab.errors import DisklabError, MachineError
from disklab.interrupts import passed_on
from disklab.privilege.wire import Link, error_of
from disklab.spec.amounts import RESOLVED


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
