//! Tests that hold code to what it may do to a disk: the test runs itself again on an emulated one.

use std::env;
use std::fs::File;
use std::io::{Result, Write};
use std::process::Command;

/// Runs `body` in a folder on an emulated disk, in a process of its own; panics where it misses the budget.
fn on_disk(test: &str, disk: &str, budget: &str, body: impl Fn() -> Result<()>) {
    if env::var("ON_DISK").is_ok_and(|name| name == test) {
        return body().unwrap();
    }
    let output = Command::new("disklab")
        .args(["run", "--disk", disk, "--budget", budget, "--"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", test])
        .env("ON_DISK", test)
        .output()
        .expect("disklab is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_record_is_synced_once() {
    on_disk("a_record_is_synced_once", "azure/P10", "fsyncs <= 12, p99 write <= 20ms", || {
        let mut file = File::create("records")?;
        for _ in 0..5 {
            file.write_all(&[0; 4096])?;
            file.sync_all()?;
        }
        Ok(())
    });
}
