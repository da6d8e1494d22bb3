//! Faults of a timetable, as a job of a cluster has them.

use serde::{Deserialize, Serialize};

use super::Cluster;

/// What breaks when, and the times that a cluster takes to notice and to come back.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// In the order of time.
    pub events: Vec<Event>,
    /// Length of an interval of the course that is told.
    pub interval_ns: u64,
    /// Until the other nodes have convicted one that ended without a word.
    pub detect_ns: u64,
    /// Until clients notice that a node's machine has vanished, which closes no connection.
    pub notice_ns: u64,
    /// Until a client gives up an operation whose coordinator says nothing.
    pub timeout_ns: u64,
    /// `read_request_timeout`.
    pub read_timeout_ns: u64,
    /// `write_request_timeout`.
    pub write_timeout_ns: u64,
    /// From the start of a node's process until it answers, without what it replays.
    pub start_ns: u64,
    /// How long a replacement listens to the others before it streams (`ring_delay`).
    pub join_ns: u64,
    /// `stream_throughput_outbound` of each node, in bytes per second; zero: no limit.
    pub stream_bytes_per_s: u64,
    /// What each node validates at most in a repair, in bytes per second; zero: no limit.
    #[serde(default)]
    pub validate_bytes_per_s: u64,
    /// What one thread reads, merges and hashes in a repair, in bytes per second; zero: it takes no time.
    #[serde(default)]
    pub validate_thread_bytes_per_s: u64,
    /// How long a node that leaves in order waits before it streams.
    #[serde(default)]
    pub announce_ns: u64,
    /// How long one that has streamed tells the others so before it ends (`ring_delay`).
    #[serde(default)]
    pub leave_ns: u64,
    /// Until the others take a node for alive again whose link is back.
    #[serde(default)]
    pub gossip_ns: u64,
    /// What nodes move to: hosts such as a cluster of them would have. Events name them by their number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Cluster>,
}

impl Faults {
    /// The events in the order of time.
    pub fn in_order(&self) -> Vec<Event> {
        in_order(&self.events)
    }
}

/// Events in the order of time.
pub fn in_order(events: &[Event]) -> Vec<Event> {
    let mut events = events.to_vec();
    events.sort_by_key(|event| event.at_ns);
    events
}

/// What breaks when under a database whose servers are not Cassandra's, and the times that servers and clients take without a disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlFaults {
    /// In the order of time.
    pub events: Vec<Event>,
    /// Length of an interval of the course that is told.
    pub interval_ns: u64,
    /// From the start of a server's process until it answers, when there is nothing to replay.
    pub start_ns: u64,
    /// Until a client gives a statement up.
    pub timeout_ns: u64,
    /// Whether the connections of a machine that is lost stay open: its clients know when their statements time out.
    pub vanishes: bool,
    /// Between a client's first two tries to connect; each pause is up to twice as long as the one before.
    pub first_retry_ns: u64,
    /// Longest of them.
    pub most_retry_ns: u64,
    /// Of MariaDB: until commits go on without another server that has ended (`evs.suspect_timeout`,
    /// `rpl_semi_sync_master_timeout`).
    #[serde(default)]
    pub patience_ns: u64,
    /// How often a standby looks for a primary that it has lost (`wal_retrieve_retry_interval`).
    pub follow_ns: u64,
    /// CPU of replaying a record of the log.
    #[serde(default)]
    pub replay_record_cpu_ns: u64,
    /// CPU of reading a byte of the log, in picoseconds.
    #[serde(default)]
    pub replay_byte_cpu_ps: u64,
    /// Reads of pages that a replay has under way (`maintenance_io_concurrency`).
    #[serde(default = "super::one")]
    pub replay_depth: u32,
    /// From the word to a standby that it is the primary until it takes changes, when it has replayed all.
    #[serde(default)]
    pub promote_ns: u64,
    /// CPU of the process that sends a byte of a copy, in picoseconds: reading, its checksum, sending.
    #[serde(default)]
    pub copy_send_byte_ps: u64,
    /// CPU of the program that takes it: receiving, writing it into the page cache.
    #[serde(default)]
    pub copy_take_byte_ps: u64,
}

/// Something that happens to a node.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// When, from the beginning of what is measured.
    pub at_ns: u64,
    /// Which node, from zero.
    pub node: u32,
    /// What happens to it.
    pub what: What,
    /// Where it moves to, from zero, of `hosts`; None: it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<u32>,
    /// The other end of a link; None: all of the node's link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Peer>,
    /// What becomes of a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkChange>,
    /// How long I/Os of a slow volume take, in thousandths of their service time; None: ten times as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_permille: Option<u32>,
    /// Which of the host's volumes is slow, stalls or is mended, from zero; None: that with the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<u32>,
}

/// Longest time of a slow volume's I/Os, in thousandths: a thousand times as long.
pub const MOST_SLOW_PERMILLE: u32 = 1_000_000;

impl Event {
    /// Whether it says how slow a volume gets, and can, or says nothing of that.
    pub fn has_fair_slowness(&self) -> bool {
        self.slow_permille.is_none_or(|permille| {
            self.what == What::Slow && (1..=MOST_SLOW_PERMILLE).contains(&permille)
        })
    }
}

/// The other end of a way between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// The machines of the load.
    Client,
    /// A node, from zero.
    Node(u32),
}

/// How a link differs from what it was at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkChange {
    /// Added to each message's way.
    #[serde(default)]
    pub extra_ns: u64,
    /// What a node sends at most, or each of two to the other; None: as before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<u64>,
    /// Packets that are lost, each way, in millionths.
    #[serde(default)]
    pub loss_ppm: u32,
    /// It carries nothing.
    #[serde(default)]
    pub cut: bool,
}

/// What happens to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// Its process is killed; machine, page cache and disks stay.
    Kill,
    /// Its machine is lost, with page cache and host cache.
    Lose,
    /// Its process starts on what its disks hold.
    Start,
    /// It ends in order and starts again with an empty page cache.
    Restart,
    /// An empty node takes its place and streams its data from the others.
    Replace,
    /// Its data volume takes longer.
    Slow,
    /// Its data volume serves nothing.
    Stall,
    /// Its data volume is well again.
    Mend,
    /// The burst credits of its disks and machine are gone.
    Credits,
    /// Its link carries nothing, and nobody is told.
    Cut,
    /// Its link is as it was.
    Join,
    /// Its link takes longer, or is narrow.
    #[serde(rename = "slow_link")]
    SlowLink,
    /// Its link loses packets.
    Lossy,
    /// A standby becomes the primary.
    Promote,
    /// A new node streams its data and takes its place; then it leaves in order.
    Migrate,
    /// Its disks are attached to another machine, where it starts; nothing is streamed.
    Move,
    /// A node more joins, with its number: it streams its share from those that have it.
    Add,
    /// It streams what it has to the others, and leaves.
    Decommission,
    /// It and the nodes with the same rows read all of them and compare their hashes.
    Repair,
}

impl What {
    /// Whether it needs another host.
    pub fn needs_host(self) -> bool {
        matches!(self, What::Migrate | What::Move | What::Add)
    }

    /// Whether it concerns a disk alone.
    pub fn is_of_a_disk(self) -> bool {
        matches!(self, What::Slow | What::Stall | What::Mend | What::Credits)
    }

    /// Whether it concerns a link.
    pub fn is_of_a_link(self) -> bool {
        matches!(self, What::Cut | What::Join | What::SlowLink | What::Lossy)
    }

    /// Whether it changes who owns what.
    pub fn changes_ring(self) -> bool {
        matches!(self, What::Add | What::Decommission)
    }
}
