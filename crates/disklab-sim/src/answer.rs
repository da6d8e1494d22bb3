//! From a line of JSON to the lines that answer it: what the engine and the page's simulator share.

use disklab_disk::Refusal;
use serde_json::{Value, json};

use crate::cell::{Job, simulate_all};
use crate::job::Fidelity;

/// The answers to one job, one for each of its cells, and whether it was accepted. `fidelity`: instead of the job's own.
pub fn answers(line: &str, fidelity: Option<Fidelity>) -> (Vec<Value>, bool) {
    let mut job: Job = match serde_json::from_str(line) {
        Ok(job) => job,
        Err(error) => return (vec![unreadable(line, &error)], false),
    };
    if let Some(fidelity) = fidelity {
        job.fidelity = fidelity;
    }
    match simulate_all(&job) {
        Ok(reports) => {
            let answer = |report| {
                let mut answer = json!(report);
                answer["event"] = json!("cell");
                answer
            };
            (reports.into_iter().map(answer).collect(), true)
        }
        Err(refusal) => {
            let reasons = reasons(&refusal);
            let cells = std::iter::once(job.cell).chain(job.then.iter().map(|next| next.cell));
            let refused =
                cells.map(|cell| json!({"event": "refused", "cell": cell, "reasons": reasons}));
            (refused.collect(), false)
        }
    }
}

fn unreadable(line: &str, error: &serde_json::Error) -> Value {
    let reason = json!({
        "place": "job",
        "value": format!("column {}", error.column()),
        "rule": error.to_string(),
        "way_out": "give a job as in docs/contracts/7-simulated-cells.md",
    });
    // The number may be there although something else is wrong.
    let cell = serde_json::from_str::<Value>(line)
        .ok()
        .and_then(|value| value.get("cell").cloned());
    json!({"event": "refused", "cell": cell, "reasons": [reason]})
}

fn reasons(refusal: &Refusal) -> Vec<Value> {
    let parts = refusal.reasons.iter().map(|reason| {
        json!({
            "place": reason.place,
            "value": reason.value,
            "rule": reason.rule,
            "way_out": reason.way_out,
        })
    });
    parts.collect()
}
