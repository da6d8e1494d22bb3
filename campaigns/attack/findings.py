"""What attacks on disklab have found, and the tests that hold each since it was mended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """Something that somebody could do, or that went wrong under attack."""

    name: str
    what: str
    tests: tuple[str, ...]
    """`FILE::NAME`, below the repository."""


FINDINGS = (
    Finding(
        "C1",
        "settings of an experiment file ran commands, with root's whole environment",
        (
            "tests/databases/test_allowlist.py::"
            "test_a_command_of_an_experiment_is_refused_before_anything_runs",
            "tests/databases/test_allowlist.py::"
            "test_what_names_files_commands_libraries_or_hosts_is_in_no_list",
            "tests/machines/test_environment.py::test_a_server_has_no_secret_of_its_user",
        ),
    ),
    Finding(
        "C2",
        "`--resume` as root wrote through links of the run's folder",
        (
            "tests/results/test_foreign_runs.py::test_what_is_added_to_a_run_lands_nowhere_else",
            "tests/results/test_foreign_runs.py::test_a_run_with_a_way_out_is_not_gone_on_with",
            "tests/results/test_foreign_runs.py::test_another_users_run_is_not_gone_on_with",
        ),
    ),
    Finding(
        "C3",
        "`clean` destroyed healthy hosts of another PID namespace",
        (
            "tests/hosts/test_other_namespaces.py::"
            "test_a_living_host_of_another_namespace_is_left_alone",
            "tests/hosts/test_other_namespaces.py::test_clean_touches_no_host_of_another_namespace",
        ),
    ),
    Finding(
        "H1",
        "root's part of the probe deleted any file, by an engine of fio's",
        ("tests/privilege/test_probing.py::test_engines_and_options_of_fio_are_a_closed_list",),
    ),
    Finding(
        "H2",
        "root's part of the probe wrote over a file swapped in after its proof",
        (
            "tests/privilege/test_probing.py::"
            "test_fio_reads_what_was_proved_whatever_its_name_leads_to",
            "tests/privilege/test_probing.py::"
            "test_a_device_that_was_proved_is_written_and_no_other_file",
        ),
    ),
    Finding(
        "H3",
        "names of volumes became commands, expressions and paths on cloud hosts",
        (
            "tests/cloud/test_hostile_names.py::test_a_first_boot_runs_no_name",
            "tests/cloud/test_hostile_names.py::test_no_experiment_has_such_a_volume",
        ),
    ),
    Finding(
        "H4",
        "root's part of `run` made its caller the owner of a new folder anywhere",
        (
            "tests/privilege/test_requests.py::test_no_request_of_run_names_a_host_or_a_path",
            "tests/privilege/test_volumes.py::test_a_caller_mounts_in_no_folder_of_roots",
        ),
    ),
    Finding(
        "M1",
        "`disk attach --mount` followed a link put there meanwhile",
        (
            "tests/hosts/test_mount_point.py::"
            "test_a_link_in_the_place_of_the_mount_point_is_not_followed",
        ),
    ),
    Finding(
        "M2",
        "the live page's cookie went to every port of this machine",
        ("tests/web/test_live_page.py::test_nothing_of_a_run_is_answered_without_the_token",),
    ),
    Finding(
        "M3",
        "the live page ran the script of a downloaded report",
        (
            "tests/web/test_strangers.py::"
            "test_the_script_of_a_report_from_elsewhere_reaches_nothing",
        ),
    ),
    Finding(
        "M4",
        "a stalled emulator, client or machine left a trial valid",
        (
            "tests/procedures/test_stopped.py::"
            "test_an_engine_that_stood_still_makes_the_trial_invalid",
            "tests/telemetry/test_judgement.py::test_a_long_stop_is_a_reason_and_so_are_many_short_ones",
        ),
    ),
    Finding(
        "M5",
        "`trace:` printed the first line of any file; `run.json` as a link showed some",
        (
            "tests/traces/test_traces.py::test_a_file_that_is_no_trace_is_never_quoted",
            "tests/results/test_foreign_runs.py::"
            "test_a_link_or_pipe_in_a_run_is_an_error_with_a_place_and_not_read",
        ),
    ),
    Finding(
        "M6",
        "half-open connections ended the live page",
        ("tests/web/test_strangers.py::test_connections_that_say_nothing_keep_nobody_out",),
    ),
    Finding(
        "M7",
        "a lost SSH session left database, disk and memory group",
        (
            "tests/test_interrupts.py::test_a_lost_terminal_ends_a_program_in_order",
            "tests/privilege/test_divided.py::test_a_signal_to_either_part_ends_both_in_order",
            "tests/hosts/test_clean.py::test_six_signals_while_a_host_starts_leave_nothing",
        ),
    ),
    Finding(
        "M13",
        "root unmounted what a link in the place of a mount's folder led to",
        ("tests/hosts/test_mount_point.py::test_what_stands_where_a_mount_was_is_not_unmounted",),
    ),
    Finding(
        "L1",
        "one hostile `events.jsonl` hid all runs and metrics",
        ("tests/web/test_strangers.py::test_one_bad_run_hides_no_other",),
    ),
    Finding(
        "L2",
        "a small parquet file of 200 million rows took 10.8 GB",
        (
            "tests/results/test_histogram.py::"
            "test_a_small_file_of_many_rows_is_refused_before_it_is_read",
        ),
    ),
    Finding(
        "L3",
        "`require` as text in a stored trial ended in a traceback",
        ("tests/results/test_foreign_runs.py::test_a_stored_requirement_is_typed_when_it_is_read",),
    ),
    Finding(
        "L4",
        "a request with the token was read whole, however long",
        ("tests/web/test_strangers.py::test_a_head_without_end_and_a_large_body_are_refused",),
    ),
    Finding(
        "L5",
        "tracebacks on closed or full streams; exit code 1 when `head -1` had enough",
        ("tests/test_ends.py::test_a_stream_that_fails_is_told_in_one_line",),
    ),
    Finding(
        "L6",
        "tracebacks on results folders without inodes, full or read-only",
        (
            "tests/test_ends.py::test_a_folder_without_inodes_is_told_and_no_half_run_stays",
            "tests/test_ends.py::test_a_disk_that_becomes_read_only_is_told",
        ),
    ),
    Finding(
        "L7",
        "a traceback under `ulimit -v`",
        ("tests/test_ends.py::test_a_limit_of_the_shell_is_told_and_no_traceback",),
    ),
    Finding(
        "L8",
        "a reader of standard error that died ended a run silently",
        ("tests/test_ends.py::test_a_reader_of_the_notes_that_dies_ends_nothing",),
    ),
    Finding(
        "L9",
        "six Ctrl-C while a host started left its folder, engine and mount",
        (
            "tests/hosts/test_clean.py::test_six_signals_while_a_host_starts_leave_nothing",
            "tests/test_interrupts.py::test_the_first_ends_what_runs_and_no_other_disturbs_its_end",
        ),
    ),
    Finding(
        "L10",
        "the hint `--resume ID` failed where `--out` was given",
        ("tests/test_ends.py::test_the_hint_after_a_stop_is_a_command_that_finds_the_run",),
    ),
    Finding(
        "L11",
        "pipes of the database's user were opened as files are",
        ("tests/machines/test_local.py::test_pipes_links_and_sockets_are_passed_over",),
    ),
    Finding(
        "W1",
        "settling waited four minutes for an estimate that nobody renewed",
        (
            "tests/databases/test_cassandra_rules.py::test_a_stale_estimate_is_not_waited_for",
            "tests/databases/test_cassandra.py::"
            "test_settling_ends_though_nobody_asks_a_truncated_table_for_its_estimate",
        ),
    ),
    Finding(
        "W2",
        "waits had no name, no limit and no word on the terminal",
        (
            "tests/test_waiting.py::test_all_sleep_in_waits_alone",
            "tests/test_waiting.py::test_the_terminal_says_what_is_waited_for_and_how_long_at_most",
            "tests/test_waiting.py::test_waits_outside_of_a_run_are_shown_and_stored",
        ),
    ),
    Finding(
        "W3",
        "the time that a rehearsal announced was not corrected while it ran",
        (
            "tests/results/test_run.py::"
            "test_a_trial_that_takes_longer_corrects_what_is_left_while_it_runs",
        ),
    ),
    Finding(
        "S1",
        "programs started under `nohup ... &` could not be interrupted",
        (
            "tests/machines/test_local.py::test_a_program_ignores_nothing_that_its_parent_ignores",
            "tests/test_interrupts.py::"
            "test_a_started_program_does_not_ignore_what_is_held_back_here",
        ),
    ),
    Finding(
        "S2",
        "a test that hung ended the suite for ever",
        (
            "tests/test_hanging.py::"
            "test_a_hung_test_fails_with_its_name_and_stacks_and_the_others_go_on",
        ),
    ),
    Finding(
        "S3",
        "a busy server lost its connections",
        (
            "crates/disklab-load/src/clients/silence.rs::"
            "a_server_that_lives_and_does_not_read_keeps_its_connection",
        ),
    ),
)
