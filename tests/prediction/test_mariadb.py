"""From trials of MariaDB to jobs, and what the simulation of them answers."""

from __future__ import annotations

import pytest
from disklab import spec
from disklab.databases.mariadb.simulated import amount, row_bytes
from disklab.prediction.outcome import result_of
from disklab.spec.model import Dataset

from tests.prediction.jobs import job, prepared, prepared_trial, refused, simulated

ROWS = """\
title: small
cluster: {nodes: 1, vm: azure/Standard_D4s_v5, volumes: {data: {disks: azure/P15}}}
database: {engine: mariadb, replication_factor: 1, settings: {sync_binlog: 1}}
dataset: {rows: 1M, row: 10 x 100B}
workload:
  operations: {read: 50%, write: 50%}
  load: {threads: 8}
  stop: {operations: 20000}
"""
SYSBENCH = """\
title: small
cluster:
  nodes: 1
  vm: azure/Standard_D4s_v5
  volumes: {data: {disks: azure/P15}, log: {disks: azure/P10}, binlog: {disks: azure/P20}}
database: {engine: mariadb, replication_factor: 1, settings: {sync_binlog: 1}}
workload:
  sysbench: {script: oltp_write_only, tables: 1, rows_per_table: 2M, threads: 4}
  stop: {duration: 5s}
"""


def with_settings(text: str, settings: str) -> str:
    return text.replace("{sync_binlog: 1}", "{sync_binlog: 1, " + settings + "}")


def test_memory_is_the_providers_plan() -> None:
    found = job(ROWS)["database"]
    # 70 % of 16 GiB, and the redo log's default.
    assert found["buffer_pool_bytes"] == int(0.7 * 16 * 1024) << 20
    assert found["log_file_bytes"] == 96 << 20


def test_logs_lie_on_their_volumes() -> None:
    found = job(SYSBENCH)
    cluster, database = found["cluster"], found["database"]
    names = cluster["data_volume"], cluster["commitlog_volume"], database["binlog_volume"]
    assert names == ("data", "log", "binlog")
    assert database["sync_binlog"] == 1
    alone = job(ROWS)
    assert alone["cluster"]["commitlog_volume"] is None
    assert alone["database"]["binlog_volume"] == "data"
    # There is no binary log without its volume, unless the file asks for one.
    assert alone["database"]["sync_binlog"] == 0
    assert job(with_settings(ROWS, "log_bin: true"))["database"]["sync_binlog"] == 1
    tenth = SYSBENCH.replace("sync_binlog: 1", "sync_binlog: 10")
    assert job(tenth)["database"]["sync_binlog"] == 10


def test_settings_are_followed_with_their_units() -> None:
    given = (
        "innodb_buffer_pool_size: 1G, innodb_log_file_size: 512M, innodb_doublewrite: off, "
        "innodb_io_capacity: 4000, innodb_old_blocks_time: 500, innodb_flush_neighbors: 0"
    )
    text = with_settings(ROWS, given)
    found = job(text)["database"]
    assert (found["buffer_pool_bytes"], found["log_file_bytes"]) == (1 << 30, 512 << 20)
    assert (found["io_capacity"], found["io_capacity_max"]) == (4000, 8000)
    assert found["doublewrite"] is False
    assert found["old_blocks_time_ns"] == 500_000_000
    warnings = " ".join(prepared(text).warnings)
    assert "without effect on the prediction: innodb_flush_neighbors" in warnings
    assert "upper bound" not in warnings
    assert "upper bound" in " ".join(prepared(SYSBENCH).warnings)
    assert amount("innodb_page_size", "16K") == amount("innodb_page_size", 16384)


def test_logs_that_no_commit_waits_for_are_written_all_the_same() -> None:
    text = SYSBENCH.replace("sync_binlog: 1", "sync_binlog: 0")
    found = job(text)["database"]
    assert (found["writes_binlog"], found["sync_binlog"], found["syncs_redo"]) == (
        *(True, 0),
        True,
    )
    for level in (0, 2):
        given = with_settings(SYSBENCH, f"innodb_flush_log_at_trx_commit: {level}")
        assert job(given)["database"]["syncs_redo"] is False
    assert job(ROWS)["database"]["writes_binlog"] is False


def copies(text: str, nodes: int) -> str:
    return text.replace("nodes: 1", f"nodes: {nodes}").replace("factor: 1", f"factor: {nodes}")


def test_copies_are_a_replica_or_galera() -> None:
    kinds = [job(copies(SYSBENCH, nodes))["database"]["replication"] for nodes in (1, 2, 3)]
    assert kinds == ["alone", "semi_sync", "galera"]
    # A replica needs a binary log, with or without its volume; Galera does not.
    assert job(copies(ROWS, 2))["database"]["writes_binlog"] is True
    assert job(copies(ROWS, 3))["database"]["writes_binlog"] is False
    assert any("stands for all" in text for text in prepared(copies(ROWS, 3)).warnings)


def test_what_was_rehearsed_is_predicted_at_its_scale() -> None:
    text = SYSBENCH + "rehearse: {scale: 1/10}\n"
    (trial,) = spec.parse(text, "x.yaml").trials("rehearse")
    here, whole = prepared_trial(trial, rehearsed=True).job["mariadb"], job(SYSBENCH)
    pool = "buffer_pool_bytes"
    assert here["database"][pool] < whole["database"][pool] / 9
    assert here["tables"][0]["rows"] == whole["tables"][0]["rows"] // 10
    assert here["parameters"]["client_cpu_ns"] == 0


def test_rows_and_sysbench_have_innodbs_bytes() -> None:
    assert row_bytes(Dataset(rows=1, row="10 x 100B")) == 26 + 10 * 101
    assert row_bytes(Dataset(rows=1, row="2 x 500B")) == 26 + 2 * 502
    tables = {table["name"]: table["row_bytes"] for table in job(SYSBENCH)["tables"]}
    assert tables == {"sbtest": 208, "k": 0}
    (transaction,) = job(SYSBENCH)["workload"]["transactions"]
    commits = [each["commits"] for each in transaction["statements"]]
    assert commits == [False] * (len(commits) - 1) + [True]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (with_settings(ROWS, "innodb_flush_method: fsync"), "bypasses the page cache"),
        (with_settings(ROWS, "innodb_page_size: 4K"), "pages of 16 KiB"),
        (ROWS.replace("10 x 100B", "1 x 20KiB"), "only if two of them fit into a page"),
        (ROWS.replace("10 x 100B", "1 x 60% 200B + 40% 4KiB"), "one size"),
        (ROWS.replace("nodes: 1", "nodes: 3"), "holds all rows"),
        (copies(ROWS, 4), "odd number"),
        (ROWS + "before: {page_cache: as-left}\n", "is independent of others"),
    ],
)
def test_what_is_not_modelled_is_refused_with_the_reason(text: str, reason: str) -> None:
    refused(text, reason)


COLD = "title: small\nbefore: {page_cache: cold}"


@pytest.mark.parametrize(
    ("kind", "row", "ablate"),
    [
        # A row that finds its leaf full waits for the reads under way, and holds up those to come.
        ("insert", "5 x 818B", "index_locks"),
        # Purge reads the neighbours of a leaf that is half empty while nobody searches.
        ("delete", "5 x 818B", "purge"),
        # Ten leaves are read before a scan of fewer.
        ("scan", "10 x 100B", "range_estimates"),
    ],
)
def test_operations_of_rows_wait_as_innodb_has_them_wait(kind: str, row: str, ablate: str) -> None:
    text = ROWS.replace("write: 50%", f"{kind}: 50%").replace("title: small", COLD)
    text = text.replace("azure/P15", "azure/P60").replace("10 x 100B", row)
    made = job(with_settings(text, "innodb_buffer_pool_size: 64M"))
    usual, without = (simulated(mariadb=made, ablate=some) for some in ([], [ablate]))
    assert without["ops_per_s"] > 1.2 * usual["ops_per_s"]


def test_rows_are_added_where_others_are_deleted() -> None:
    mixture = "read: 50%, insert: 40%, delete: 10%}\n  keys: latest"
    text = ROWS.replace("read: 50%, write: 50%}", mixture)
    found = simulated(mariadb=job(with_settings(text, "innodb_buffer_pool_size: 64M")))["telemetry"]
    assert found["write_bytes_per_operation"] > 400
    assert found["read_ios_per_operation"] < 0.5


def test_without_doublewrite_fewer_bytes_are_written() -> None:
    small = "innodb_buffer_pool_size: 64M"
    # After 5 s the page cleaner has not been through the pool yet.
    longer = SYSBENCH.replace("duration: 5s", "duration: 20s")
    twice = simulated(mariadb=job(with_settings(longer, small)))["telemetry"]
    off = simulated(mariadb=job(with_settings(longer, f"{small}, innodb_doublewrite: off")))[
        "telemetry"
    ]
    assert off["write_bytes_per_operation"] < 0.75 * twice["write_bytes_per_operation"]


def test_whether_a_disk_lets_doublewrite_be_off_is_told() -> None:
    off = with_settings(ROWS, "innodb_doublewrite: off")

    def told(disks: str) -> str:
        (line,) = (
            text
            for text in prepared(off.replace("azure/P15", disks)).warnings
            if text.startswith("innodb_doublewrite: off is")
        )
        return line

    assert "safe on Azure Premium SSD where each page" in told("azure/P15")
    assert "learn.microsoft.com" in told('"azure/PremiumV2(256GiB, 3000 IOPS, 125 MB/s)"')
    assert "unsafe on azure/E15" in told("azure/E15")
    assert not any("doublewrite" in text for text in prepared(ROWS).warnings)


def test_a_small_pool_reads_from_its_disk() -> None:
    text = ROWS.replace("title: small", "title: small\nbefore: {page_cache: warm}")
    assert simulated(mariadb=job(text))["telemetry"]["read_ios_per_operation"] < 0.01
    small = simulated(mariadb=job(with_settings(text, "innodb_buffer_pool_size: 64M")))["telemetry"]
    assert small["read_ios_per_operation"] > 0.5


def test_writes_that_another_node_holds_up_name_it_as_the_bottleneck() -> None:
    text = with_settings(copies(SYSBENCH, 3), "innodb_buffer_pool_size: 64M")
    text = text.replace("threads: 4", "threads: 16")
    (trial,) = spec.parse(text, "x.yaml").trials("predict")
    answer = simulated(mariadb=job(text))
    assert answer["bottleneck"]["resource"] == "latency"
    result = result_of(trial, 0, "x", answer, warnings=[], price_usd_per_month=None)
    assert result.bottleneck.resource == "slow replica"
    writes = result.per_operation["transaction"]
    stretches = writes.tail_ms["p50"]
    share = stretches["retry"] / sum(stretches.values())
    assert result.bottleneck.utilisation == pytest.approx(share)
    assert share > 0.5


TPCC = """\
title: small
cluster: {nodes: 1, vm: azure/Standard_D4s_v5, volumes: {data: {disks: azure/P15}}}
database: {engine: mariadb, replication_factor: 1}
workload:
  tpcc: {warehouses: 20, connections: 40}
  stop: {duration: 60s}
"""


def test_tpcc_comes_in_texts_of_several_statements_with_one_commit() -> None:
    found = job(TPCC)
    assert found["database"]["binlog_rows"] is True
    tables = {table["name"]: table for table in found["tables"]}
    assert tables["stock"]["rows"] == 2_000_000
    assert tables["order_line"]["ends"] == 200
    assert "ends" not in tables["history"]
    assert tables["order of customer"]["row_bytes"] == 0
    ways = {
        kind["name"]: sum(not each["inside"] for each in kind["statements"])
        for kind in found["workload"]["transactions"]
    }
    assert ways == {
        **dict.fromkeys(("new order", "order status", "delivery", "stock level"), 2),
        "payment": 1,
    }
    for kind in found["workload"]["transactions"]:
        commits = [each["commits"] * each["times"] for each in kind["statements"]]
        assert commits == [0] * (len(commits) - 1) + [1]
    answer = simulated(mariadb=found)
    # 12.86 new orders a minute and warehouse at most, by keying and thinking.
    assert answer["ops_per_s"] * 60 == pytest.approx(12.86 * 20, rel=0.15)


def test_terminals_that_do_not_wait_are_one_a_connection() -> None:
    restless = job(TPCC.replace("connections: 40", "connections: 40, terminals: no wait"))
    resting = job(TPCC)
    kinds = restless["workload"]["transactions"]
    assert {(kind["keying_ns"], kind["think_ns"]) for kind in kinds} == {(0, 0)}
    assert [each["workload"]["load"] for each in (restless, resting)] == [
        {"closed": {"threads": threads}} for threads in (40, 200)
    ]
    answer = simulated(mariadb=restless)
    # The mix is that of the standard, and no terminal bounds it.
    shares = {name: each["ops_per_s"] for name, each in answer["per_operation"].items()}
    assert shares["payment"] / shares["new order"] == pytest.approx(43 / 45, rel=0.1)
    assert answer["ops_per_s"] * 60 > 2 * 12.86 * 20


def test_sysbench_tpcc_has_its_own_mix_rows_and_indexes() -> None:
    own = job(TPCC.replace("connections: 40", "connections: 40, terminals: sysbench-tpcc"))
    assert own["workload"]["load"] == {"closed": {"threads": 40}}
    kinds = {kind["name"]: kind for kind in own["workload"]["transactions"]}
    assert kinds["payment"]["share_ppm"] == 10 * kinds["delivery"]["share_ppm"] + 3
    accesses = {
        name: [item for each in kind["statements"] for item in each["accesses"]]
        for name, kind in kinds.items()
    }
    of_item = [item for item in accesses["new order"] if item["table"] == "order_line of stock"]
    assert [(item["kind"], item["rows"]) for item in of_item] == [("insert", 10)]
    # Before each update the optimizer counts the entries of an index that begins as its key does.
    counted = {
        (name, item["table"], item["rows"])
        for name, items in accesses.items()
        for item in items
        if item["draw"] == "run" and item["table"] in {"customer name", "stock of item"}
    }
    assert counted == {
        ("new order", "stock of item", 1),
        ("payment", "customer name", 3000),
        ("delivery", "customer name", 3000),
    }
    preferred = [item["draw"] for item in accesses["stock level"] if "nurand" in item["draw"]]
    assert preferred == [{"nurand": {"a": 0, "group": 100_000}}]
    tables = {table["name"] for table in own["tables"]}
    standard = {table["name"] for table in job(TPCC)["tables"]}
    assert tables - standard == {
        "stock of item",
        "order_line of stock",
        "history of customer",
        "history of district",
    }


def test_pgbench_s_tpcb_changes_a_row_of_three_tables_and_adds_one() -> None:
    text = SYSBENCH.replace("oltp_write_only", "tpcb")
    of_tpcb = job(text)
    tables = {table["name"]: table["rows"] for table in of_tpcb["tables"]}
    assert tables == {"accounts": 2_000_000, "tellers": 2560, "branches": 256, "tpcb history": 1}
    answer = simulated(mariadb=of_tpcb)
    plain = simulated(mariadb=job(SYSBENCH))
    assert 1 < answer["ops_per_s"] / plain["ops_per_s"] < 10


EVENTS = "events: [{at: 20s, kill: n1}, {at: 22s, start: n1}]\n"
TIMED = ROWS.replace("operations: 20000", "duration: 40s")


def test_a_killed_server_comes_back_by_its_redo_log() -> None:
    text = TIMED + EVENTS
    found = job(text)
    assert [event["what"] for event in found["faults"]["events"]] == ["kill", "start"]
    (trial,) = spec.parse(text, "x.yaml").trials("predict")
    answer = simulated(mariadb=found)
    result = result_of(trial, 0, "x", answer, warnings=[], price_usd_per_month=None)
    (replay,) = result.recovery.rebuilds
    assert replay.kind == "replay"
    assert "innodb_log_file_size" in replay.lever


@pytest.mark.parametrize(("nodes", "patience_s"), [(2, 10.0), (3, 5.5)])
def test_commits_wait_for_another_server_that_has_ended(nodes: int, patience_s: float) -> None:
    found = job(copies(TIMED, nodes) + "events: [{at: 10s, kill: n2}]\n")
    answer = simulated(mariadb=found)
    course = answer["faults"]["course"]["completed"]
    second = 1 / answer["faults"]["course"]["interval_s"]
    waited = [number / second for number, count in enumerate(course) if not count]
    # Seconds without any commit: the first and the last of the wait may have some.
    assert patience_s - 2 < len(waited) / second <= patience_s
    assert waited[0] == pytest.approx(10.0, abs=1.0)


@pytest.mark.parametrize(
    ("nodes", "events", "rule"),
    [
        (2, "{at: 20s, kill: n2}, {at: 22s, start: n2}", "what a server has missed"),
        (3, "{at: 20s, kill: n1}, {at: 22s, start: n1}", "break another node"),
        (3, "{at: 20s, kill: n2}, {at: 30s, kill: n3}", "at most one missing node"),
    ],
)
def test_what_breaks_beyond_the_model_is_refused(nodes: int, events: str, rule: str) -> None:
    refused(copies(TIMED, nodes) + f"events: [{events}]\n", rule)
