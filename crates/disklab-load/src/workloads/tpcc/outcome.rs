//! What a stage says at its end, and where a run is not what the standard asks.

use disklab_units::Duration;
use serde_json::{Map, Value, json};

use super::terminals::{MANNERS, NAMES};
use crate::job::Tpcc;
use crate::record::Record;

/// The most new orders a minute of a warehouse. **Source:** clause 4.2.
const TPMC_OF_A_WAREHOUSE: f64 = 12.86;

/// **Source:** clause 5.5.2.1.
const LEAST_MEASUREMENT: Duration = Duration::from_secs(7_200);

/// The share of new orders with an unused item. **Source:** clause 2.4.1.4.
const ROLLED_BACK: f64 = 0.01;

/// By how much a share of so many transactions differs from what it was drawn with by chance: three standard deviations.
/// Of short runs nothing is said that a longer one would not show.
fn by_chance(share: f64, count: u64) -> f64 {
    3.0 * (share * (1.0 - share) / count.max(1) as f64).sqrt()
}

/// What any stage says.
#[derive(Clone, Debug)]
pub struct Said {
    warehouses: u32,
    terminals: u32,
    keying_and_thinking: bool,
    terminals_per_warehouse: u32,
}

/// What a run has counted beyond its histograms.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub rolled_back: u64,
    pub skipped_deliveries: u64,
    pub deliveries: u64,
    pub remote_payments: u64,
    pub remote_lines: u64,
    pub lines: u64,
    pub by_last_name: u64,
    /// Attempts that were undone by a serialization failure, and made again.
    pub serialization_retries: u64,
    /// Attempts that were undone because of a deadlock, and made again.
    pub deadlock_retries: u64,
}

impl Said {
    /// A stage as it was asked for, with so many connections.
    pub fn new(asked: &Tpcc, connections: u32) -> Said {
        Said {
            warehouses: asked.warehouses,
            terminals: asked.terminals(connections),
            keying_and_thinking: asked.keying_and_thinking,
            terminals_per_warehouse: asked.terminals_per_warehouse,
        }
    }

    /// All fields; `more` has those that the stage adds.
    pub fn with(&self, stage: &str, more: Value) -> Value {
        let mut all = json!({
            "stage": stage,
            "warehouses": self.warehouses,
            "rows": {},
            "terminals": self.terminals,
            "keying_and_thinking": self.keying_and_thinking,
            "tpmc": null,
            "efficiency_ratio": null,
            "mix_ratio": {},
            "rolled_back": 0,
            "skipped_deliveries": 0,
            "remote_payments": 0,
            "remote_lines": 0,
            "lines": 0,
            "by_last_name": 0,
            "retries": {},
            "remarks": [],
            "conditions": [],
        });
        if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
            all.extend(more);
        }
        all
    }

    /// What a run says.
    pub fn run(&self, counts: Counts, record: &Record, elapsed: Duration) -> Value {
        let done = record.done();
        let minutes = elapsed.as_nanos() as f64 / 60e9;
        let new_orders = record.kinds[0].response.count();
        let tpmc = (minutes > 0.0).then(|| new_orders as f64 / minutes);
        let most = TPMC_OF_A_WAREHOUSE * f64::from(self.warehouses);
        let mix: Map<String, Value> = NAMES
            .iter()
            .zip(&record.kinds)
            .filter(|_| done > 0)
            .map(|(name, kind)| {
                let share = kind.response.count() as f64 / done as f64;
                ((*name).to_owned(), share.into())
            })
            .collect();
        self.with(
            "run",
            json!({
                "tpmc": tpmc,
                "efficiency_ratio": tpmc.map(|tpmc| tpmc / most),
                "mix_ratio": mix,
                "rolled_back": counts.rolled_back,
                "skipped_deliveries": counts.skipped_deliveries,
                "remote_payments": counts.remote_payments,
                "remote_lines": counts.remote_lines,
                "lines": counts.lines,
                "by_last_name": counts.by_last_name,
                "retries": {
                    "40001": counts.serialization_retries,
                    "40P01": counts.deadlock_retries,
                },
                "remarks": self.remarks(counts, record, elapsed),
            }),
        )
    }

    /// Where the run is not what the standard asks. Never empty: results that nobody audited are no TPC results.
    fn remarks(&self, counts: Counts, record: &Record, elapsed: Duration) -> Vec<String> {
        let mut found = Vec::new();
        let mut unless = |holds: bool, text: String| {
            if !holds {
                found.push(format!("not compliant: {text}"));
            }
        };
        unless(
            self.keying_and_thinking,
            "no keying and think times (clause 5.2.5): efficiency above 100 % says nothing".into(),
        );
        let ten = !self.keying_and_thinking || self.terminals_per_warehouse == 10;
        let own = self.terminals_per_warehouse;
        unless(
            ten,
            format!("{own} terminals a warehouse instead of 10 (clause 4.2.2)"),
        );
        unless(
            elapsed >= LEAST_MEASUREMENT,
            format!("measured for {elapsed}, not for 2 hours (clause 5.5.2.1)"),
        );
        unless(
            false,
            "READ COMMITTED: the rows that a transaction changes are locked, but what it reads may \
             change before its end (clause 3.4)"
                .into(),
        );
        unless(
            false,
            "deliveries are done at once and not queued (clause 2.7.2)".into(),
        );
        let failed = record.failed();
        unless(failed == 0, format!("{failed} transactions failed"));
        self.shares(counts, record, &mut unless);
        unless(false, "nobody has audited it: no TPC result".into());
        found
    }

    /// Remarks on shares and response times.
    fn shares(&self, counts: Counts, record: &Record, unless: &mut impl FnMut(bool, String)) {
        let done = record.done();
        if done == 0 {
            return;
        }
        for (manner, kind) in MANNERS.iter().zip(&record.kinds) {
            let share = kind.response.count() as f64 / done as f64;
            // New orders have no least share: they are what is counted.
            let least = if manner.name == "new_order" {
                0.0
            } else {
                manner.share
            };
            unless(
                share >= least - by_chance(least, done),
                format!(
                    "{:.2} % {} in the mix, less than {:.0} % (clause 5.2.3)",
                    share * 100.0,
                    manner.name,
                    least * 100.0
                ),
            );
            let nine_in_ten = kind.response.quantile(0.9);
            unless(
                nine_in_ten.is_none_or(|time| time <= manner.limit),
                format!(
                    "a tenth of {} took longer than {} (clause 5.2.5.3)",
                    manner.name, manner.limit
                ),
            );
        }
        let orders = record.kinds[0].response.count();
        let rolled_back = counts.rolled_back as f64 / orders.max(1) as f64;
        unless(
            (rolled_back - ROLLED_BACK).abs() <= by_chance(ROLLED_BACK, orders),
            format!(
                "{:.2} % of the new orders rolled back instead of 1 % (clause 2.4.1.4)",
                rolled_back * 100.0
            ),
        );
        // Source: clause 2.7.4.2: a hundredth of the deliveries may find districts without orders.
        let districts = counts.deliveries * u64::from(super::scale::DISTRICTS);
        unless(
            counts.skipped_deliveries * 100 <= districts,
            format!(
                "{} of {districts} districts had nothing to deliver (clause 2.7.4.2)",
                counts.skipped_deliveries
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Stage;

    fn asked(keying_and_thinking: bool) -> Tpcc {
        Tpcc {
            warehouses: 10,
            stage: Stage::Run,
            keying_and_thinking,
            terminals_per_warehouse: 10,
        }
    }

    /// A record of so many transactions of each kind, a millisecond each.
    fn record(counts: [u64; 5], failed: u64) -> Record {
        let mut record = Record::new(5);
        for (kind, count) in record.kinds.iter_mut().zip(counts) {
            for _ in 0..count {
                kind.response.record(Duration::from_millis(1));
            }
        }
        for _ in 0..failed {
            record.fail(0, "40001 serialization_failure".into(), String::new());
        }
        record
    }

    fn remarks(said: &Value) -> String {
        said["remarks"].to_string()
    }

    #[test]
    fn new_orders_a_minute_leave_failures_out() {
        let said = Said::new(&asked(true), 5);
        let counts = Counts {
            rolled_back: 45,
            deliveries: 400,
            serialization_retries: 7,
            ..Counts::default()
        };
        let record = record([4_500, 4_300, 400, 400, 400], 500);
        let run = said.run(counts, &record, Duration::from_secs(120));
        assert_eq!(run["tpmc"], 2_250.0);
        assert_eq!(run["efficiency_ratio"], 2_250.0 / 128.6);
        assert_eq!(run["mix_ratio"]["payment"], 0.43);
        assert_eq!(run["terminals"], 100);
        assert_eq!(run["retries"], json!({"40001": 7, "40P01": 0}));
        assert!(remarks(&run).contains("500 transactions failed"));
        assert!(!remarks(&run).contains("think times"));
        assert!(!remarks(&run).contains("in the mix"));
        assert!(!remarks(&run).contains("rolled back"));
    }

    #[test]
    fn what_is_not_compliant_is_said() {
        let said = Said::new(&asked(false), 5);
        let mut slow = record([5_000, 4_000, 400, 400, 200], 0);
        for _ in 0..1_000 {
            slow.kinds[1].response.record(Duration::from_secs(6));
        }
        let run = said.run(Counts::default(), &slow, Duration::from_secs(60));
        let remarks = remarks(&run);
        for part in [
            "no keying and think times",
            "not for 2 hours",
            "1.82 % stock_level in the mix",
            "a tenth of payment took longer",
            "0.00 % of the new orders rolled back",
            "no TPC result",
        ] {
            assert!(remarks.contains(part), "{part}: {remarks}");
        }
        assert_eq!(run["terminals"], 5);
    }
}
