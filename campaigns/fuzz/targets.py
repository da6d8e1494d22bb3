"""What is fuzzed: each target takes one input and says what was wrong with the answer."""

from __future__ import annotations

import contextlib
import json
import random
import select
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from disklab.folders import Inside
from disklab.machines.binary import find_engine
from disklab.results.event_log import EVENTS, read_events
from disklab.results.histogram import HistogramError, decode
from disklab.results.run import Run
from disklab.results.seconds import read_course

from campaigns.fuzz.mutation import changed_bytes, changed_line
from campaigns.kills.lab import Lab
from campaigns.kills.scenarios import CACHED

CORPORA = Path(__file__).parents[2] / "tests/corpora"
# A mutated job may ask for much work, which is no fault; only checks must be quick.
ANSWER_SECONDS = 20.0


class BrokenError(Exception):
    """An input that crashed or hung something."""


Try = Callable[[bytes], None]
Change = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class Target:
    """One thing that takes input from outside."""

    name: str
    opened: Callable[[], contextlib.AbstractContextManager[Try]]
    change: Change = changed_line

    def corpus(self) -> list[bytes]:
        """Return the inputs that mutation begins with, those that once broke it among them."""
        files = sorted((CORPORA / self.name).iterdir())
        return [file.read_bytes() for file in files]


class Lines:
    """An engine's mode that answers each line by a line; a new process after each that ended."""

    def __init__(self, mode: str, *, slow: bool = False) -> None:
        self._mode, self._slow = mode, slow
        self._begin()

    def _begin(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [str(find_engine()), *self._mode.split()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def __call__(self, line: bytes) -> None:
        line = line.rstrip(b"\n")
        if not line.strip():
            return
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], ANSWER_SECONDS)
            answer = process.stdout.readline() if ready else None
        except OSError:
            answer = b""
        if answer is None:
            self.close()
            self._begin()
            if self._slow:
                return
            raise BrokenError(f"no answer within {ANSWER_SECONDS:g} s")
        try:
            json.loads(answer)
        except ValueError:
            # It ends before its error is read.
            self.close()
            self._errors.seek(0)
            said = self._errors.read(2000).decode(errors="replace")
            code = process.returncode
            self._begin()
            # A line that is no UTF-8 ends the mode, in order and with a word.
            if code not in (1, 2) or "panicked" in said:
                raise BrokenError(f"ended with {code}: {said}") from None

    def close(self) -> None:
        """End the process, at once when it works still."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextlib.contextmanager
def lines(mode: str, *, slow: bool = False) -> Iterator[Try]:
    """Yield a mode of the engine to try lines on."""
    made = Lines(mode, slow=slow)
    try:
        yield made
    finally:
        made.close()


def panics(command: list[str], given: bytes) -> None:
    """Run a program that must end in order, whatever it is given."""
    try:
        ran = subprocess.run(
            command, input=given, capture_output=True, timeout=ANSWER_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return  # it found somebody to wait for, and has time-outs of its own
    if ran.returncode not in (0, 1, 2) or b"panicked" in ran.stderr:
        said = ran.stderr[-2000:].decode(errors="replace")
        raise BrokenError(f"ended with {ran.returncode}: {said}")


@contextlib.contextmanager
def load_jobs() -> Iterator[Try]:
    """Yield the load engine, in a network of its own: a mutated address leads nowhere."""
    yield lambda given: panics(["unshare", "--net", str(find_engine()), "load"], given)


class Server:
    """A server that answers every message of a client by mutated messages."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(0.1)
        self.port = self._socket.getsockname()[1]
        self.answer = b""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(OSError):
                client, _ = self._socket.accept()
                threading.Thread(target=self._speak, args=(client,), daemon=True).start()

    def _speak(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            client.settimeout(2.0)
            for _ in range(20):
                if not client.recv(65536):
                    return
                client.sendall(self.answer)

    def close(self) -> None:
        """End it."""
        self._over.set()
        self._thread.join()
        self._socket.close()


@contextlib.contextmanager
def postgresql_replies() -> Iterator[Try]:
    """Yield a PostgreSQL client whose server says what is tried."""
    server = Server()
    job = json.loads((CORPORA / "load" / "postgresql.json").read_bytes())
    job["target"]["contact_points"] = [f"127.0.0.1:{server.port}"]
    job["stop"] = {"duration_s": 0.2}

    def attempt(answer: bytes) -> None:
        server.answer = answer
        panics([str(find_engine()), "load"], json.dumps(job).encode())

    try:
        yield attempt
    finally:
        server.close()


@contextlib.contextmanager
def cql_replies() -> Iterator[Try]:
    """Yield a Cassandra client whose server says what is tried."""
    server = Server()
    command = [str(find_engine()), "query", "--contact-point", f"127.0.0.1:{server.port}"]

    def attempt(answer: bytes) -> None:
        server.answer = answer
        panics([*command, "--timeout-ms", "300"], b'"SELECT release_version FROM system.local"\n')

    try:
        yield attempt
    finally:
        server.close()


@contextlib.contextmanager
def control() -> Iterator[Try]:
    """Yield the control socket of a host with one volume, whose process must live on."""
    lab = Lab.make()
    try:
        lab.must(*CACHED, "--memory")
        engine = lab.engine()
        assert engine is not None

        def attempt(line: bytes) -> None:
            with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(ConnectionError):
                client.settimeout(ANSWER_SECONDS)
                client.connect(str(lab.places.host("default").socket))
                client.sendall(line.replace(b"\n", b" ") + b"\n")
                client.shutdown(socket.SHUT_WR)
                try:
                    answer = client.makefile("rb").readline()
                except TimeoutError:
                    raise BrokenError(f"no answer within {ANSWER_SECONDS:g} s") from None
                if answer:
                    json.loads(answer)
            if not engine.is_ours():
                raise BrokenError("the host died")

        yield attempt
    finally:
        lab.take_away()


@contextlib.contextmanager
def histograms() -> Iterator[Try]:
    """Yield the reader of histograms."""

    def attempt(text: bytes) -> None:
        with contextlib.suppress(HistogramError):
            decode(text.decode("latin-1"))

    yield attempt


@contextlib.contextmanager
def run_lines() -> Iterator[Try]:
    """Yield the readers of the lines of a run: results, seconds, events."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "run.json").write_bytes((CORPORA / "run" / "run.json").read_bytes())

        def attempt(line: bytes) -> None:
            for name in ("trials.jsonl", "seconds.jsonl", EVENTS):
                (place / name).write_bytes(line + b"\n")
            read_course(Inside(place, "seconds.jsonl"))
            read_events(place)
            Run.open(place).results()

        yield attempt


TARGETS = [
    # First: its commands are forks, and later targets have threads.
    Target("control", control),
    Target("profile", lambda: lines("check")),
    Target("simulate", lambda: lines("simulate --jobs 1 --fidelity quick", slow=True)),
    Target("load", load_jobs),
    Target("postgresql", postgresql_replies, changed_bytes),
    Target("cql", cql_replies, changed_bytes),
    Target("histogram", histograms, changed_bytes),
    Target("lines", run_lines),
]
