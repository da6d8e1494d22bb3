"""A Cassandra that runs already and encrypts: loaded through TLS, and left as it was."""

from __future__ import annotations

import getpass
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from textwrap import dedent

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate
from disklab.databases import Database, NodePlace, Request, Sizes
from disklab.databases.cassandra.access import Secrets
from disklab.databases.cassandra.cluster import Cassandra
from disklab.databases.cassandra.configuration import (
    CQL_PORT,
    JOLOKIA_PORT,
    STORAGE_PORT,
    Installation,
)
from disklab.databases.cassandra.distribution import find_java
from disklab.databases.cassandra.node import Node
from disklab.databases.cassandra.observer import CassandraObserver
from disklab.databases.cassandra.provider import distribution_of, settings_of
from disklab.databases.cassandra.sizing import plan_memory
from disklab.databases.observing import Target
from disklab.databases.protocol import say_nothing
from disklab.engine import Account, CqlLogin, CqlQuery, CqlTls, QueryError, server_account
from disklab.errors import MachineError
from disklab.hosts.addresses import free_addresses

from tests.databases.servers import points_of
from tests.machines.ssh_server import SshServer

from .bench import Bench, rows_in
from .test_merged_load import client_folders

GIB = 1 << 30
PASSWORD = "of a test"
pytestmark = pytest.mark.long
EXPERIMENT = rows_in("{engine: cassandra, replication_factor: 1}", "{read: 50%, write: 50%}")
OURS = "SELECT keyspace_name FROM system_schema.keyspaces"


@dataclass(frozen=True)
class Encrypting:
    """A node, the certificates it is known by, and others."""

    database: Database
    authority: Path
    stranger: Path

    @property
    def point(self) -> str:
        points = points_of(self.database.target)
        return str(points[0])

    @property
    def login(self) -> CqlLogin:
        target = self.database.target
        return CqlLogin(str(target["user"]), str(target["password"]))

    def keyspaces(self, ca_file: Path) -> set[str]:
        """Ask it through TLS; raises QueryError."""
        tls = CqlTls(str(ca_file))
        with CqlQuery([self.point], login=self.login, tls=tls) as query:
            return {str(row["keyspace_name"]) for row in query.ask(OURS)}


def key_store(certificate: trustme.LeafCert) -> bytes:
    """Return a PKCS 12 store as Java reads it."""
    first, *others = (load_pem_x509_certificate(one.bytes()) for one in certificate.cert_chain_pems)
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    secret = BestAvailableEncryption(PASSWORD.encode())
    return serialize_key_and_certificates(b"node", key, first, others, secret)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def server() -> Iterator[Encrypting]:
    root = Path(tempfile.mkdtemp(prefix="disklab-test-"))
    # The server is run by a user who may not look into a folder of root's alone.
    root.chmod(0o755)
    (root / "data").mkdir()
    address = free_addresses(1, (CQL_PORT, STORAGE_PORT, JOLOKIA_PORT))[0]
    authority, stranger = trustme.CA(), trustme.CA()
    (root / "store.p12").write_bytes(key_store(authority.issue_cert(address)))
    authority.cert_pem.write_to_path(root / "ca.pem")
    stranger.cert_pem.write_to_path(root / "other.pem")
    # Optional: disklab itself asks its own node in the clear.
    encryption = {
        "enabled": True,
        "optional": True,
        "keystore": str(root / "store.p12"),
        "keystore_password": PASSWORD,
        "store_type": "PKCS12",
    }
    place = NodePlace(
        name=f"encrypting-{os.getpid()}",
        address=address,
        volumes={"data": root / "data"},
        run_dir=root / "run",
        log_dir=root / "log",
    )

    class EncryptingNode(Node):
        """A node as its owner has set it up; no experiment could."""

        def configure(
            self,
            own: Mapping[str, object],
            settings: Mapping[str, object],
            secrets: Secrets,
            account: Account | None,
        ) -> None:
            ours = {**own, "client_encryption_options": encryption}
            super().configure(ours, settings, secrets, account)

    request = Request("cassandra", Sizes(64 * GIB, Fraction(1, 100)))
    distribution = distribution_of(request, say_nothing)
    known = settings_of(request, distribution)
    installation = Installation(distribution, find_java(), known, server_account())
    plan = plan_memory(request.sizes)
    database = Cassandra(request, [(place, installation)], plan, EncryptingNode)
    try:
        database.start()
        yield Encrypting(database, root / "ca.pem", root / "other.pem")
    finally:
        database.stop()
        shutil.rmtree(root)


def prepared(bench: Bench, server: Encrypting, ca_file: Path, hosts: str = "") -> None:
    """Write the files for a server. `hosts`: what the hosts file says of hosts."""
    bench.environment["BENCH_PASSWORD"] = server.login.password
    bench.write("e.yaml", EXPERIMENT)
    bench.write(
        "h.yaml",
        dedent(
            f"""
            database:
              addresses: ["{server.point}"]
              user: {server.login.user}
              password_variable: BENCH_PASSWORD
              tls: true
              ca_file: {ca_file}
            """
        )
        + hosts,
    )


def test_clients_load_it_through_tls_and_it_is_watched_and_left_as_it_was(
    bench: Bench, server: Encrypting, ssh_server: SshServer
) -> None:
    before = server.keyspaces(server.authority)
    node = f"{{address: box, volumes: {{data: {server.authority.parent}}}}}"
    far = f"{{address: {getpass.getuser()}@box, private_address: 127.0.0.1, role: client}}"
    hosts = f"ssh_config: {ssh_server.config}\nhosts: {{n1: {node}, c1: {far}}}\n"
    prepared(bench, server, server.authority, hosts)
    code, out, err = bench.told("measure", "e.yaml", "--hosts", "h.yaml", "--plan")
    assert code == 0, err
    assert "load    comes from here" in out
    code, _, err = bench.run("measure", "e.yaml", "--hosts", "h.yaml", "--yes", "--quick")
    assert code == 0, err
    run = bench.whole_run()
    (result,) = run.results()
    assert result.ops_per_s
    assert result.errors == {}
    assert any("the load came from c1" in text for text in result.warnings)
    more = result.model_extra or {}
    assert [one["host"] for one in more["hosts"]] == ["n1"]
    assert 0 < more["hosts"][0]["busy_ratio"] <= 1
    assert [one["operations"] > 0 for one in more["clients"]] == [True]
    told = run.telemetry(*result.key).select("source").unique().collect()
    sources = set(told["source"])
    assert {"host n1", "network n1"} <= sources
    assert server.keyspaces(server.authority) == before
    assert client_folders(bench) == set()
    bench.nothing_is_left()


def test_it_is_observed_through_tls(server: Encrypting) -> None:
    login = server.login
    target = Target((server.point,), login.user, login.password, tls=True)
    observer = CassandraObserver.connect(replace(target, ca_file=str(server.authority)))
    observer.close()
    with pytest.raises(MachineError, match="certificate"):
        CassandraObserver.connect(replace(target, ca_file=str(server.stranger)))


def test_a_server_that_the_authorities_do_not_vouch_for_is_not_spoken_to(
    bench: Bench, server: Encrypting
) -> None:
    with pytest.raises(QueryError, match="certificate"):
        server.keyspaces(server.stranger)
    prepared(bench, server, server.stranger)
    code, _, err = bench.run("measure", "e.yaml", "--hosts", "h.yaml", "--yes", "--quick")
    assert code != 0
    assert "certificate" in err
