//! Statements one by one, for readiness, schema and system tables: JSON lines in, JSON lines out.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;

use scylla::client::session::Session;
use scylla::deserialize::row::{ColumnIterator, RawColumn};
use scylla::deserialize::value::DeserializeValue;
use scylla::response::query_result::QueryResult;
use scylla::value::{CqlValue, Row};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::clients::cql::driver::{Access, Reach, connect, resolve};
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

/// What is said of a row.
#[derive(Clone, Copy)]
enum Told {
    Values,
    Lengths,
}

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
    let mut session = None;
    let mut login = None;
    let mut all_well = true;
    for line in input.lines() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let answer = match serde_json::from_str(&line) {
            Ok(Line::Login(named)) => {
                (session, login) = (None, Some(named));
                Ok(json!({ "rows": [] }))
            }
            Ok(Line::Statement(statement)) => {
                let asked = (statement, Told::Values);
                runtime.block_on(answer(options, login.as_ref(), &mut session, asked))
            }
            Ok(Line::Measure { measure }) => {
                let asked = (measure, Told::Lengths);
                runtime.block_on(answer(options, login.as_ref(), &mut session, asked))
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
    session: &mut Option<Session>,
    (statement, told): (String, Told),
) -> Result<Value, String> {
    let session = match session {
        Some(session) => session,
        None => {
            let points = resolve(&options.contact_points);
            let limit = Some(options.timeout);
            let reach = if options.only {
                Reach::ContactPoints
            } else {
                Reach::Cluster
            };
            let access = Access::new(login.cloned(), options.tls, options.ca_file.as_deref())
                .map_err(|error| error.as_one().to_string())?;
            let opening = connect(&points, reach, None, options.consistency, limit, &access);
            let opened = tokio::time::timeout(options.timeout, opening).await;
            let opened = opened.map_err(|_| {
                let points = options.contact_points.join(", ");
                format!("{points}: no connection within {:?}", options.timeout)
            })?;
            session.insert(opened.map_err(|error| error.to_string())?)
        }
    };
    let answer = session.query_unpaged(statement, &[]).await;
    rows(answer.map_err(|error| error.to_string())?, told)
}

fn rows(answer: QueryResult, told: Told) -> Result<Value, String> {
    if !answer.is_rows() {
        return Ok(json!({ "rows": [] }));
    }
    let answer = answer
        .into_rows_result()
        .map_err(|error| error.to_string())?;
    let names: Vec<String> = answer
        .column_specs()
        .iter()
        .map(|spec| spec.name().to_owned())
        .collect();
    let mut rows = Vec::new();
    if matches!(told, Told::Lengths) {
        let found = answer.rows::<ColumnIterator<'_, '_>>();
        for row in found.map_err(|error| error.to_string())? {
            let cells = row.map_err(|error| error.to_string())?;
            let cells: Result<Vec<Value>, String> = cells.map(measured).collect();
            let columns = names.iter().cloned().zip(cells?);
            rows.push(Value::from(columns.collect::<Map<_, _>>()));
        }
        return Ok(json!({ "rows": rows }));
    }
    for row in answer.rows::<Row>().map_err(|error| error.to_string())? {
        let row = row.map_err(|error| error.to_string())?;
        let columns = names.iter().cloned().zip(row.columns.into_iter().map(cell));
        rows.push(Value::from(columns.collect::<Map<_, _>>()));
    }
    Ok(json!({ "rows": rows }))
}

/// The value of a row's first column; how many bytes any other has.
fn measured<Error: std::fmt::Display>(
    column: Result<RawColumn<'_, '_>, Error>,
) -> Result<Value, String> {
    let column = column.map_err(|error| error.to_string())?;
    if column.index == 0 {
        let value = Option::<CqlValue>::deserialize(column.spec.typ(), column.slice);
        return value.map(cell).map_err(|error| error.to_string());
    }
    Ok(column
        .slice
        .map_or(Value::Null, |slice| json!(slice.as_slice().len())))
}

fn cell(value: Option<CqlValue>) -> Value {
    value.map_or(Value::Null, |value| json_of(&value))
}

/// A value as JSON. What JSON has no form for is text, as CQL writes it.
fn json_of(value: &CqlValue) -> Value {
    match value {
        CqlValue::Ascii(text) | CqlValue::Text(text) => json!(text),
        CqlValue::Boolean(yes) => json!(yes),
        CqlValue::TinyInt(number) => json!(number),
        CqlValue::SmallInt(number) => json!(number),
        CqlValue::Int(number) => json!(number),
        CqlValue::BigInt(number) => json!(number),
        CqlValue::Counter(number) => json!(number.0),
        CqlValue::Float(number) => json!(number),
        CqlValue::Double(number) => json!(number),
        CqlValue::Timestamp(since) => json!(since.0),
        CqlValue::Uuid(id) => json!(id.to_string()),
        CqlValue::Timeuuid(id) => json!(id.to_string()),
        CqlValue::Inet(address) => json!(address.to_string()),
        CqlValue::List(items) | CqlValue::Set(items) | CqlValue::Vector(items) => {
            items.iter().map(json_of).collect()
        }
        CqlValue::Tuple(items) => items.iter().cloned().map(cell).collect(),
        CqlValue::Map(entries) => {
            let entry = |(key, value): &(CqlValue, CqlValue)| {
                let key = json_of(key);
                let name = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                (name, json_of(value))
            };
            Value::from(entries.iter().map(entry).collect::<Map<_, _>>())
        }
        CqlValue::UserDefinedType { fields, .. } => {
            let field =
                |(name, value): &(String, Option<CqlValue>)| (name.clone(), cell(value.clone()));
            Value::from(fields.iter().map(field).collect::<Map<_, _>>())
        }
        CqlValue::Empty => Value::Null,
        other => json!(other.to_string()),
    }
}
