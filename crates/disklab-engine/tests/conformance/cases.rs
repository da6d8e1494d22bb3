//! The bodies: what a block device of disklab's must do, whatever carries its requests.

mod control;
mod data;
mod durability;
mod ends;
mod faults;
mod loops;
mod machine;
mod time;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::mpsc;

use crate::Check;
use crate::disk::Disk;
use crate::emulated::{Bench, EmulatedHost, wait_until};

/// A case: a name that says what must hold, and its body.
type Case = (&'static str, fn(&Bench) -> Check);

/// Every case, the simple ones first.
pub const ALL: [Case; 31] = [
    ("data_written_anywhere_are_read_back", data::round_trip),
    ("fio_verifies_what_it_wrote", data::fio_verifies),
    ("a_file_system_survives_detach", data::file_system),
    ("flush_reaches_the_model", data::flush),
    ("discarded_blocks_read_as_zeros", data::discard),
    ("an_error_rate_is_eio_and_mends", faults::error_rate),
    ("a_stall_ends_with_recover", faults::stall),
    (
        "a_dead_host_is_eio_and_keeps_flushed_data",
        faults::host_failure,
    ),
    ("the_machine_is_measured_at_start", faults::calibrated),
    ("an_io_begins_when_it_is_issued", time::from_issue),
    ("two_volumes_keep_apart", data::two_volumes),
    ("detach_is_refused_while_in_use", faults::detach_in_use),
    ("data_survive_detach_and_restart", data::reattach),
    ("a_killed_engine_means_eio", ends::killed),
    (
        "a_killed_engine_with_a_full_queue_means_eio",
        ends::killed_with_full_queue,
    ),
    (
        "a_killed_engine_fails_a_file_system",
        ends::killed_under_file_system,
    ),
    ("a_hung_engine_means_eio", ends::hung),
    ("a_device_is_provably_ours", ends::provably_ours),
    (
        "a_host_failure_loses_exactly_what_was_not_flushed",
        durability::unflushed_writes_are_lost,
    ),
    (
        "deallocation_flushes_first",
        durability::deallocation_flushes_first,
    ),
    (
        "local_data_die_with_the_host",
        durability::local_data_die_with_the_host,
    ),
    (
        "local_data_die_with_the_engine",
        durability::local_data_die_with_the_engine,
    ),
    (
        "a_second_attach_changes_nothing",
        durability::a_second_attach_changes_nothing,
    ),
    ("a_full_machine_is_eio", machine::full),
    (
        "a_flush_tells_of_lost_write_back",
        machine::not_written_back,
    ),
    ("hello_is_answered_while_busy", control::hello_while_busy),
    ("idle_clients_give_way", control::idle_clients_give_way),
    (
        "a_device_keeps_no_settings",
        loops::no_settings_of_a_former_user,
    ),
    (
        "another_namespaces_device_stays",
        loops::another_namespaces_device_stays,
    ),
    ("nothing_is_left_on_the_machine", ends::leftovers),
    ("a_late_close_leaves_no_mount", ends::released_late),
];

/// Small enough for an emulated machine's memory, large against every request.
pub const SIZE: u64 = 32 << 20;

/// Reads the first 4 KiB of a device in a thread of its own; the result comes through the channel.
pub fn read_in_background(device: &Path) -> io::Result<mpsc::Receiver<io::Result<Vec<u8>>>> {
    let disk = Disk::open(device)?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(disk.read(0, 4096)));
    Ok(receiver)
}

/// Waits until the model holds at least `count` I/Os back.
pub fn wait_for_held(host: &mut EmulatedHost, count: u64) -> Check {
    wait_until(&format!("{count} I/Os wait in the model"), || {
        let held = |counters: serde_json::Value| {
            Some(counters["queued"].as_u64()? + counters["in_flight"].as_u64()?)
        };
        host.counters("data")
            .ok()
            .and_then(held)
            .is_some_and(|held| held >= count)
    })
}

/// Whether a device node has a disk of non-zero size behind it.
pub fn serves(device: &Path) -> bool {
    let name = device.file_name().unwrap_or_default();
    let size = fs::read_to_string(Path::new("/sys/block").join(name).join("size"));
    size.is_ok_and(|sectors| sectors.trim() != "0")
}
