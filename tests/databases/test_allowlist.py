"""Which settings an experiment may give: by the lists, held against the servers' own."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from disklab import spec
from disklab.database_facts import DATABASES, facts_of
from disklab.database_settings import Setting, setting_problem, setting_problems, settings_of
from disklab.databases import NodePlace, Request, provision
from disklab.databases.cassandra.distribution import fetched
from disklab.databases.cassandra.settings import known_settings
from disklab.databases.etcd.installation import RELEASES, find_etcd
from disklab.databases.postgresql.installation import find_postgresql
from disklab.databases.protocol import Sizes
from disklab.errors import UserError

from tests.databases.servers import mariadb

EXPERIMENT = """\
title: settings
cluster: {{nodes: 1, vm: azure/Standard_E8s_v3, volumes: {{data: {{disks: azure/P30}}}}}}
database:
  engine: {engine}
  settings:
    {settings}
dataset: {{rows: 1M, row: 1 x 1000B}}
workload: {{operations: {{read: 100%}}, load: {{threads: 1}}}}
"""

DANGERS = {
    "postgresql": (
        "archive_command restore_command archive_cleanup_command recovery_end_command "
        "ssl_passphrase_command archive_library shared_preload_libraries session_preload_libraries "
        "local_preload_libraries jit_provider dynamic_library_path data_directory hba_file "
        "ident_file config_file external_pid_file log_directory log_filename listen_addresses port "
        "unix_socket_directories primary_conninfo ssl_cert_file ssl_key_file ssl_ca_file bonjour "
        "include include_dir include_if_exists search_path Archive_Command archive_mode ssl "
        "promote_trigger_file stats_temp_directory auto_explain.log_min_duration"
    ),
    "cassandra": (
        "data_file_directories commitlog_directory saved_caches_directory hints_directory "
        "cdc_raw_directory seed_provider authenticator authorizer role_manager listen_address "
        "rpc_address broadcast_address native_transport_port internode_authenticator "
        "server_encryption_options client_encryption_options heap_dump_path row_cache_class_name "
        "enable_user_defined_functions user_defined_functions_enabled allow_insecure_udfs "
        "full_query_logging_options audit_logging_options memtable crypto_provider startup_checks"
    ),
    "etcd": (
        "name data-dir wal-dir config-file listen-client-urls listen-metrics-urls discovery cors "
        "cert-file trusted-ca-file auth-token log-outputs enable-pprof initial-cluster proxy "
        "force-new-cluster unsafe-no-fsync"
    ),
    "mariadb": (
        "datadir tmpdir basedir innodb_log_group_home_dir innodb_data_file_path socket port "
        "bind_address plugin_dir plugin_load plugin_load_add init_file init_connect init_slave "
        "secure_file_priv general_log_file log_error ssl_key ssl_ca wsrep_provider "
        "wsrep_notify_cmd wsrep_cluster_address wsrep_sst_method skip_grant_tables local_infile "
        "log_bin_basename relay_log server_id sql_mode user chroot core_file"
    ),
    "mysql": (
        "datadir tmpdir basedir innodb_log_group_home_dir innodb_undo_directory socket port "
        "bind_address plugin_dir plugin_load plugin_load_add init_file init_connect "
        "secure_file_priv general_log_file log_error ssl_key ssl_ca innodb_doublewrite_dir "
        "innodb_directories skip_grant_tables local_infile log_bin_basename server_id sql_mode user"
    ),
    "redis": (
        "dir dbfilename appenddirname appendfilename logfile pidfile loadmodule aclfile include "
        "bind port unixsocket requirepass masterauth replicaof slaveof rename-command daemonize "
        "enable-debug-command enable-module-command enable-protected-configs cluster-enabled "
        "cluster-config-file syslog-ident tls-key-file supervised proc-title-template appendonly "
        "client-output-buffer-limit oom-score-adj-values bgsave_cpulist user"
    ),
    "yugabytedb": (
        "ysql_pg_conf_csv ysql_hba_conf_csv flagfile fs_data_dirs log_dir certs_dir "
        "ysql_enable_auth start_cql_proxy webserver_doc_root rpc_bind_addresses"
    ),
}
KINDS = {"bool": "BOOLEAN", "integer": "INTEGER", "real": "REAL", "enum": "ENUM"}


def experiment(engine: str, *settings: str) -> str:
    return EXPERIMENT.format(engine=engine, settings="\n    ".join(settings))


def refusals(engine: str, *settings: str) -> list[str]:
    with pytest.raises(UserError) as refused:
        spec.parse(experiment(engine, *settings), "x.yaml")
    return str(refused.value).splitlines()


def test_a_command_of_an_experiment_is_refused_before_anything_runs(tmp_path: Path) -> None:
    command = f"touch {tmp_path}/ran"
    (line,) = refusals("postgresql", "archive_mode: on", f"archive_command: {command}")[1:]
    assert line.startswith("x.yaml:7: database.settings.archive_command: 'touch ")
    assert "no experiment may set this of PostgreSQL: it names a command; leave it out" in line
    place = NodePlace("n1", "127.64.0.1", {"data": tmp_path}, tmp_path / "run", tmp_path / "log")
    asked = Request("postgresql", Sizes(1 << 30), settings={"archive_command": command})
    with pytest.raises(UserError, match="it names a command"):
        provision(asked, [place])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("engine", DATABASES)
def test_what_names_files_commands_libraries_or_hosts_is_in_no_list(engine: str) -> None:
    for name in DANGERS[engine].split():
        assert setting_problem(engine, name, "1", "here") is not None, name
        assert refusals(engine, f"{name}: 1")


@pytest.mark.parametrize("engine", DATABASES)
def test_a_slip_gets_the_nearest_name(engine: str) -> None:
    slips = {
        "postgresql": ("shared_bufers: 1GB", "did you mean shared_buffers"),
        "cassandra": ("concurent_reads: 64", "did you mean concurrent_reads"),
        "etcd": ("snapshot-cuont: 1000", "did you mean snapshot-count"),
        "mariadb": ("innodb_bufer_pool_size: 1G", "did you mean innodb_buffer_pool_size"),
        "mysql": ("innodb_bufer_pool_size: 1G", "did you mean innodb_buffer_pool_size"),
        "redis": ("appendfsnyc: always", "did you mean appendfsync"),
        "yugabytedb": ("memstore_size: 64", "did you mean memstore_size_mb"),
    }
    slip, way_out = slips[engine]
    (line,) = refusals(engine, slip)
    title = facts_of(engine).title
    assert f"{slip.partition(':')[0]}: is no setting of {title} that an experiment may have" in line
    assert way_out in line


@pytest.mark.parametrize(
    ("engine", "name", "value", "rule"),
    [
        ("postgresql", "shared_buffers", "64MB'\narchive_command = 'id", "a number with a unit"),
        ("postgresql", "shared_buffers", "lots", "a number with a unit"),
        ("postgresql", "shared_buffers", 1, "is at least 16 times 8kB"),
        ("postgresql", "work_mem", "9TB", "is at most 2147483647 times kB"),
        ("postgresql", "work_mem", "9" * 40, "a number with a unit"),
        ("postgresql", "fsync", "maybe", "is true or false"),
        ("postgresql", "synchronous_commit", "flush", "is one of local, remote_write"),
        ("postgresql", "random_page_cost", "nan", "is a number"),
        ("postgresql", "random_page_cost", float("inf"), "is a number"),
        ("postgresql", "max_connections", True, "is a whole number"),
        ("postgresql", "max_connections", "\uff11\uff10", "is a whole number"),
        ("cassandra", "concurrent_reads", 0, "is at least 1"),
        ("cassandra", "concurrent_reads", "64\n", "is a whole number"),
        ("cassandra", "compaction_throughput", "64MiB", "a number with a unit"),
        ("cassandra", "compaction_throughput", "-1MiB/s", "is at least 0"),
        ("cassandra", "compaction_throughput", "1.5MiB/s", "a number with a unit"),
        ("cassandra", "commitlog_sync_period_in_ms", "10s", "is a whole number"),
        ("cassandra", "endpoint_snitch", "com.evil.Snitch", "is one of SimpleSnitch"),
        ("etcd", "snapshot-count", "1 --data-dir=/tmp", "is a whole number"),
        ("etcd", "log-level", "x" * 65, "at most 64 letters"),
        ("mariadb", "innodb_page_size", "1M", "is at most 65536"),
        ("mariadb", "innodb_buffer_pool_size", "1.5G", "is a number with a unit (B, K, M"),
        ("mysql", "innodb_buffer_pool_size", "1.3GiB", "is a number with a unit (B, K, M"),
        ("mariadb", "innodb_flush_method", "nfs", "is one of fsync"),
        ("mariadb", "log_bin", "/etc/cron.d/x", "is true or false"),
        ("redis", "appendfsync", "always\ndir /etc", "is one of always, everysec, no"),
        ("redis", "save", "60 1", "is true or false"),
        ("redis", "maxmemory", "1tb", "a number with a unit"),
        ("redis", "hz", "0", "is at least 1"),
        ("yugabytedb", "memstore_size_mb", "1,ysql_pg_conf_csv=x", "is a whole number"),
    ],
)
def test_values_have_a_type_and_a_range(engine: str, name: str, value: Setting, rule: str) -> None:
    assert rule in setting_problem(engine, name, value, "here").rule


@pytest.mark.parametrize(
    ("engine", "name", "value"),
    [
        ("postgresql", "shared_buffers", "64MB"),
        ("postgresql", "shared_buffers", 8192),
        ("postgresql", "work_mem", "1.5GB"),
        ("postgresql", "autovacuum_vacuum_cost_delay", "2ms"),
        ("postgresql", "autovacuum_work_mem", -1),
        ("postgresql", "synchronous_commit", False),
        ("postgresql", "synchronous_commit", "off"),
        ("postgresql", "random_page_cost", "1.1"),
        ("postgresql", "full_page_writes", "no"),
        ("postgresql", "default_transaction_isolation", "read committed"),
        ("cassandra", "concurrent_reads", "64"),
        ("cassandra", "compaction_throughput", "128MiB/s"),
        ("cassandra", "key_cache_save_period", 14400),
        ("cassandra", "key_cache_save_period", "4h"),
        ("cassandra", "trickle_fsync", True),
        ("etcd", "backend-batch-interval", "100ms"),
        ("etcd", "auto-compaction-retention", 5),
        ("etcd", "auto-compaction-retention", "30m"),
        ("mariadb", "innodb_buffer_pool_size", "12G"),
        ("mariadb", "innodb_buffer_pool_size", "25GiB"),
        ("mysql", "innodb_buffer_pool_size", "1.5TiB"),
        ("postgresql", "shared_buffers", "40 GiB"),
        ("redis", "maxmemory", "1.5GiB"),
        ("cassandra", "commitlog_segment_size", "32MiB"),
        ("mariadb", "innodb_doublewrite", False),
        ("mariadb", "innodb_flush_log_at_trx_commit", 2),
        ("mariadb", "log_bin", "on"),
        ("redis", "appendfsync", "always"),
        ("redis", "appendfsync", False),
        ("redis", "auto-aof-rewrite-min-size", "64mb"),
        ("redis", "save", "no"),
        ("yugabytedb", "ysql_max_connections", 80),
    ],
)
def test_what_servers_take_is_taken(engine: str, name: str, value: Setting) -> None:
    assert setting_problem(engine, name, value, "here") is None


def test_the_amounts_of_experiment_files_are_told_in_the_databases_own_words() -> None:
    text = EXPERIMENT.format(engine="mariadb", settings="innodb_buffer_pool_size: 25GiB")
    more = 'factors: {database.settings.innodb_buffer_pool_size: ["1.5GiB"]}\n'
    asked = spec.parse(text + more)
    trial = asked.trials("predict")[0].spec
    assert trial.database.settings["innodb_buffer_pool_size"] == "1536M"


def test_names_are_those_of_the_version() -> None:
    old, new = {"compaction_throughput_mb_per_sec": 128}, {"compaction_throughput": "128MiB/s"}
    assert setting_problems("cassandra", old, "3.11") == []
    assert setting_problems("cassandra", old, "5.0.6") == []
    assert setting_problems("cassandra", new, "4.1.10") == []
    (problem,) = setting_problems("cassandra", new, "4.0")
    assert "Cassandra 4.0 has no such setting: releases from 4.1 have it" in problem.rule
    assert "compaction_throughput_mb_per_sec" in problem.way_out
    (gone,) = setting_problems("cassandra", {"concurrent_replicates": 64}, "5.0")
    assert "releases up to 4.1 have it" in gone.rule
    assert setting_problems("cassandra", {"concurrent_replicates": 64}, "4.1.10") == []


FETCHED = pytest.param("18", marks=pytest.mark.long)  # CI: the installed one; a network is needed
BUILT = [pytest.param(line, marks=pytest.mark.long) for line in RELEASES]  # CI: as above
TAKEN_AS_A_SWITCH = {"log_connections"}
"""A list of words from 18 on, which still takes a switch."""
LOWERED = {"maintenance_work_mem"}
"""From 17 on the server takes less than its list says."""


@pytest.mark.parametrize("version", [None, FETCHED])
def test_postgresqls_list_is_the_servers_own(version: str | None) -> None:
    """Names, types and bounds, of the server that is installed, and of one that is fetched."""
    server = find_postgresql(version=version)
    lines = server.run([server.program("postgres"), "--describe-config"]).splitlines()
    rows = {row[0]: row[3:7] for row in (line.split("\t") for line in lines)}
    listed = settings_of("postgresql")
    here = {n: kind for n, kind in listed.settings.items() if kind.has(str(server.major))}
    assert here.keys() <= rows.keys()
    # Whatever else this server has is told from a slip.
    named = {*listed.settings, *listed.reasons, *listed.dangers}
    assert server.major not in (15, 18) or rows.keys() <= named
    for name in here.keys() - TAKEN_AS_A_SWITCH:
        kind = here[name]
        form, _, least, most = rows[name]
        numeric = kind.type in ("integer", "number", "bytes", "time")
        assert (form in ("INTEGER", "REAL")) == numeric, name
        assert (form == "BOOLEAN") == (kind.type == "boolean"), name
        assert form != "STRING", name
        if numeric and server.major in (15, 18):
            assert name in LOWERED or kind.least == pytest.approx(float(least)), name
            assert kind.most is None or kind.most == pytest.approx(float(most)), name


def test_cassandras_list_is_that_of_its_class() -> None:
    distribution = fetched()
    known = known_settings(distribution.classes)
    listed = settings_of("cassandra")
    here = {name for name, kind in listed.settings.items() if kind.has(distribution.line)}
    assert here <= known.keys()
    assert known.keys() <= {*listed.settings, *listed.reasons, *listed.dangers}
    assert zipfile.is_zipfile(distribution.classes)


@pytest.mark.parametrize("version", [None, *BUILT])
def test_etcds_list_has_the_programs_flags(version: str | None) -> None:
    etcd = find_etcd(version=version)
    listed = settings_of("etcd")
    flags = etcd.known_settings() - {"version", "help"}
    assert flags <= {*listed.settings, *listed.reasons, *listed.dangers}
    release = ".".join(etcd.version.split(".")[:2])
    assert flags & listed.settings.keys() == {
        name for name, kind in listed.settings.items() if kind.has(release)
    }


VARIABLES = (
    "SELECT VARIABLE_NAME, VARIABLE_TYPE, NUMERIC_MIN_VALUE, NUMERIC_MAX_VALUE, ENUM_VALUE_LIST "
    "FROM information_schema.SYSTEM_VARIABLES"
)
OPTIONS = {"transaction_isolation": "tx_isolation"}
"""Settings that a server lists by other names, once it runs."""
SAID_OTHERWISE = {"log_bin"}
"""A file's name for the server, a switch for an experiment."""


def test_mariadbs_list_is_the_servers_own() -> None:
    """Names, types, bounds and choices, of the server that is installed."""
    with mariadb() as database:
        rows = database.primary.connection().ask(VARIABLES)
        known = database.primary.installation.known_settings()
    variables = {row[0].lower(): row[1:] for row in rows}
    listed = settings_of("mariadb")
    # What else an experiment could ask this server for is told from a slip.
    rest = known & variables.keys() - {*listed.settings, *listed.reasons, *listed.dangers}
    assert rest == set() or not database.versions["MariaDB"].startswith("10.11.")
    for name, kind in listed.settings.items():
        variable = variables.get(OPTIONS.get(name, name))
        # A plugin's, which this server may be built without.
        if variable is None or name in SAID_OTHERWISE:
            continue
        form, least, most, choices = variable
        if kind.type in ("integer", "number", "bytes"):
            assert "INT" in form or form == "DOUBLE", name
            assert kind.least == pytest.approx(float(least)), name
            assert kind.most is None or kind.most <= float(most), name
        elif kind.type == "choice":
            assert {str(value).upper() for value in kind.values} <= set(
                choices.upper().split(",")
            ), name
        else:
            assert form == "BOOLEAN" or choices.upper().startswith("OFF,ON"), name
