"""The certificates of one cluster: nobody without one of them is answered.

The authority's key is thrown away once the members and the one client have theirs, so that no
further certificate can be made.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from disklab.errors import MachineError
from disklab.machines.local import LocalMachine
from disklab.machines.protocol import Command

DAYS = "365"
SECONDS = 60.0
LOOPBACK = "127.0.0.1"
"""Where a connection between two loopback addresses comes from; a member compares that with the
addresses of the certificate that it is shown."""


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM."""

    certificate: str
    key: str


@dataclass(frozen=True)
class Certificates:
    """Everything that a cluster and its client show each other."""

    authority: str
    members: tuple[Pair, ...]
    client: Pair


def make_certificates(addresses: Sequence[str]) -> Certificates:
    """Return new certificates for members at these addresses and for one client.

    Raises MachineError when openssl is not there or fails.
    """
    # Only this user may enter it, and it goes with the authority's key.
    with tempfile.TemporaryDirectory(prefix="disklab-etcd-") as name:
        folder = Path(name)
        authority = _issued(folder, "authority", ["basicConstraints=critical,CA:TRUE"], "")
        members = tuple(
            _issued(folder, f"member{number}", _of_member(address), "authority")
            for number, address in enumerate(addresses)
        )
        client = _issued(folder, "client", ["basicConstraints=critical,CA:FALSE"], "authority")
    return Certificates(authority.certificate, members, client)


def _of_member(address: str) -> list[str]:
    names = ",".join(f"IP:{one}" for one in dict.fromkeys((address, LOOPBACK)))
    return ["basicConstraints=critical,CA:FALSE", f"subjectAltName={names}"]


def _issued(folder: Path, name: str, extensions: list[str], issuer: str) -> Pair:
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-nodes", "-days", DAYS, "-subj", f"/CN=disklab {name}"]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    for extension in extensions:
        command += ["-addext", extension]
    if issuer:
        command += ["-CA", str(folder / f"{issuer}.pem"), "-CAkey", str(folder / f"{issuer}.key")]
    command += ["-out", str(certificate), "-keyout", str(key)]
    if shutil.which("openssl") is None:
        raise MachineError("openssl is not installed; it makes etcd's certificates")
    ran = LocalMachine().run(Command(command), SECONDS)
    if ran.code != 0:
        raise MachineError(f"openssl failed with code {ran.code}\n{ran.said}")
    return Pair(certificate.read_text(encoding="ascii"), key.read_text(encoding="ascii"))
