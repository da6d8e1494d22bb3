//! What is said about a cell: rates, latencies, and why they are what they are.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use disklab_disk::profile::{HostProfile, Limit, Scope, Unit};
use disklab_disk::{Host, JournalEntry, LimitCounters, Route, VolumeCounters};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use serde::Serialize;
use std::collections::BTreeMap;

use crate::job::faults::What;
use crate::tail::TailReport;

/// The answer to one job.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The job's number.
    pub cell: u64,
    /// Operations (or I/Os of a device) per second.
    pub ops_per_s: f64,
    /// Of all operations.
    pub latency_ms: Latencies,
    /// What percentiles consist of; absent where the model does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<TailReport>,
    /// By kind of operation.
    pub per_operation: BTreeMap<String, OperationReport>,
    /// The busiest resource.
    pub bottleneck: Resource,
    /// Every resource, the busiest first.
    pub resources: Vec<Resource>,
    /// What the caches and the disks had to do.
    pub telemetry: Telemetry,
    /// Burst credits, and how long they last at this load.
    pub credits: Vec<CreditReport>,
    /// Threads or arrivals, by Little's law: what was under way on average.
    pub mean_in_flight: f64,
    /// Measured virtual time in seconds.
    pub elapsed_s: f64,
    /// Share of rows and operations that was simulated.
    pub scale: f64,
    /// What the scale does to the figures; absent at full scale.
    pub error_note: Option<String>,
    /// Open-loop operations that never could be sent.
    pub unsent: u64,
    /// Events of the simulation.
    pub events: u64,
    /// I/Os that the disk model decided.
    pub disk_ios: u64,
    /// Time that the simulation took on this machine, in seconds.
    pub wall_s: f64,
    /// What the faults of a timetable did; absent: there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<FaultReport>,
    /// What the log of a cluster did that elects its leader; absent where the model does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<LogReport>,
    /// Single I/Os of the first node; absent: the job asked for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<Vec<IoReport>>,
}

/// What the logs of all members did, and what followed from it.
#[derive(Clone, Debug, Serialize)]
pub struct LogReport {
    /// How many syncs of the log, of all members.
    pub wal_fsyncs: u64,
    /// How long each took, with the writes before it.
    pub sync_ms: Latencies,
    /// How many commits of the database file, of all members.
    pub backend_commits: u64,
    /// How long each took.
    pub commit_ms: Latencies,
    /// Heartbeats that came later than twice their interval; absent: a single member sends none.
    pub late_heartbeats_per_hour: Option<f64>,
    /// Times at which a follower heard nothing from the leader for its election time-out, likewise.
    pub elections_per_hour: Option<f64>,
}

/// An I/O of a disk, or a disk's part of one; times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct IoReport {
    /// `read`, `write`, `hit` (a read from the host cache), `write-back` (a write into it) or `destage` (out of it).
    pub route: &'static str,
    /// `data disk 1`.
    pub disk: String,
    /// Bytes.
    pub bytes: u32,
    /// When it came.
    pub arrived_ns: u64,
    /// The limits that it waited for, each with since when and until when.
    pub waits: Vec<(String, u64, u64)>,
    /// When it had passed every limit.
    pub passed_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
}

impl IoReport {
    /// What a host's journal has.
    pub fn all(host: &Host, entries: &[JournalEntry]) -> Vec<IoReport> {
        let report = |entry: &JournalEntry| {
            let volume = host.volume(entry.volume).map_or("", |volume| &volume.name);
            let waits = entry.waits.iter().map(|wait| {
                let limit = limit_name(volume, &wait.place, wait.scope, wait.unit);
                (limit, wait.from.as_nanos(), wait.to.as_nanos())
            });
            IoReport {
                route: match entry.route {
                    Route::Read => "read",
                    Route::Write => "write",
                    Route::Hit => "hit",
                    Route::WriteBack => "write-back",
                    Route::Destage => "destage",
                },
                disk: format!("{volume} disk {}", entry.member),
                bytes: entry.len,
                arrived_ns: entry.arrived.as_nanos(),
                waits: waits.collect(),
                passed_ns: entry.passed.as_nanos(),
                ended_ns: entry.ended.as_nanos(),
            }
        };
        entries.iter().map(report).collect()
    }
}

/// What a limit is called among the resources, without which disk it is of.
fn limit_name(volume: &str, place: &str, scope: Scope, unit: Unit) -> String {
    let unit = match unit {
        Unit::Ios => "IOPS",
        Unit::Bytes => "MB/s",
    };
    let scope = match scope {
        Scope::All => "",
        Scope::Read => "read ",
        Scope::Write => "write ",
    };
    let of = if place.starts_with("disk") {
        format!("{volume} disk")
    } else {
        place.to_owned()
    };
    // A device has no volume to name.
    format!("{of} {scope}{unit}").trim().to_owned()
}

/// Latencies in milliseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Latencies {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95 %.
    pub p95: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    #[serde(rename = "p99.9")]
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

/// One kind of operation.
#[derive(Clone, Debug, Serialize)]
pub struct OperationReport {
    /// How many.
    pub operations: u64,
    /// Per second.
    pub ops_per_s: f64,
    /// How long they took.
    pub latency_ms: Latencies,
    /// The whole distribution in nanoseconds: HDR histogram, V2, deflated,
    /// base64.
    pub response: String,
    /// What percentiles consist of; absent where the model does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<TailReport>,
}

/// What the faults of a timetable did.
#[derive(Clone, Debug, Serialize)]
pub struct FaultReport {
    /// Operations by interval.
    pub course: CourseReport,
    /// All operations that failed.
    pub failed_operations: u64,
    /// Of these: those that found too few replicas alive, and were told so at once.
    pub unavailable: u64,
    /// Latencies of what succeeded while some node was away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degraded_latency_ms: Option<Latencies>,
    /// The timetable's steps, in the order of their beginning.
    pub steps: Vec<StepReport>,
    /// What was streamed or replayed.
    pub rebuilds: Vec<RebuildReport>,
    /// Bytes of mutations that coordinators kept for nodes that were away.
    pub hint_bytes: u64,
    /// Rows of which no copy is left.
    pub lost_rows: u64,
    /// Updates that clients know of and a standby that became the primary had not; absent: none became one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_updates: Option<u64>,
}

/// Operations by interval.
#[derive(Clone, Debug, Serialize)]
pub struct CourseReport {
    /// Length of an interval in seconds.
    pub interval_s: f64,
    /// Those that succeeded, by interval.
    pub completed: Vec<u64>,
    /// Those that failed.
    pub failed: Vec<u64>,
}

/// A step of a timetable, in seconds from the beginning of what is measured.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// What happened.
    pub what: What,
    /// To which node, from zero.
    pub node: u32,
    /// When.
    pub begun_s: f64,
    /// When it was over: the node serves again.
    pub ended_s: f64,
    /// Whether the run ended before, so that `ended_s` goes on with the rate that was seen.
    pub extrapolated: bool,
}

/// Data that came back to a node.
#[derive(Clone, Debug, Serialize)]
pub struct RebuildReport {
    /// Which node, from zero.
    pub node: u32,
    /// `stream` from other nodes or `replay` of its own log.
    pub kind: &'static str,
    /// Bytes in all.
    pub bytes: u64,
    /// Of these, what came during the run.
    pub done_bytes: u64,
    /// Rate over that time.
    pub bytes_per_s: f64,
    /// How long all of it takes.
    pub seconds: f64,
    /// How many nodes sent it.
    pub sources: u32,
    /// What bound it.
    pub bound: Resource,
}

/// Something that operations share.
#[derive(Clone, Debug, Serialize)]
pub struct Resource {
    /// What it is: `client CPU`, `node CPU`, `read slots`, `vm cached MB/s`, `disk IOPS`, ...
    pub resource: String,
    /// The busiest one: `node 2`, `node 2 disk 1`; empty when there is only one.
    pub place: String,
    /// Its use, as a share of what it can give.
    pub utilisation: f64,
    /// Mean use over all of its kind.
    pub mean_utilisation: f64,
    /// Time that an operation waits for it on average, over all of its kind, in milliseconds.
    pub wait_ms_per_operation: f64,
}

/// What happened below the operations.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Telemetry {
    /// Share of touched pages that the page cache had.
    pub page_cache_hit_ratio: Option<f64>,
    /// Share of I/Os that the host cache served whole.
    pub host_cache_hit_ratio: Option<f64>,
    /// Reads of the data disks for each operation.
    pub read_ios_per_operation: f64,
    /// Bytes of them.
    pub read_bytes_per_operation: f64,
    /// Writes of all disks for each operation.
    pub write_ios_per_operation: f64,
    /// Bytes of them.
    pub write_bytes_per_operation: f64,
    /// Time that requests waited for disks, for each operation, in milliseconds.
    pub disk_wait_ms_per_operation: f64,
    /// Share of time that a node stood still, on average.
    pub pause_ratio: f64,
    /// Bytes that compaction still owes, on the node with the most.
    pub pending_compaction_bytes: u64,
    /// Share of blocks that the database's own cache had; absent where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_cache_hit_ratio: Option<f64>,
}

/// A credit bucket.
#[derive(Clone, Debug, Serialize)]
pub struct CreditReport {
    /// `node 2 disk 0 IOPS`.
    pub place: String,
    /// Credits left, in its units.
    pub left: u64,
    /// A full bucket.
    pub capacity: u64,
    /// Seconds until it is empty at this load; absent: it does not shrink.
    pub lasts_s: Option<f64>,
}

/// Where nothing is used more than this, nothing shared holds the load up: it is the latency of each
/// operation, times the number of threads, that sets the rate.
const BOUND: f64 = 0.85;

/// Of a Cassandra node: with all of them at work all the time, writes wait for room in memtables.
pub const FLUSH_WRITERS: &str = "flush writers";

impl Resource {
    /// No resource is the limit.
    pub fn none() -> Resource {
        Resource {
            resource: "latency".to_owned(),
            place: String::new(),
            utilisation: 0.0,
            mean_utilisation: 0.0,
            wait_ms_per_operation: 0.0,
        }
    }
}

impl Report {
    /// Names the bottleneck: the busiest resource, if it is busy; else `latency`, with the use of
    /// the busiest one.
    ///
    /// A slot is held while a request waits for something else, and a writer of flushes while a disk
    /// is. Either is the bottleneck only when nothing else is.
    pub fn name_bottleneck(&mut self) {
        let is_slot =
            |one: &&Resource| one.resource.ends_with("slots") || one.resource == FLUSH_WRITERS;
        let mut order = self.resources.iter().filter(|r| !is_slot(r));
        let slots = || self.resources.iter().find(is_slot);
        let busiest = order.next();
        self.bottleneck = match (busiest, slots()) {
            (Some(busiest), _) if busiest.utilisation >= BOUND => busiest.clone(),
            (_, Some(slots)) if slots.utilisation >= BOUND => slots.clone(),
            (Some(busiest), _) => Resource {
                utilisation: busiest.utilisation,
                ..Resource::none()
            },
            (None, _) => Resource::none(),
        };
    }
}

const NANOS: f64 = 1e9;
const MILLI_NANOS: f64 = 1e6;

/// Percentiles of a histogram, with the exact mean.
pub fn latencies(histogram: &Histogram<u64>, sum: u128) -> Latencies {
    if histogram.is_empty() {
        return Latencies::default();
    }
    let at = |share| histogram.value_at_quantile(share) as f64 / MILLI_NANOS;
    Latencies {
        mean: sum as f64 / histogram.len() as f64 / MILLI_NANOS,
        p50: at(0.5),
        p95: at(0.95),
        p99: at(0.99),
        p999: at(0.999),
        max: histogram.max() as f64 / MILLI_NANOS,
    }
}

/// One kind of operation over a span of time.
pub fn operation(histogram: &Histogram<u64>, sum: u128, elapsed_ns: u64) -> OperationReport {
    OperationReport {
        operations: histogram.len(),
        ops_per_s: histogram.len() as f64 * NANOS / elapsed_ns as f64,
        latency_ms: latencies(histogram, sum),
        response: encode(histogram),
        tail: None,
    }
}

/// A histogram in HDR's V2 form, deflated, base64.
pub fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .expect("memory takes every histogram");
    STANDARD.encode(bytes)
}

/// Uses of like resources, of which the busiest is named.
#[derive(Debug, Default)]
pub struct Uses {
    all: BTreeMap<String, Vec<(String, f64, u128)>>,
    /// The limits of the host that burst.
    bursting: Vec<Limit>,
}

impl Uses {
    /// Nothing used yet of hosts with these profiles.
    pub fn new<'a>(profiles: impl IntoIterator<Item = &'a HostProfile>) -> Uses {
        let all = profiles.into_iter().flat_map(|profile| {
            let disks = profile.volumes.iter().flat_map(|volume| &volume.disks);
            let limits = disks.flat_map(|disk| &disk.limits);
            limits.chain(&profile.cached).chain(&profile.uncached)
        });
        Uses {
            all: BTreeMap::new(),
            bursting: all.filter(|limit| limit.burst.is_some()).cloned().collect(),
        }
    }

    /// Units that a limit could have granted in a span: its baseline and the credits at the start,
    /// but no more than its top rate.
    fn could_grant(&self, limit: &LimitCounters, credits: Option<u64>, elapsed_ns: u64) -> f64 {
        let seconds = elapsed_ns as f64 / NANOS;
        let baseline = limit.per_s as f64 * seconds;
        let same = |other: &&Limit| {
            other.per_s == limit.per_s && other.unit == limit.unit && other.scope == limit.scope
        };
        let burst = self
            .bursting
            .iter()
            .find(same)
            .and_then(|l| l.burst.as_ref());
        match (burst, credits) {
            (None, _) => baseline,
            (Some(burst), None) => burst.per_s as f64 * seconds,
            (Some(burst), Some(credits)) => {
                (baseline + credits as f64).min(burst.per_s as f64 * seconds)
            }
        }
    }

    /// Adds a use: a kind, a place, a share, and the time that requests waited for it in all.
    pub fn add(&mut self, kind: &str, place: String, utilisation: f64, waited_ns: u128) {
        let entry = self.all.entry(kind.to_owned()).or_default();
        entry.push((place, utilisation, waited_ns));
    }

    /// Adds the limits of a volume, as counted since `before`.
    pub fn add_limits(
        &mut self,
        node: &str,
        volume: &str,
        now: &VolumeCounters,
        before: &VolumeCounters,
        elapsed_ns: u64,
    ) {
        for (limit, earlier) in now.limits.iter().zip(&before.limits) {
            let granted = limit.granted - earlier.granted;
            let waited = limit.delayed_ns - earlier.delayed_ns;
            let kind = limit_name(volume, &limit.place, limit.scope, limit.unit);
            let place = if limit.place.starts_with("disk") {
                format!("{node} {}", limit.place)
            } else {
                node.to_owned()
            };
            let credits = earlier.credits.map(|credits| credits.left);
            let share = granted as f64 / self.could_grant(limit, credits, elapsed_ns);
            // A device has no node to name.
            let place = place.trim().to_owned();
            let entry = self.all.entry(kind).or_default();
            // A VM's budget is listed by each volume that draws on it.
            match entry.iter_mut().find(|(known, ..)| *known == place) {
                Some((_, utilisation, all_waited)) => {
                    *utilisation += share;
                    *all_waited += u128::from(waited);
                }
                None => entry.push((place, share, u128::from(waited))),
            }
        }
    }

    /// The resources, the busiest first.
    pub fn resources(self, operations: u64) -> Vec<Resource> {
        let mut resources: Vec<Resource> = self
            .all
            .into_iter()
            .map(|(resource, uses)| {
                let busiest = uses.iter().max_by(|a, b| a.1.total_cmp(&b.1));
                let (place, utilisation) = busiest
                    .map_or((String::new(), 0.0), |(place, share, _)| {
                        (place.clone(), *share)
                    });
                let waited: u128 = uses.iter().map(|(.., waited)| waited).sum();
                let sum: f64 = uses.iter().map(|(_, share, _)| share).sum();
                Resource {
                    resource,
                    place,
                    utilisation,
                    mean_utilisation: sum / uses.len() as f64,
                    wait_ms_per_operation: waited as f64 / MILLI_NANOS / operations.max(1) as f64,
                }
            })
            .collect();
        resources.sort_by(|a, b| b.utilisation.total_cmp(&a.utilisation));
        resources
    }
}

/// The credit buckets of a volume, as they moved since `before`.
pub fn credits(
    node: &str,
    now: &VolumeCounters,
    before: &VolumeCounters,
    elapsed_ns: u64,
) -> Vec<CreditReport> {
    let mut found = Vec::new();
    for (limit, earlier) in now.limits.iter().zip(&before.limits) {
        let (Some(credits), Some(start)) = (limit.credits, earlier.credits) else {
            continue;
        };
        let spent_per_s =
            start.left.saturating_sub(credits.left) as f64 * NANOS / elapsed_ns as f64;
        let unit = match limit.unit {
            Unit::Ios => "IOPS",
            Unit::Bytes => "MB/s",
        };
        found.push(CreditReport {
            place: format!("{node} {} {unit}", limit.place).trim().to_owned(),
            left: credits.left,
            capacity: credits.capacity,
            lasts_s: (spent_per_s > 0.0).then(|| credits.left as f64 / spent_per_s),
        });
    }
    found
}
