//! The rules that profiles, changes and faults obey, and their refusals.

use crate::fault::{Change, Fault};
use crate::io::VolumeId;
use crate::profile::{
    Burst, CacheProfile, Caching, DiskProfile, Distribution, HostProfile, Latency, Limit, Medium,
    PROFILE_VERSION, SharedLimit, Unit, VolumeProfile,
};
use crate::refusal::{Reason, Refusal, Rules};
use crate::table::{LANE_BITS, MOST_SECTORS};

/// The unit in which the host cache knows data, and in which volumes and chunks are measured.
pub const SECTOR_BYTES: u64 = 4096;

/// Most disks in a stripe. The largest cloud VMs take 64 data disks.
const MOST_DISKS: usize = 128;

/// The largest block of the host cache: its index has a bit for each sector.
const MOST_BLOCK_BYTES: u32 = MOST_SECTORS * SECTOR_BYTES as u32;

/// Most disks of a host: what the cache's index can tell apart.
const MOST_DISKS_OF_HOST: usize = 1 << LANE_BITS;

/// Most limits of a disk, or of a budget: IOPS and bytes for all, reads and writes make six.
const MOST_LIMITS: usize = 16;

/// Most points of a distribution; published tables have about twenty.
const MOST_POINTS: usize = 250;

/// A rate above this is no disk: 10^12 bytes a second.
const HIGHEST_PER_S: u64 = 1_000_000_000_000;

/// Longest refill window: a minute, far beyond anything measured.
const LONGEST_WINDOW_NS: u64 = 60_000_000_000;

/// Longest service time: an hour. The sampler's arithmetic stays exact up to four.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Largest volume: 2^50 bytes. The largest cloud disk has 2^46.
const LARGEST_VOLUME: u64 = 1 << 50;

/// Checks a whole host.
pub fn host(host: &HostProfile) -> Result<(), Refusal> {
    let mut rules = Rules::default();
    rules.must(
        host.version == PROFILE_VERSION,
        "version",
        host.version,
        &format!("this model reads version {PROFILE_VERSION}"),
        "use the disklab command and engine of the same release",
    );
    limits(&mut rules, "cached", &host.cached);
    limits(&mut rules, "uncached", &host.uncached);
    if let Some(profile) = &host.cache {
        cache(&mut rules, profile);
    }
    for (index, profile) in host.volumes.iter().enumerate() {
        let before: Vec<&VolumeProfile> = host.volumes[..index].iter().collect();
        volume_rules(&mut rules, profile, host, &before);
    }
    rules.verdict()
}

/// Checks a volume against its host and what is attached already.
pub fn volume(
    volume: &VolumeProfile,
    host: &HostProfile,
    attached: &[&VolumeProfile],
) -> Result<(), Refusal> {
    let mut rules = Rules::default();
    volume_rules(&mut rules, volume, host, attached);
    rules.verdict()
}

fn cache(rules: &mut Rules, cache: &CacheProfile) {
    rules.must(
        cache.block_bytes.is_power_of_two()
            && (4096..=MOST_BLOCK_BYTES).contains(&cache.block_bytes),
        "cache.block_bytes",
        cache.block_bytes,
        "a block of the host cache is a power of two from 4 KiB to 64 KiB",
        "use 65536",
    );
    rules.must(
        cache.capacity_bytes >= u64::from(cache.block_bytes),
        "cache.capacity_bytes",
        cache.capacity_bytes,
        "the host cache holds at least one block",
        "give it more, or leave the cache out",
    );
    latency(rules, "cache.latency", &cache.latency);
}

fn volume_rules(
    rules: &mut Rules,
    volume: &VolumeProfile,
    host: &HostProfile,
    attached: &[&VolumeProfile],
) {
    let name = &volume.name;
    let at = format!("volumes.{name}");
    rules.must(
        !name.is_empty(),
        "volumes",
        "''",
        "a volume has a name",
        "give it one",
    );
    rules.must(
        attached.iter().all(|other| other.name != *name),
        &at,
        name,
        "a volume of this name is attached already",
        "choose another name, or detach that one first",
    );
    let disks: usize = attached.iter().map(|other| other.disks.len()).sum();
    rules.must(
        disks + volume.disks.len() <= MOST_DISKS_OF_HOST,
        &at,
        format!("{} disks beside {disks}", volume.disks.len()),
        &format!("a host takes at most {MOST_DISKS_OF_HOST} disks"),
        "detach some first",
    );
    let size = volume.size_bytes;
    rules.must(
        size > 0 && size.is_multiple_of(SECTOR_BYTES) && size <= LARGEST_VOLUME,
        &format!("{at}.size_bytes"),
        size,
        "a volume's size is a multiple of 4096 bytes, more than none and at most 1 PiB",
        "round it up to a multiple of 4096",
    );
    disk_list(rules, &at, volume);
    caching(
        rules,
        &format!("{at}.caching"),
        volume,
        volume.caching,
        host,
    );
}

fn disk_list(rules: &mut Rules, at: &str, volume: &VolumeProfile) {
    let count = volume.disks.len();
    rules.must(
        (1..=MOST_DISKS).contains(&count),
        &format!("{at}.disks"),
        format!("{count} disks"),
        &format!("a volume has 1 to {MOST_DISKS} disks"),
        "list its disks",
    );
    let chunk_at = format!("{at}.chunk_bytes");
    match volume.chunk_bytes {
        None => rules.must(
            count <= 1,
            &chunk_at,
            "none",
            "a stripe needs a chunk size",
            "use 65536",
        ),
        Some(chunk) => {
            rules.must(
                count > 1,
                &chunk_at,
                chunk,
                "one disk alone is no stripe",
                "leave the chunk size out",
            );
            rules.must(
                chunk > 0 && u64::from(chunk).is_multiple_of(SECTOR_BYTES),
                &chunk_at,
                chunk,
                "a chunk is a multiple of 4096 bytes",
                "use 65536",
            );
        }
    }
    for (index, disk) in volume.disks.iter().enumerate() {
        let disk_at = format!("{at}.disks[{index}]");
        rules.must(
            disk.medium == volume.disks[0].medium,
            &format!("{disk_at}.medium"),
            format!("{:?}", disk.medium),
            "all disks of a stripe have the same medium",
            "make two volumes of them",
        );
        disk_rules(rules, &disk_at, disk);
    }
}

fn disk_rules(rules: &mut Rules, at: &str, disk: &DiskProfile) {
    limits(rules, &format!("{at}.limits"), &disk.limits);
    let sound = |limit: &SharedLimit| {
        let rates = [limit.of_host, limit.part, limit.most];
        limit.most > 0 && rates.into_iter().all(|rate| rate <= HIGHEST_PER_S)
    };
    rules.must(
        disk.shared.len() <= MOST_LIMITS && disk.shared.iter().all(sound),
        &format!("{at}.shared"),
        disk.shared.len(),
        &format!("at most {MOST_LIMITS} shared limits, whose most is positive and rates at most 10^12 per second"),
        "leave out what there is none of",
    );
    latency(rules, &format!("{at}.latency"), &disk.latency);
}

fn caching(
    rules: &mut Rules,
    at: &str,
    volume: &VolumeProfile,
    caching: Caching,
    host: &HostProfile,
) {
    if caching == Caching::None {
        return;
    }
    let value = format!("{caching:?}");
    rules.must(
        host.cache.is_some(),
        at,
        &value,
        &format!("{} has no host cache", host.name),
        "choose caching None, or a VM size with premium storage caching",
    );
    let remote = volume
        .disks
        .iter()
        .all(|disk| disk.medium == Medium::Remote);
    rules.must(
        remote,
        at,
        &value,
        "only remote disks can use the host cache; temp and NVMe disks are on the host already",
        "choose caching None",
    );
}

fn limits(rules: &mut Rules, at: &str, limits: &[Limit]) {
    rules.must(
        limits.len() <= MOST_LIMITS,
        at,
        format!("{} limits", limits.len()),
        &format!("at most {MOST_LIMITS} limits apply at one place"),
        "keep the tightest ones",
    );
    for (index, limit) in limits.iter().enumerate() {
        let at = format!("{at}[{index}]");
        rules.must(
            (1..=HIGHEST_PER_S).contains(&limit.per_s),
            &format!("{at}.per_s"),
            limit.per_s,
            "a rate is positive and at most 10^12 per second",
            "leave the limit out if there is none",
        );
        rules.must(
            limit.window_ns <= LONGEST_WINDOW_NS,
            &format!("{at}.window_ns"),
            limit.window_ns,
            "a refill window is at most a minute",
            "use 50000000 (50 ms), or 0 for continuous refill",
        );
        let counts_ios = limit.unit == Unit::Ios;
        let unit = limit.io_unit_bytes;
        rules.must(
            unit.is_none_or(|bytes| bytes >= 512 && counts_ios),
            &format!("{at}.io_unit_bytes"),
            unit.unwrap_or(0),
            "an I/O unit is at least 512 bytes, and only limits in I/Os have one",
            "use 262144, or leave it out",
        );
        if let Some(profile) = &limit.burst {
            burst(rules, &format!("{at}.burst"), limit, profile);
        }
    }
}

fn burst(rules: &mut Rules, at: &str, limit: &Limit, burst: &Burst) {
    rules.must(
        (limit.per_s..=HIGHEST_PER_S).contains(&burst.per_s),
        &format!("{at}.per_s"),
        burst.per_s,
        &format!("the burst rate is at least the baseline of {}", limit.per_s),
        "swap the two, or leave the burst out",
    );
    let capacity = burst.credits.unwrap_or(0);
    rules.must(
        burst.start.is_none_or(|start| start <= capacity),
        &format!("{at}.start"),
        burst.start.unwrap_or(0),
        &format!("a bucket of {capacity} credits cannot start with more"),
        "leave it out to start full",
    );
}

fn latency(rules: &mut Rules, at: &str, latency: &Latency) {
    distribution(rules, &format!("{at}.read"), &latency.read);
    distribution(rules, &format!("{at}.write"), &latency.write);
    distribution(rules, &format!("{at}.flush"), &latency.flush);
}

fn distribution(rules: &mut Rules, at: &str, distribution: &Distribution) {
    let points = &distribution.quantiles_ppm_ns;
    let at_points = format!("{at}.quantiles_ppm_ns");
    rules.must(
        (1..=MOST_POINTS).contains(&points.len()),
        &at_points,
        format!("{} points", points.len()),
        &format!("a distribution has 1 to {MOST_POINTS} points"),
        "one point [1000000, ns] makes a constant",
    );
    for pair in points.windows(2) {
        rules.must(
            pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1,
            &at_points,
            format!("{:?} before {:?}", pair[0], pair[1]),
            "shares and times both never decrease",
            "sort the points",
        );
    }
    for point in points {
        rules.must(
            point.0 <= 1_000_000 && point.1 <= LONGEST_NS,
            &at_points,
            format!("{point:?}"),
            "a share is at most 1000000 ppm and a time at most an hour",
            "check the units: parts per million and nanoseconds",
        );
    }
    rules.must(
        distribution.per_kib_ns <= LONGEST_NS / (1 << 22),
        &format!("{at}.per_kib_ns"),
        distribution.per_kib_ns,
        "the largest I/O (4 GiB) takes at most an hour",
        "check the unit: nanoseconds for each KiB",
    );
}

/// Checks a change and returns the profile as it will be.
pub fn change(
    volume: &VolumeProfile,
    host: &HostProfile,
    change: &Change,
) -> Result<VolumeProfile, Refusal> {
    let mut rules = Rules::default();
    let mut changed = volume.clone();
    if let Some(new) = &change.limits {
        limits(&mut rules, "change.limits", new);
        for disk in &mut changed.disks {
            disk.limits.clone_from(new);
            // A disk that is given limits of its own shares none.
            disk.shared.clear();
        }
    }
    if let Some(new) = &change.latency {
        latency(&mut rules, "change.latency", new);
        for disk in &mut changed.disks {
            disk.latency.clone_from(new);
        }
    }
    if let Some(new) = change.caching {
        caching(&mut rules, "change.caching", volume, new, host);
        changed.caching = new;
    }
    credits(
        &mut rules,
        "change.credit_ios",
        &changed,
        Unit::Ios,
        change.credit_ios,
    );
    credits(
        &mut rules,
        "change.credit_bytes",
        &changed,
        Unit::Bytes,
        change.credit_bytes,
    );
    rules.verdict().map(|()| changed)
}

/// Credits can be set where some disk has a bucket for them, up to the smallest bucket.
fn credits(rules: &mut Rules, at: &str, volume: &VolumeProfile, unit: Unit, new: Option<u64>) {
    let Some(new) = new else { return };
    let limits = volume.disks.iter().flat_map(|disk| &disk.limits);
    let buckets = limits
        .filter(|limit| limit.unit == unit)
        .filter_map(|limit| limit.burst.as_ref()?.credits);
    let smallest = buckets.min();
    rules.must(
        smallest.is_some(),
        at,
        new,
        &format!("no disk of {} has burst credits of this kind", volume.name),
        "choose a disk that bursts on credits",
    );
    let most = smallest.unwrap_or(u64::MAX);
    rules.must(
        new <= most,
        at,
        new,
        &format!("a bucket holds at most {most}"),
        "set it to that to fill it",
    );
}

/// Checks a fault.
pub fn fault(volume: &VolumeProfile, fault: &Fault) -> Result<(), Refusal> {
    let mut rules = Rules::default();
    match *fault {
        Fault::ErrorRate { ppm } => rules.must(
            ppm <= 1_000_000,
            "fault.ppm",
            ppm,
            "a share is at most 1000000 parts per million",
            "use 1000000 to fail every I/O",
        ),
        Fault::Slow { permille, disk } => {
            rules.must(
                (1..=1_000_000).contains(&permille),
                "fault.permille",
                permille,
                "a disk is 1 to 1000000 permille of its promised service time",
                "use 1000 for as promised, 2000 for twice as slow, or a stall",
            );
            let count = volume.disks.len();
            rules.must(
                disk.is_none_or(|disk| (disk as usize) < count),
                "fault.disk",
                disk.unwrap_or(0),
                &format!("{} has {count} disks, counted from 0", volume.name),
                "leave it out to slow all of them",
            );
        }
        Fault::Stall { for_ns } => rules.must(
            for_ns != Some(0),
            "fault.for_ns",
            0,
            "a stall lasts for some time",
            "leave it out to stall until mended",
        ),
        Fault::HostFailure | Fault::Deallocate | Fault::Recover => {}
    }
    rules.verdict()
}

/// The refusal of anything asked of a volume that is not there.
pub fn not_attached(volume: VolumeId) -> Refusal {
    Refusal {
        reasons: vec![Reason {
            place: "volume".to_owned(),
            value: volume.0.to_string(),
            rule: "no volume of this number is attached".to_owned(),
            way_out: "attach it first, or name one that is".to_owned(),
        }],
    }
}
