"""Root's part: answers the requests of a list, one at a time, until the caller's has gone."""

from __future__ import annotations

import os
import queue
import signal
import threading
import traceback
from abc import ABC, abstractmethod
from typing import Any

from disklab.errors import DisklabError, MachineError
from disklab.interrupts import ended_once, listen_to
from disklab.privilege.talk import Forms
from disklab.privilege.wire import Link, told

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
