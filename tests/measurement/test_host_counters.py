"""What a database's hosts do each second, and how it is judged; how a node's JMX is asked there."""

from __future__ import annotations

import http.server
import json
import threading
import time
from pathlib import PurePosixPath

import pytest
from disklab.databases.cassandra.jolokia import PATH, Jolokia
from disklab.databases.remote_host import RemoteHost, listening
from disklab.errors import MachineError
from disklab.machines.local import LocalMachine
from disklab.measurement.existing_hosts import (
    HostCounters,
    Look,
    doubts,
    sources_of,
    spent,
    traffic,
)

DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs
    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0
  eth0: 1000 10 0 0 0 0 0 0 200 20 0 0 0 0 0 0
  eth1:11 1 0 0 0 0 0 0 22 2 0 0 0 0 0 0
"""


def test_traffic_is_that_of_all_links_but_loopback() -> None:
    assert traffic(DEV) == (1011, 222)
    assert traffic("") == (0, 0)


def test_a_host_is_judged_by_its_cpus_and_its_network() -> None:
    before = Look(10.0, "cpu 100 0 0 100 0 0 0 0", 0, 0)
    after = Look(12.0, "cpu 290 0 0 100 0 0 0 10", 250_000_000, 1_000_000)
    told = spent("n1", before, after)
    assert told == {
        "host": "n1",
        "busy_ratio": 0.95,
        "stolen_ratio": 0.05,
        "received_mb_per_s": 125.0,
        "sent_mb_per_s": 0.5,
    }
    assert [*doubts(told, None)] == []
    (network,) = doubts(told, 1000)
    assert network.startswith("the network of n1 was the limit: it received 125 MB/s, 100%")
    full, steal = doubts({**told, "busy_ratio": 0.96, "stolen_ratio": 0.06}, 10_000)
    assert full.startswith("the CPUs of n1 were the limit")
    assert "(steal)" in steal
    assert spent("n1", before, None) == {"host": "n1"}


def test_counters_of_a_host_become_rates_by_its_own_clock() -> None:
    machine = LocalMachine("n2")
    counters = HostCounters(machine, {"data": PurePosixPath("/")})
    with counters.newest:
        sources = sources_of(["n1", "n2"], [counters, counters])
        assert {one.name for one in sources} >= {"host n1", "network n1", "host n2", "network n2"}
        first = {one.name: dict(one.sample(0.0)) for one in sources}
        assert first["host n1"].keys() == {"available_bytes"}
        time.sleep(0.05)
        # The interval that the sampler tells is not the host's: rates go by the counters' own.
        second = {one.name: dict(one.sample(1e6)) for one in sources}
    assert second["host n1"]["busy_cores"] + second["host n1"]["iowait_cores"] >= 0
    assert second["network n1"].keys() == {"received_bytes_per_s", "sent_bytes_per_s"}


class _Agent(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert self.path == PATH
        assert self.headers["Authorization"].startswith("Basic ")
        (asked,) = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps([{"status": 200, "value": asked["attribute"]}]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass


def test_jmx_is_asked_by_a_program_of_the_host() -> None:
    machine = LocalMachine()
    with http.server.HTTPServer(("127.0.0.1", 0), _Agent) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_port
        assert listening(machine, [port]) == [port]
        jmx = Jolokia("127.0.0.1", port, "u", "secret", RemoteHost(machine))
        assert jmx.read(("bean", "LiveNodes")) == ["LiveNodes"]
        server.shutdown()
    assert listening(machine, [port]) == []
    with pytest.raises(MachineError, match="JMX does not answer"):
        jmx.read(("bean", "LiveNodes"))
