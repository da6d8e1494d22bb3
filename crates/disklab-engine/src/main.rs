//! The one binary: `disklab-engine emulate`, JSON in, JSON lines out.

use clap::Parser;

/// Disk emulation for disklab.
#[derive(Parser)]
#[command(version)]
struct Arguments {}

fn main() {
    Arguments::parse();
}
