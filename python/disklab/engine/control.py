"""The control socket of an emulated host: one JSON object a line each way."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from disklab.catalog.profile import VolumeProfile
from disklab.engine.account import client_arguments
from disklab.engine.messages import (
    AttachedVolume,
    CacheCounters,
    Hello,
    ListedVolume,
    UblkDevice,
    View,
)
from disklab.errors import DisklabError, EngineError, MachineError, Problem, UserError
from disklab.machines import programs
from disklab.machines.binary import find_engine
from disklab.machines.child import LocalChild

# Asks a database statement by statement, through `disklab-engine query`.

END_SECONDS = 5.0
POLL_SECONDS = 0.2


class QueryError(DisklabError):
    """The database refused a statement, or could not be reached."""


@dataclass(frozen=True)
class CqlLogin:
    """Who asks."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class CqlTls:
    """What encrypts every connection of CQL."""

    ca_file: str | None = None
    """Certificates (PEM) that a node's must come from, for its address; none: any is believed."""


class CqlQuery:
    """Statements to one cluster. It connects at the first one, again whenever that failed.

    Use it as a context manager: a process stands behind it.
    """

    def __init__(  # noqa: PLR0913 - whom to ask, and how
        self,
        contact_points: Sequence[str],
        *,
        timeout_ms: int = 12_000,
        consistency: str = "LOCAL_ONE",
        login: CqlLogin | None = None,
        tls: CqlTls | None = None,
        only: bool = False,
    ) -> None:
        """Start asking; `only`: these nodes alone, and none of those that they know."""
        command = [str(find_engine()), "query", "--timeout-ms", str(timeout_ms)]
        command += ["--consistency", consistency]
        for point in contact_points:
            command += ["--contact-point", point]
        command += ["--only"] * only
        if tls is not None:
            command += ["--tls", *([] if tls.ca_file is None else ["--ca-file", tls.ca_file])]
        command += client_arguments()
        self._child = LocalChild.start(command, stdin=None)
        self._answers = self._child.lines()
        if login is not None:
            self.log_in(login)

    def log_in(self, login: CqlLogin) -> None:
        """Ask as this user from now on, on a new connection."""
        # Not on the command line, which everybody may read.
        self._say({"user": login.user, "password": login.password})

    def ask(self, statement: str) -> list[dict[str, Any]]:
        """Return the rows of a statement, one dictionary each; raises QueryError."""
        answer = self._say(statement)
        if "error" in answer:
            raise QueryError(f"{statement}: {answer['error']}")
        rows: list[dict[str, Any]] = answer["rows"]
        return rows

    def measure(self, statement: str) -> list[dict[str, Any]]:
        """Return of each row the first column's value, and how many bytes each other one has.

        None: it has no value. The values themselves stay in the engine. Raises QueryError.
        """
        answer = self._say({"measure": statement})
        if "error" in answer:
            raise QueryError(f"{statement}: {answer['error']}")
        rows: list[dict[str, Any]] = answer["rows"]
        return rows

    def _say(self, line: str | dict[str, str]) -> dict[str, Any]:
        try:
            self._child.say(json.dumps(line).encode() + b"\n")
            answer: dict[str, Any] = json.loads(next(self._answers))
        except (MachineError, StopIteration, ValueError) as error:
            ended = self._child.wait(END_SECONDS)
            said = "it still runs" if ended is None else f"exit code {ended.code}"
            if ended is not None and ended.stderr:
                said += f"; {ended.stderr.decode(errors='replace').strip()}"
            raise EngineError(f"disklab-engine query died ({said})") from error
        return answer

    def __enter__(self) -> CqlQuery:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self._child.end()


# The engine gives up on its own driver after 30 s; after that no answer will come.
ANSWER_SECONDS = 40.0
# Taking all the space of a large volume at once writes nothing but takes the file system's time.
ATTACH_SECONDS = 300.0
# A large cache takes a few seconds to fill block by block.
WARM_SECONDS = 120.0
CONNECT_SECONDS = 5.0
# Who answers `hello` has nothing to look up: a host that takes longer hangs.
HELLO_SECONDS = 5.0
# Bound of an answer: a view of many disks with long distributions has some hundred KiB.
MOST_ANSWER_BYTES = 64 << 20


class Control:
    """A connection to the control socket of one host. A context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(CONNECT_SECONDS)
        self._received = b""
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise EngineError(
                f"{path}: the emulated host does not answer ({error.strerror or error}); "
                "see its log beside the socket, then run `disklab clean`"
            ) from error

    def __enter__(self) -> Control:
        """Return the connection."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._socket.close()

    def hello(self) -> Hello:
        """Ask who is there, and what the machine can do."""
        return Hello.model_validate(self._ask({"op": "hello"}, HELLO_SECONDS))

    def attach(
        self, volume: VolumeProfile, *, memory: bool = False, preallocate: bool = False
    ) -> AttachedVolume:
        """Make a volume and its block device."""
        backing = {"kind": "memory" if memory else "file", "preallocate": preallocate}
        request = {"op": "attach", "volume": volume.model_dump(), "backing": backing}
        return AttachedVolume.model_validate(self._ask(request, ATTACH_SECONDS))

    def detach(self, volume: str, *, delete_data: bool = False) -> str | None:
        """Take a volume and its device away; refused while somebody uses it.

        Returns what is wrong with data that stay; None: this machine's disk has taken them.
        """
        request = {"op": "detach", "volume": volume, "delete_data": delete_data}
        problem = self._ask(request).get("problem")
        return None if problem is None else str(problem)

    def volumes(self) -> list[ListedVolume]:
        """Return what is attached."""
        return [ListedVolume.model_validate(one) for one in self._ask({"op": "list"})["volumes"]]

    def show(self, volume: str) -> View:
        """Return profile, counters and faults of a volume."""
        return View.model_validate(self._ask({"op": "show", "volume": volume}))

    def change(self, volume: str, change: dict[str, Any]) -> VolumeProfile:
        """Change a running volume; return its profile as it is then."""
        answer = self._ask({"op": "set", "volume": volume, "change": change})
        return VolumeProfile.model_validate(answer["profile"])

    def fail(self, volume: str, fault: dict[str, Any]) -> None:
        """Break or mend something."""
        self._ask({"op": "fail", "volume": volume, "fault": fault})

    def warm(self, volume: str, ranges: Iterable[tuple[int, int]] | None = None) -> CacheCounters:
        """Fill the host cache with ranges (offset, length; bytes), as if just read in this order.

        None: with all that was ever written to the volume. Returns what the cache holds then.
        Raises UserError for a volume that does not use the host cache.
        """
        request: dict[str, Any] = {"op": "warm", "volume": volume}
        if ranges is not None:
            request["ranges"] = [{"offset_bytes": at, "len_bytes": size} for at, size in ranges]
        return CacheCounters.model_validate(self._ask(request, WARM_SECONDS)["cache"])

    def drop_cache(self, volume: str) -> CacheCounters:
        """Empty a volume's part of the host cache, but for dirty data; return what stays."""
        answer = self._ask({"op": "drop-cache", "volume": volume})
        return CacheCounters.model_validate(answer["cache"])

    def set_credits(self, share: float) -> None:
        """Set the burst credits of VM and disks to a share (0 to 1) of full buckets."""
        self._ask({"op": "credits", "ppm": round(share * 1_000_000)})

    def dilate(self, factor: int) -> None:
        """Let the host's time run so much slower than this machine's from now on, its disks too.

        Counters and lateness are in its own time.
        """
        self._ask({"op": "time-dilation", "factor": factor})

    def shutdown(self, *, discard: bool = False) -> list[str]:
        """End the host; refused while a device of it is in use.

        Returns what is wrong with data that stay; `discard`: they are removed next.
        """
        answer = self._ask({"op": "shutdown", "discard": discard})
        return [str(one) for one in answer.get("problems", [])]

    def _ask(self, request: dict[str, Any], seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """Send one request; return its answer. Raises UserError for a refusal."""
        self._socket.settimeout(seconds)
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(self._line())
        except TimeoutError as error:
            raise EngineError(
                f"{self._path}: no answer to {request['op']!r} within {seconds:.0f} s; "
                "the host hangs: run `disklab clean`"
            ) from error
        except (OSError, ValueError) as error:
            raise EngineError(
                f"{self._path}: the answer to {request['op']!r} broke off ({error}); "
                "see the log beside the socket"
            ) from error
        if answer.pop("ok", None) is True:
            return dict(answer)
        raise refusal(answer.get("error"))

    def _line(self) -> bytes:
        """Return the next whole line."""
        while b"\n" not in self._received:
            part = self._socket.recv(1 << 16)
            if not part:
                raise OSError("the other end closed")
            self._received += part
            if len(self._received) > MOST_ANSWER_BYTES:
                raise OSError("the answer has no end")
        line, _, self._received = self._received.partition(b"\n")
        return line


def refusal(parts: object) -> UserError | EngineError:
    """Return the engine's error in the words of this side."""
    if not isinstance(parts, dict):
        return EngineError(f"the engine refused without a reason: {parts!r}")
    texts = (str(parts.get(key, "")) for key in ("place", "value", "rule", "way_out"))
    return UserError(Problem(*texts))


# The ublk devices of a host, as the kernel knows them: listed and removed by the engine.

# Removing waits five seconds at most for each device that somebody still has open.
SECONDS = 60.0


def ublk_devices(run_dir: Path, host: str) -> list[UblkDevice]:
    """Return the devices that carry the mark of this host, dead ones too, in order of number."""
    return _listed("ublk-devices", run_dir, host)


def remove_ublk(run_dir: Path, host: str) -> list[UblkDevice]:
    """Remove the dead devices of a host; return them.

    Raises UserError when the host lives, or when somebody holds a device: the device stays.
    """
    return _listed("remove-ublk", run_dir, host)


def _listed(command: str, run_dir: Path, host: str) -> list[UblkDevice]:
    arguments = [str(find_engine()), command, "--run-dir", str(run_dir), "--host", host]
    try:
        done = programs.run(arguments, SECONDS)
    except TimeoutError as error:
        raise EngineError(f"disklab-engine {command} does not end: {error}") from error
    lines = done.stdout.decode(errors="replace").splitlines()
    try:
        if done.code != 0:
            raise refusal(json.loads(lines[-1])["error"])
        return [UblkDevice.model_validate_json(line) for line in lines]
    except (ValidationError, ValueError, KeyError, IndexError) as error:
        said = (done.stdout + done.stderr).decode(errors="replace").strip() or "nothing"
        raise EngineError(f"disklab-engine {command} said: {said}") from error
