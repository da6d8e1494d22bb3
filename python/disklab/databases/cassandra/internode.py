"""The storage port, which Cassandra has no password for: closed by TLS with the cluster's own key.

Both ends of a connection prove that they hold it, and nobody but the nodes does. Nodes on emulated
hosts with a network talk in the clear, as those of the studies do: nobody of this machine has a way
to them.
"""

from __future__ import annotations

import tempfile
from functools import cached_property
from pathlib import Path

from disklab.errors import MachineError
from disklab.machines.local import LocalMachine
from disklab.machines.protocol import Command

KEYSTORE_FILE = "storage.p12"
# The file is the secret; Java's key stores have a password all the same, and this one is told.
KEYSTORE_PASSWORD = "disklab"  # noqa: S105 - see above
SECONDS = 60.0


class StorageKey:
    """The key of one cluster, made when it is first asked for."""

    @cached_property
    def keystore(self) -> bytes:
        """Return the store that every node gets. Raises MachineError."""
        return new_keystore()


def new_keystore() -> bytes:
    """Return a PKCS 12 store with a new key and its certificate. Raises MachineError."""
    # Only this user may enter it.
    with tempfile.TemporaryDirectory(prefix="disklab-cassandra-") as name:
        key, certificate = Path(name) / "key.pem", Path(name) / "certificate.pem"
        made = ["openssl", "req", "-x509", "-nodes", "-days", "365", "-subj", "/CN=disklab"]
        made += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        _ran([*made, "-keyout", str(key), "-out", str(certificate)])
        packed = ["openssl", "pkcs12", "-export", "-passout", f"pass:{KEYSTORE_PASSWORD}"]
        return _ran([*packed, "-inkey", str(key), "-in", str(certificate)])


def closing_settings(keystore: Path) -> dict[str, object]:
    """Return the settings by which a node speaks to holders of its own key alone."""
    # Java believes certificates of a store's keys, so one file says who it is and whom it lets in.
    store = {"keystore": str(keystore), "truststore": str(keystore)}
    passwords = dict.fromkeys(("keystore_password", "truststore_password"), KEYSTORE_PASSWORD)
    return {
        "server_encryption_options": {
            "internode_encryption": "all",
            "optional": False,
            "require_client_auth": True,
            "store_type": "PKCS12",
            **store,
            **passwords,
        }
    }


def _ran(command: list[str]) -> bytes:
    ran = LocalMachine().run(Command(command), SECONDS)
    if ran.code != 0:
        raise MachineError(f"openssl failed with code {ran.code}\n{ran.said}")
    return ran.stdout
