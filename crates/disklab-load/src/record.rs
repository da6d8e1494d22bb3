//! Latencies as histograms: of an interval, and of the run. Memory does not grow with the run.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use disklab_units::{Duration, Instant};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

/// What histograms tell apart: a microsecond to an hour, three digits. Shorter and longer ones count as these.
const LOWEST: Duration = Duration::from_micros(1);
const HIGHEST: Duration = Duration::from_secs(3_600);
const DIGITS: u8 = 3;

/// Latencies of operations, in nanoseconds. Histograms of any runs and generators add up exactly.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Latencies {
        let bounds = Histogram::new_with_bounds(LOWEST.as_nanos(), HIGHEST.as_nanos(), DIGITS);
        Latencies(bounds.expect("the bounds are constants that the crate accepts"))
    }
}

impl Latencies {
    /// Counts one.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(latency.as_nanos());
    }

    /// Adds all of another one's.
    pub fn add(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        if !self.0.is_empty() {
            self.0.reset();
        }
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that this share of them does not exceed; none when there are none.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        (!self.0.is_empty()).then(|| Duration::from_nanos(self.0.value_at_quantile(share)))
    }

    /// The longest, to three digits.
    pub fn longest(&self) -> Option<Duration> {
        (!self.0.is_empty()).then(|| Duration::from_nanos(self.0.max()))
    }

    /// The mean, in nanoseconds.
    pub fn mean_ns(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.mean())
    }

    /// HdrHistogram's own interchange form: V2, deflated, base64. Every HdrHistogram library reads it.
    pub fn to_base64(&self) -> String {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.0, &mut bytes)
            .expect("writing to memory does not fail");
        STANDARD.encode(bytes)
    }
}

/// What happened to one kind of operation.
#[derive(Clone, Debug, Default)]
pub struct KindRecord {
    /// From the intended start to the end; of those that succeeded.
    pub response: Latencies,
    /// From the sending to the end. Kept only where starts are decided beforehand: elsewhere it is the same.
    pub service: Latencies,
    /// Operations that failed. They have no latency: a time-out's length says nothing about the database.
    pub failed: u64,
}

/// What happened in a span of time.
#[derive(Clone, Debug)]
pub struct Record {
    /// Each kind of operation.
    pub kinds: Vec<KindRecord>,
    /// From the intended start to the sending, where starts are decided beforehand.
    pub lateness: Latencies,
    /// Failures by kind.
    pub errors: Vec<(Cow<'static, str>, u64)>,
    /// What was said at the last failure.
    pub last_error: Option<String>,
}

impl Record {
    /// Nothing yet, of `kinds` kinds.
    pub fn new(kinds: usize) -> Record {
        Record {
            kinds: vec![KindRecord::default(); kinds],
            lateness: Latencies::default(),
            errors: Vec::new(),
            last_error: None,
        }
    }

    /// Counts a failure.
    pub fn fail(&mut self, operation: usize, kind: Cow<'static, str>, text: String) {
        self.kinds[operation].failed += 1;
        self.count_errors(kind, 1);
        self.last_error = Some(text);
    }

    fn count_errors(&mut self, kind: Cow<'static, str>, count: u64) {
        match self.errors.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, sum)) => *sum += count,
            None => self.errors.push((kind, count)),
        }
    }

    /// Adds another one's.
    pub fn add(&mut self, other: &Record) {
        for (own, other) in self.kinds.iter_mut().zip(&other.kinds) {
            own.response.add(&other.response);
            own.service.add(&other.service);
            own.failed += other.failed;
        }
        self.lateness.add(&other.lateness);
        for (kind, count) in &other.errors {
            self.count_errors(kind.clone(), *count);
        }
        if other.last_error.is_some() {
            self.last_error.clone_from(&other.last_error);
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        for kind in &mut self.kinds {
            kind.response.clear();
            kind.service.clear();
            kind.failed = 0;
        }
        self.lateness.clear();
        self.errors.clear();
        self.last_error = None;
    }

    /// Operations that succeeded.
    pub fn done(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.response.count()).sum()
    }

    /// Operations that failed.
    pub fn failed(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.failed).sum()
    }

    /// Failures of one kind.
    pub fn errors_of(&self, kind: &str) -> u64 {
        self.errors
            .iter()
            .find(|(known, _)| *known == kind)
            .map_or(0, |(_, count)| *count)
    }

    /// Response times of all kinds together.
    pub fn response(&self) -> Latencies {
        let mut all = Latencies::default();
        for kind in &self.kinds {
            all.add(&kind.response);
        }
        all
    }
}

/// A record of an interval that has ended.
#[derive(Debug)]
pub struct Interval {
    /// What happened.
    pub record: Record,
    /// Its start.
    pub from: Instant,
    /// Its end.
    pub to: Instant,
    /// Operations under way at its end.
    pub in_flight: u64,
    /// Processor time of the process so far.
    pub cpu: Duration,
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::Deserializer;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ends_of_the_range_hold_what_lies_beyond() {
        let mut latencies = Latencies::default();
        latencies.record(Duration::from_nanos(1));
        latencies.record(Duration::from_secs(7_200));
        assert_eq!(latencies.count(), 2);
        assert!(latencies.quantile(0.1) < Some(Duration::from_micros(1)));
        let hour = latencies.longest().unwrap().as_nanos() as f64;
        assert!((hour / 3.6e12 - 1.0).abs() < 1e-3, "{hour}");
    }

    proptest! {
        #[test]
        fn parts_merge_into_exactly_the_whole(
            values in proptest::collection::vec((0u64..4_000_000_000_000, 0usize..3), 0..300),
        ) {
            let mut whole = Latencies::default();
            let mut parts = vec![Latencies::default(); 3];
            for (value, part) in values {
                whole.record(Duration::from_nanos(value));
                parts[part].record(Duration::from_nanos(value));
            }
            let mut merged = Latencies::default();
            for part in &parts {
                merged.add(part);
            }
            prop_assert_eq!(merged.to_base64(), whole.to_base64());
        }

        #[test]
        fn the_text_holds_every_count(values in proptest::collection::vec(1_000u64..3_600_000_000_000, 1..200)) {
            let mut latencies = Latencies::default();
            for value in &values {
                latencies.record(Duration::from_nanos(*value));
            }
            let bytes = STANDARD.decode(latencies.to_base64()).unwrap();
            let read: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
            prop_assert_eq!(read.len(), values.len() as u64);
            for value in values {
                prop_assert!(read.count_at(value) > 0);
            }
        }
    }
}
