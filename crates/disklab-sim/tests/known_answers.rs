//! Queues whose answers are known in closed form, against whole simulations.
//!
//! A device under fio, a database whose cores are the only resource, and a disk with limits are queues
//! that textbooks solve. Each answer is checked over several seeds: the mean of the runs lies within
//! four standard errors of the exact one, or within the bound that the model's own grain gives.

use crate::jobs;
use crate::jobs::{close, near};
use disklab_disk::profile::{Distribution, Limit, Scope, Unit};
use disklab_sim::cell::{
    Arrivals, BlockShare, Buffered, CacheState, Fidelity, Job, Keys, Mechanism, Sync,
};
use disklab_sim::{Report, simulate};

const SEEDS: u64 = 12;

fn runs(job: impl Fn(u64) -> Job) -> Vec<Report> {
    let run =
        |seed| simulate(&job(seed)).unwrap_or_else(|refusal| panic!("seed {seed}: {refusal}"));
    (1..=SEEDS).map(run).collect()
}

/// The mean of the runs lies within four standard errors of the exact answer, which are small.
fn agrees(what: &str, seen: &[f64], exact: f64) {
    let count = seen.len() as f64;
    let mean = seen.iter().sum::<f64>() / count;
    let square = seen.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>();
    let error = (square / (count - 1.0) / count).sqrt();
    assert!(
        error < 0.03 * exact,
        "{what}: too noisy to say anything: {seen:?}"
    );
    assert!(
        (mean - exact).abs() < 4.0 * error + 0.002 * exact,
        "{what}: mean {mean} of {seen:?}, exact {exact}"
    );
}

fn means(reports: &[Report]) -> Vec<f64> {
    reports
        .iter()
        .map(|report| report.latency_ms.mean)
        .collect()
}

/// Quantiles of an exponential distribution, fine enough that its mean is right to a thousandth.
fn exponential(mean_ns: f64) -> Distribution {
    let mut points = Vec::new();
    for i in 0..200_u32 {
        // Points crowd towards 1, where the curve is steep.
        let share = 1.0 - (1.0 - f64::from(i) / 200.0).powi(4);
        // The table's grain is a millionth.
        if share < 0.999_99 {
            let ns = -(1.0 - share).ln() * mean_ns;
            points.push(((share * 1e6) as u32, ns as u64));
        }
    }
    // The mean of what lies beyond the last point is one mean more than that.
    points.push((1_000_000, (13.5 * mean_ns) as u64));
    Distribution {
        quantiles_ppm_ns: points,
        per_kib_ns: 0,
    }
}

/// Erlang's C: the share of arrivals that wait at `c` servers under `load` erlangs.
fn erlang_c(c: u32, load: f64) -> f64 {
    let (mut term, mut sum) = (1.0, 0.0);
    for k in 0..c {
        sum += term;
        term *= load / f64::from(k + 1);
    }
    let last = term * f64::from(c) / (f64::from(c) - load);
    last / (sum + last)
}

/// Read slots with exponential disk time are the servers of an M/M/c queue.
fn slots_queue(servers: u32, rate_per_s: u64, mean_ns: f64, seed: u64) -> Job {
    let mut job = jobs::reads(1, 120_000, seed);
    let database = jobs::database(&mut job);
    database.database.concurrent_reads = servers;
    database.workload.load = jobs::open(rate_per_s * 1000, Arrivals::Poisson, 100_000);
    jobs::disk(database).latency.read = exponential(mean_ns);
    job
}

#[test]
fn the_same_seed_gives_the_same_figures_and_another_seed_others() {
    let run = |seed| {
        let mut job = jobs::reads(32, 20_000, seed);
        jobs::database(&mut job).cluster.nodes = 3;
        jobs::answer(&job)
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn m_m_1() {
    // 0.7 erlangs: 1/(mu - lambda) = 1 ms / 0.3.
    let reports = runs(|seed| slots_queue(1, 700, 1e6, seed));
    agrees("M/M/1", &means(&reports), 1.0 / 0.3);
}

#[test]
fn m_m_c() {
    for (servers, rate) in [(4, 3_000), (16, 13_600)] {
        let reports = runs(|seed| slots_queue(servers, rate, 1e6, seed));
        let load = rate as f64 / 1000.0;
        let exact = 1.0 + erlang_c(servers, load) / (f64::from(servers) - load);
        agrees(&format!("M/M/{servers}"), &means(&reports), exact);
    }
}

#[test]
fn a_pace_is_held_where_its_threads_reach_it() {
    // Four threads on a disk of a millisecond do 4,000 reads a second, whatever the ceiling above that is.
    for (ceiling, rate) in [(1_000, 1_000.0), (3_900, 3_900.0), (10_000, 4_000.0)] {
        let mut job = jobs::reads(4, 40_000, 1);
        let closed = simulate(&job).expect("the job is right");
        jobs::database(&mut job).workload.load = jobs::open(ceiling * 1000, Arrivals::Paced, 4);
        let paced = simulate(&job).expect("the job is right");
        let off = paced.ops_per_s / rate - 1.0;
        assert!(off.abs() < 0.005, "{} at {ceiling}", paced.ops_per_s);
        // What waits for a thread has not started: it has no latency yet, as in a closed loop.
        assert!((closed.latency_ms.mean - 1.0).abs() < 0.005);
        assert!((paced.latency_ms.mean - 1.0).abs() < 0.005);
    }
}

#[test]
fn m_d_1() {
    let reports = runs(|seed| {
        let mut job = slots_queue(1, 800, 1e6, seed);
        jobs::disk(jobs::database(&mut job)).latency.read = Distribution::constant(1_000_000);
        job
    });
    // Pollaczek-Khinchine: 1 + rho / (2 (1 - rho)).
    agrees("M/D/1", &means(&reports), 1.0 + 0.8 / 0.4);
}

/// A closed network of a delay and one queue, by exact mean value analysis.
fn closed_network(threads: u32, delay_ms: f64, service_ms: f64) -> f64 {
    let (mut queue, mut rate) = (0.0, 0.0);
    for n in 1..=threads {
        let response = service_ms * (1.0 + queue);
        rate = f64::from(n) / (delay_ms + response);
        queue = rate * response;
    }
    rate * 1000.0
}

#[test]
fn closed_network_by_mean_value_analysis() {
    for threads in [1, 4, 12] {
        let reports = runs(|seed| {
            let mut job = jobs::reads(threads, 40_000, seed);
            let database = jobs::database(&mut job);
            database.database.concurrent_reads = 1;
            // The overhead is a delay without a queue: a think time.
            database.parameters.overhead_ns = 4_000_000;
            jobs::disk(database).latency.read = exponential(1e6);
            job
        });
        let rates: Vec<f64> = reports.iter().map(|report| report.ops_per_s).collect();
        agrees(
            &format!("{threads} threads"),
            &rates,
            closed_network(threads, 4.0, 1.0),
        );
    }
}

fn limit(unit: Unit, per_s: u64, window_ns: u64) -> Limit {
    Limit {
        scope: Scope::All,
        unit,
        per_s,
        io_unit_bytes: None,
        window_ns,
        burst: None,
    }
}

#[test]
fn a_token_bucket_gives_its_rate_and_little_tells_the_latency() {
    for window_ns in [0, 50_000_000] {
        let mut job = jobs::fio(jobs::ALL_READS, 1, 64, 20_000_000_000);
        let device = jobs::device(&mut job);
        device.host.volumes[0].disks[0].limits = vec![limit(Unit::Ios, 5_000, window_ns)];
        let report = simulate(&job).expect("valid");
        close(report.ops_per_s, 5_000.0, 0.01);
        let exact = 64.0 / report.ops_per_s * 1000.0;
        assert!((report.latency_ms.mean / exact - 1.0).abs() < 0.01);
        assert_eq!(report.bottleneck.resource, "disk IOPS");
    }
}

#[test]
fn a_mix_takes_the_mean_of_its_reads_and_writes_and_each_keeps_its_own_latency() {
    let (read_ns, write_ns, submit_ns) = (200_000.0, 1_000_000.0, 1_000.0);
    for (random, read_ppm) in [(true, 700_000), (false, 300_000)] {
        let reports = runs(|seed| {
            let mut job = jobs::fio(read_ppm, 1, 1, 20_000_000_000);
            job.seed = seed;
            let device = jobs::device(&mut job);
            device.fio.as_mut().expect("a fio job").random = random;
            let latency = &mut device.host.volumes[0].disks[0].latency;
            latency.read = Distribution::constant(read_ns as u64);
            latency.write = Distribution::constant(write_ns as u64);
            job
        });
        let share = f64::from(read_ppm) / 1e6;
        let exact = 1e9 / (share * read_ns + (1.0 - share) * write_ns + submit_ns);
        let of = |seen: &dyn Fn(&Report) -> f64| reports.iter().map(seen).collect::<Vec<_>>();
        agrees("rate", &of(&|one| one.ops_per_s), exact);
        let reads = |one: &Report| one.per_operation["read"].ops_per_s / one.ops_per_s;
        agrees("share of reads", &of(&reads), share);
        for one in &reports {
            for (kind, ns) in [("read", read_ns), ("write", write_ns)] {
                let mean = one.per_operation[kind].latency_ms.mean;
                assert!((mean / (ns / 1e6) - 1.0).abs() < 1e-3, "{kind}: {mean}");
            }
        }
    }
}

#[test]
fn a_limit_of_writes_binds_a_mix_at_its_share_of_writes() {
    let mut job = jobs::fio(750_000, 2, 32, 20_000_000_000);
    let device = jobs::device(&mut job);
    let mut writes = limit(Unit::Ios, 1_000, 0);
    writes.scope = Scope::Write;
    device.host.volumes[0].disks[0].limits = vec![writes];
    let report = simulate(&job).expect("valid");
    close(report.ops_per_s, 4_000.0, 0.02);
}

#[test]
fn burst_credits_last_as_long_as_they_say() {
    let mut job = jobs::fio(0, 1, 64, 30_000_000_000);
    let device = jobs::device(&mut job);
    let mut burst = limit(Unit::Ios, 1_000, 0);
    burst.burst = Some(disklab_disk::profile::Burst {
        per_s: 3_000,
        credits: Some(20_000),
        start: None,
    });
    device.host.volumes[0].disks[0].limits = vec![burst];
    let report = simulate(&job).expect("valid");
    // Ten seconds at 3000, then twenty at 1000.
    close(report.ops_per_s, 50_000.0 / 30.0, 0.01);
    assert_eq!(report.credits[0].left, 0);
}

#[test]
fn a_quick_run_has_the_rate_of_the_full_one() {
    let run = |fidelity| {
        let mut job = jobs::reads(32, 600_000, 1);
        job.fidelity = fidelity;
        let database = jobs::database(&mut job);
        database.cluster.read_ahead_bytes = 64 << 10;
        database.dataset.rows = 30_000_000;
        simulate(&job).expect("valid")
    };
    let (full, quick) = (run(Fidelity::Full), run(Fidelity::Quick));
    assert_eq!((full.scale, quick.scale), (1.0, 0.1));
    close(quick.ops_per_s, full.ops_per_s, 0.03);
}

/// Share of reads that need a disk, with a page cache for a hundredth of the rows.
fn reads_from_disk(keys: Keys, read_ppm: u32) -> f64 {
    let mut job = jobs::reads(8, 400_000, 1);
    let cell = jobs::database(&mut job);
    cell.dataset.rows = 1_000_000;
    cell.cluster.page_cache_bytes = 10_000 * 4096;
    cell.workload.keys = keys;
    cell.workload.read_ppm = read_ppm;
    let report = simulate(&job).expect("the job is valid");
    let reads = report.per_operation["read"].operations as f64;
    report.telemetry.read_ios_per_operation * 400_000.0 / reads
}

#[test]
fn popular_keys_stay_in_memory_as_often_as_zipf_says() {
    // A cache that held the most popular hundredth would serve the sum of their weights, 0.66; one that
    // only sees what comes keeps somewhat less (Che's approximation: 0.56), and uniform keys 0.01.
    let misses = reads_from_disk(Keys::Zipfian, 1_000_000);
    assert!((0.40..0.52).contains(&misses), "{misses}");
    assert!(reads_from_disk(Keys::Uniform, 1_000_000) > 0.98);
}

#[test]
fn the_latest_rows_are_read_from_memory() {
    // Half of the operations add rows: soon most reads are of those. Without any, the same keys are
    // as good as zipfian ones.
    let growing = reads_from_disk(Keys::Latest, 500_000);
    let still = reads_from_disk(Keys::Latest, 1_000_000);
    assert!(growing < 0.25, "{growing}");
    assert!((0.40..0.52).contains(&still), "{still}");
}

/// Reads of a warm table by one client core of 100 us for each row of 4000 bytes.
fn client_bound(column_bytes: u32, byte_ps: u64, off: &[Mechanism]) -> f64 {
    let mut job = jobs::reads(16, 40_000, 3);
    job.ablate.extend_from_slice(off);
    let database = jobs::database(&mut job);
    database.dataset.rows = 1_000;
    database.dataset.column_bytes = column_bytes;
    database.dataset.stored_row_bytes = Some(column_bytes);
    database.cluster.page_cache_bytes = 1 << 30;
    database.before.page_cache = CacheState::Warm;
    database.client.cores = 1;
    database.parameters.client_read_cpu_ns = 100_000;
    database.parameters.at_row_bytes = 4_000;
    database.parameters.client_byte_ps = byte_ps;
    simulate(&job).expect("it is valid").ops_per_s
}

/// A row of 32,000 bytes costs 28,000 bytes more than one of 4,000, at 10 ns each: 380 us.
#[test]
fn a_larger_row_costs_more_cpu() {
    let close =
        |seen: f64, exact: f64| assert!((seen / exact - 1.0).abs() < 0.03, "{seen} {exact}");
    close(client_bound(4_000, 10_000, &[]), 10_000.0);
    close(client_bound(32_000, 10_000, &[]), 1e9 / 380_000.0);
    close(client_bound(200, 10_000, &[]), 1e9 / 62_000.0);
    close(
        client_bound(32_000, 10_000, &[Mechanism::CpuByBytes]),
        10_000.0,
    );
}

/// One server core that opens a chunk of 64 KiB at 1 GB/s for each row, and does nothing else.
#[test]
fn a_chunk_costs_the_cpu_that_opens_it() {
    let rate = |off: &[Mechanism]| {
        let mut job = jobs::reads(16, 20_000, 5);
        job.ablate.extend_from_slice(off);
        let database = jobs::database(&mut job);
        database.dataset.rows = 1_000;
        database.cluster.page_cache_bytes = 1 << 30;
        database.cluster.cores = 1;
        database.before.page_cache = CacheState::Warm;
        database.database.chunk_bytes = Some(64 << 10);
        database.database.decompress_byte_ps = 1_000;
        simulate(&job).expect("it is valid").ops_per_s
    };
    let seen = rate(&[]);
    assert!((seen / (1e9 / 65_536.0) - 1.0).abs() < 0.03, "{seen}");
    assert!(rate(&[Mechanism::DecompressionCpu]) > 10.0 * seen);
}

/// One server core that is busy for 200 us with each read from the disk, and does nothing else.
#[test]
fn a_read_from_the_disk_costs_cpu_and_one_from_memory_none() {
    let rate = |page_cache_bytes: u64| {
        let mut job = jobs::reads(64, 20_000, 5);
        let database = jobs::database(&mut job);
        database.dataset.rows = 1_000_000;
        database.cluster.page_cache_bytes = page_cache_bytes;
        database.cluster.cores = 1;
        database.before.page_cache = CacheState::Warm;
        database.parameters.disk_read_cpu_ns = 200_000;
        simulate(&job).expect("it is valid").ops_per_s
    };
    let seen = rate(10 * 4096);
    // Those that wait for the core do so behind the reads of a moment, of which some come late.
    assert!((0.9..=1.0).contains(&(seen / 5_000.0)), "{seen}");
    assert!(rate(1 << 40) > 10.0 * seen);
}

/// Cold reads of a table that fits the caches, then the same load with the caches as they were left.
fn two_passes(fidelity: Fidelity, page_cache: CacheState) -> Vec<Report> {
    let mut job = jobs::reads(8, 200_000, 3);
    job.fidelity = fidelity;
    let first = jobs::database(&mut job);
    first.dataset.rows = 100_000;
    first.cluster.page_cache_bytes = 1 << 30;
    let mut second = first.clone();
    second.before.page_cache = page_cache;
    job.then.push(disklab_sim::cell::Follower {
        cell: 9,
        database: second,
        from_warm: false,
    });
    disklab_sim::simulate_all(&job).expect("the job is valid")
}

#[test]
fn a_second_pass_finds_what_the_first_one_left() {
    // Two draws for each row, which has a place of its own: so many rows have not been asked for after n passes.
    let absent = |passes: f64| (-2.0 * passes).exp();
    let asked = [(1.0 - absent(1.0)) / 2.0, (absent(1.0) - absent(2.0)) / 2.0];
    for fidelity in [Fidelity::Full, Fidelity::Quick] {
        let passes = two_passes(fidelity, CacheState::AsLeft);
        assert_eq!([passes[0].cell, passes[1].cell], [0, 9]);
        let [first, second] = [0, 1].map(|n: usize| passes[n].telemetry.read_ios_per_operation);
        assert!((first - asked[0]).abs() < 0.004, "{first} {asked:?}");
        assert!((second - asked[1]).abs() < 0.003, "{second} {asked:?}");
    }
    let cold = two_passes(Fidelity::Full, CacheState::Cold);
    let ios = |n: usize| cold[n].telemetry.read_ios_per_operation;
    close(ios(1), ios(0), 0.01);
}

/// A fifth of the rows is asked for: 200,000 reads come to each of 20,000 rows ten times, and read each once.
#[test]
fn rows_that_are_never_asked_for_are_never_read() {
    for keys in [Keys::Uniform, Keys::Zipfian, Keys::Gaussian] {
        for fidelity in [Fidelity::Full, Fidelity::Quick] {
            let mut job = jobs::reads(8, 200_000, 3);
            job.fidelity = fidelity;
            let database = jobs::database(&mut job);
            database.dataset.rows = 100_000;
            database.cluster.page_cache_bytes = 1 << 30;
            database.workload.keys = keys;
            database.workload.asked_rows = Some(20_000);
            let report = simulate(&job).expect("it is valid");
            let ios = report.telemetry.read_ios_per_operation;
            // Of rare rows some are never drawn.
            let bounds = match keys {
                Keys::Uniform => 0.0999..0.1001,
                _ => 0.06..0.1001,
            };
            assert!(bounds.contains(&ios), "{keys:?} {fidelity:?} {ios}");
        }
    }
}

#[test]
fn cells_that_follow_have_the_same_cluster() {
    let mut job = jobs::reads(8, 1_000, 3);
    let mut other = jobs::database(&mut job).clone();
    other.dataset.rows += 1;
    job.then.push(disklab_sim::cell::Follower {
        cell: 1,
        database: other,
        from_warm: false,
    });
    let refusal = disklab_sim::simulate_all(&job).expect_err("other rows");
    assert!(refusal.to_string().contains("follow"), "{refusal}");
}

/// A number of operations is one of those that are measured: a warm-up is longer than it, not part of it.
#[test]
fn operations_of_a_warm_up_do_not_end_the_run() {
    let mut job = jobs::reads(8, 500, 1);
    jobs::database(&mut job).workload.warm_up_ns = 10_000_000_000;
    let report = simulate(&job).expect("the job is in order");
    let counted: u64 = report
        .per_operation
        .values()
        .map(|one| one.operations)
        .sum();
    // Those under way when the warm-up ends have begun before it.
    assert!(
        (500..=508).contains(&counted),
        "{counted} operations counted"
    );
}

/// A sync is the write of its data and one of the log, one after the other: twice a write's time, and etcd's test of
/// 2300 bytes does half as many a second as a disk that does nothing else writes.
#[test]
fn a_sync_takes_the_data_and_then_the_log() {
    let rate = |sync: Option<Sync>, buffered: bool| {
        let mut job = jobs::fio(0, 1, 1, 600_000_000_000);
        let fio = jobs::device(&mut job).fio.as_mut().expect("a fio job");
        (fio.random, fio.once, fio.block_bytes) = (false, true, if buffered { 2300 } else { 4096 });
        fio.size_bytes = 22 << 20;
        fio.buffered = buffered.then_some(Buffered {
            read_ahead_bytes: 131_072,
        });
        fio.sync = sync;
        let report = simulate(&job).expect("valid");
        let write = &report.per_operation["write"];
        assert_eq!(
            write.operations,
            (22 << 20) / if buffered { 2300 } else { 4096 }
        );
        (report.ops_per_s, report.latency_ms.mean)
    };
    let (direct, _) = rate(None, false);
    let log = Sync {
        every: 1,
        data_only: true,
        journal_writes: 1,
    };
    let (synced, sync_ms) = rate(Some(log), true);
    near(synced / direct, 0.5, 0.02);
    close(sync_ms * synced, 1000.0, 0.02);
}

/// Threads of one file system share the commits of its journal. Alone, a thread writes for 1 ms and commits for 2. Of four,
/// some write while the others' commit is under way, and are in the next one: each is through in two commits.
#[test]
fn threads_share_the_commits_of_a_journal() {
    let rate = |threads: u32| {
        let mut job = jobs::fio(0, threads, 1, 2_000_000_000);
        let fio = jobs::device(&mut job).fio.as_mut().expect("a fio job");
        fio.size_bytes = 16 << 20;
        fio.sync = Some(Sync {
            every: 1,
            data_only: false,
            journal_writes: 2,
        });
        simulate(&job).expect("valid").per_operation["write"].ops_per_s
    };
    let (one, four) = (rate(1), rate(4));
    assert!((one - 1e3 / 3.0).abs() < 1.0, "{one} by one thread");
    assert!((four - 4e3 / 4.0).abs() < 1.0, "{four} by four threads");
}

/// Two sections at the same time share the disk's limit, a rate is kept, and a mean of block sizes is moved.
#[test]
fn sections_share_a_disk_and_keep_their_rates() {
    let mut job = jobs::fio(jobs::ALL_READS, 1, 32, 20_000_000_000);
    let device = jobs::device(&mut job);
    let fio = device.fio.as_mut().expect("a fio job");
    fio.name = "whole".to_owned();
    let mut slow = fio.clone();
    (slow.name, slow.rate_iops, slow.depth) = ("slow".to_owned(), 50, 4);
    slow.block_bytes = 65_536;
    let share = |block_bytes, share_ppm| BlockShare {
        block_bytes,
        share_ppm,
    };
    slow.split = vec![share(4096, 500_000), share(65_536, 500_000)];
    device.beside.push(slow);
    let report = simulate(&job).expect("valid");
    let rate = |name: &str| report.per_operation[name].ops_per_s;
    near(rate("slow read"), 50.0, 1.0);
    assert!((rate("whole read") + rate("slow read") - report.ops_per_s).abs() < 1e-6);
}

/// Buffered: a reader in order has what the kernel read ahead, and a writer goes as fast as the disk at last.
#[test]
fn through_the_page_cache_a_stream_goes_at_the_disks_rate() {
    let rate = |read_ppm, buffered: bool, depth| {
        let mut job = jobs::fio(read_ppm, 1, depth, 5_000_000_000);
        let fio = jobs::device(&mut job).fio.as_mut().expect("a fio job");
        fio.random = false;
        fio.buffered = buffered.then_some(Buffered {
            read_ahead_bytes: 131_072,
        });
        simulate(&job).expect("valid").ops_per_s
    };
    let (ahead, one) = (
        rate(jobs::ALL_READS, true, 1),
        rate(jobs::ALL_READS, false, 1),
    );
    assert!(
        ahead > 8.0 * one,
        "{ahead} against {one} without reading ahead"
    );
    assert!(rate(0, true, 1) > 8.0 * rate(0, false, 1));
}
