//! What a run says: one JSON object a line. Written by a thread of its own, so that neither a slow
//! reader nor the packing of histograms holds up an operation.

use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender};

use disklab_units::{Duration, Instant};
use serde_json::{Map, Value, json};

use crate::record::{Interval, KindRecord, Latencies, Record};
use crate::workloads::{MISSING_ROW, Outcome, WRONG_ROW};

/// What the loop tells the writer.
pub enum Said {
    /// An interval has ended.
    Interval(Box<Interval>),
    /// The run has ended; its intervals have been said.
    Done(End),
}

/// How a run ended.
pub struct End {
    /// When its last operation ended.
    pub elapsed: Duration,
    /// Arrivals of the open loop that were never sent.
    pub unsent: u64,
    /// Operations sent whose end nobody waited for.
    pub abandoned: u64,
    /// Whether a signal ended it.
    pub interrupted: bool,
    /// When it started.
    pub started_unix_ns: u64,
    /// Processor time of the process during the run.
    pub cpu: Duration,
    /// What the workload says.
    pub outcome: Option<Outcome>,
}

/// The writer of a run.
pub struct Writer<W> {
    kinds: &'static [&'static str],
    paced: bool,
    whole: Record,
    out: W,
}

impl<W: Write> Writer<W> {
    /// A writer for a run whose workload has these kinds of operations.
    ///
    /// `paced` says whether starts are decided beforehand, so that response and service times differ.
    pub fn new(kinds: &'static [&'static str], paced: bool, out: W) -> Writer<W> {
        Writer {
            kinds,
            paced,
            whole: Record::new(kinds.len()),
            out,
        }
    }

    /// Writes what is said until the run is done or nobody speaks any more; gives used records back.
    pub fn run(mut self, said: &Receiver<Said>, used: &SyncSender<Record>) {
        while let Ok(said) = said.recv() {
            match said {
                Said::Interval(interval) => {
                    self.whole.add(&interval.record);
                    let line = self.progress(&interval);
                    say(&mut self.out, &line);
                    let mut record = interval.record;
                    record.clear();
                    // There are never more records than the channel has room for.
                    let _ = used.try_send(record);
                }
                Said::Done(end) => {
                    let line = self.done(end);
                    say(&mut self.out, &line);
                    return;
                }
            }
        }
    }

    fn progress(&self, interval: &Interval) -> Value {
        let record = &interval.record;
        let response = record.response();
        let span = interval.to.saturating_since(interval.from);
        json!({
            "event": "progress",
            "t_s": seconds(interval.to.saturating_since(Instant::EPOCH)),
            "operations": self.whole.done(),
            "errors": self.whole.failed(),
            "ops_per_s": rate(record.done(), span),
            "p50_ms": milliseconds(response.quantile(0.5)),
            "p99_ms": milliseconds(response.quantile(0.99)),
            "late_ns_p99": record.lateness.quantile(0.99).map(Duration::as_nanos),
            "in_flight": interval.in_flight,
            "cpu_ns": interval.cpu.as_nanos(),
            "last_error": record.last_error,
            "histograms": self.packed(record, |kind| &kind.response),
        })
    }

    fn done(&self, end: End) -> Value {
        let whole = &self.whole;
        let operations: Map<String, Value> = self
            .kinds
            .iter()
            .zip(&whole.kinds)
            .filter(|(_, kind)| kind.response.count() + kind.failed > 0)
            .map(|(name, kind)| (name.to_string(), summary(kind, end.elapsed)))
            .collect();
        let errors: Map<String, Value> = whole
            .errors
            .iter()
            .map(|(kind, count)| (kind.to_string(), json!(count)))
            .collect();
        let response = self.packed(whole, |kind| &kind.response);
        let mut done = json!({
            "event": "done",
            "elapsed_s": seconds(end.elapsed),
            "ops_per_s": rate(whole.done(), end.elapsed),
            "operations": operations,
            "service": if self.paced { self.packed(whole, |kind| &kind.service) } else { response.clone() },
            "response": response,
            "lateness": self.paced.then(|| whole.lateness.to_base64()),
            "unsent": end.unsent,
            "abandoned": end.abandoned,
            "errors": errors,
            "last_error": whole.last_error,
            "wrong_rows": whole.errors_of(WRONG_ROW),
            "missing_rows": whole.errors_of(MISSING_ROW),
            "cpu_ns": end.cpu.as_nanos(),
            "started_unix_ns": end.started_unix_ns,
            "interrupted": end.interrupted,
        });
        if let Some(outcome) = end.outcome {
            let (key, value) = outcome(whole, end.elapsed);
            done[key] = value;
        }
        done
    }

    fn packed(&self, record: &Record, which: impl Fn(&KindRecord) -> &Latencies) -> Value {
        let packed: Map<String, Value> = self
            .kinds
            .iter()
            .zip(&record.kinds)
            .filter(|(_, kind)| kind.response.count() > 0)
            .map(|(name, kind)| (name.to_string(), which(kind).to_base64().into()))
            .collect();
        packed.into()
    }
}

fn summary(kind: &KindRecord, elapsed: Duration) -> Value {
    let response = &kind.response;
    json!({
        "count": response.count(),
        "failed": kind.failed,
        "ops_per_s": rate(response.count(), elapsed),
        "mean_ms": response.mean_ns().map(|ns| ns / 1e6),
        "p50_ms": milliseconds(response.quantile(0.5)),
        "p95_ms": milliseconds(response.quantile(0.95)),
        "p99_ms": milliseconds(response.quantile(0.99)),
        "p99.9_ms": milliseconds(response.quantile(0.999)),
        "max_ms": milliseconds(response.longest()),
    })
}

/// Writes a line. A closed output is no reason to stop a load.
pub fn say(out: &mut impl Write, line: &Value) {
    let mut text = line.to_string();
    text.push('\n');
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn seconds(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e9
}

fn milliseconds(span: Option<Duration>) -> Option<f64> {
    span.map(|span| span.as_nanos() as f64 / 1e6)
}

fn rate(count: u64, span: Duration) -> f64 {
    if span == Duration::ZERO {
        0.0
    } else {
        count as f64 / seconds(span)
    }
}
