//! Statements one by one, for readiness, schema and system tables: JSON lines in, JSON lines out.

use std::collections::HashSet;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::LocalSet;

use crate::clients::cql::resolve;
use crate::clients::cql::talk::{Access, NotOpen, Talk};
use crate::clients::cql::values::Shown;
use crate::job::{Consistency, Login};
use crate::output::say;

/// Whom to ask.
#[derive(Clone, Debug)]
pub struct Options {
    /// `HOST:PORT` of some of its nodes.
    pub contact_points: Vec<String>,
    /// Whether those are asked alone, and not the nodes that they know.
    pub only: bool,
    /// The longest that a statement, or a connection, may take.
    pub timeout: Duration,
    /// Consistency level of the statements.
    pub consistency: Consistency,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// Certificates (PEM) that a node's must come from; none: any is believed.
    pub ca_file: Option<PathBuf>,
}

/// A line: something to ask, or who asks from then on.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Login(Login),
    Statement(String),
    Measure { measure: String },
}

/// How long the nodes may take to agree on a schema that has changed. **Source:** the Java driver's default.
const AGREE_WITHIN: Duration = Duration::from_secs(10);
const AGREE_LOOK: Duration = Duration::from_millis(200);

/// Answers each line of `input`, a JSON string with one CQL statement, by one line: `{"rows": [...]}` or
/// `{"error": ...}`. A line `{"user": ..., "password": ...}` says who asks from there on; secrets do not belong on a
/// command line. A line `{"measure": "SELECT ..."}` is answered by the value of the first column and by how many bytes
/// the others have (null where there is none): rows of other people are measured, and not shown. Connects at the first statement, and again at the next one when that fails, so that asking again
/// is waiting for readiness. Returns whether every statement was answered with rows.
pub fn run(
    options: &Options,
    input: impl BufRead,
    mut output: impl Write,
) -> std::io::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = LocalSet::new();
    let mut talk = None;
    let mut login = None;
    let mut all_well = true;
    for line in input.lines() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let answer = match serde_json::from_str(&line) {
            Ok(Line::Login(named)) => {
                (talk, login) = (None, Some(named));
                Ok(json!({ "rows": [] }))
            }
            Ok(Line::Statement(statement)) => {
                let asked = (statement, Shown::Values);
                local.block_on(&runtime, answer(options, login.as_ref(), &mut talk, asked))
            }
            Ok(Line::Measure { measure }) => {
                let asked = (measure, Shown::Lengths);
                local.block_on(&runtime, answer(options, login.as_ref(), &mut talk, asked))
            }
            // What was said may be a secret: it is not repeated.
            Err(_) => Err("a line is a JSON string with one statement, or who asks".into()),
        };
        all_well &= answer.is_ok();
        let answer = answer.unwrap_or_else(|error| json!({ "error": error }));
        say(&mut output, &answer);
    }
    Ok(all_well)
}

async fn answer(
    options: &Options,
    login: Option<&Login>,
    kept: &mut Option<Talk>,
    (statement, shown): (String, Shown),
) -> Result<Value, String> {
    let within = |doing: &str| {
        let points = options.contact_points.join(", ");
        format!("{points}: {doing} within {:?}", options.timeout)
    };
    let mut talk = match kept.take() {
        Some(talk) => talk,
        None => {
            let points = resolve(&options.contact_points);
            let access = Access::new(login.cloned(), options.tls, options.ca_file.as_deref())
                .map_err(|error| error.as_one().to_string())?;
            let opening = Talk::open_any(&points, &access);
            let opened = tokio::time::timeout(options.timeout, opening).await;
            let opened = opened.map_err(|_| within("no connection"))?;
            opened.map_err(|error| error.to_string())?
        }
    };
    let asking = talk.query(&statement, options.consistency);
    let asked = tokio::time::timeout(options.timeout, asking).await;
    let (table, schema_changed) = match asked.map_err(|_| within("no answer"))? {
        Ok(answer) => answer,
        Err(NotOpen::Refused(why)) => {
            *kept = Some(talk);
            return Err(why.text);
        }
        Err(why) => return Err(why.to_string()),
    };
    let is_settled = !schema_changed || options.only || {
        // Those that do not agree by then are away, and agree when they come back.
        let agreed = tokio::time::timeout(AGREE_WITHIN, agree(&mut talk)).await;
        matches!(agreed, Ok(Ok(())))
    };
    // A question without its answer leaves nothing behind.
    *kept = is_settled.then_some(talk);
    Ok(json!({ "rows": table.json(shown) }))
}

/// Waits until every node has the same schema.
async fn agree(talk: &mut Talk) -> Result<(), NotOpen> {
    loop {
        let mut versions = HashSet::new();
        for place in ["local", "peers"] {
            let statement = format!("SELECT schema_version FROM system.{place}");
            let (table, _) = talk.query(&statement, Consistency::One).await?;
            versions.extend(table.rows.into_iter().flatten().flatten());
        }
        if versions.len() <= 1 {
            return Ok(());
        }
        tokio::time::sleep(AGREE_LOOK).await;
    }
}
