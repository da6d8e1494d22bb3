//! The two statements on a table of rows.

use bytes::BufMut;

use super::frames::{Answer, Request, Rows};
use crate::job::{Consistency, Cql, Job, Rows as AskedRows};
use crate::keys::Key;
use crate::versions::Version;
use crate::workloads::rows::{Content, Step};
use crate::workloads::{Failure, MISSING_ROW, WRONG_ROW};

/// Statements on `key bigint PRIMARY KEY, c0 blob, c1 blob, ...`, and what their answers have to be.
pub struct Statements {
    /// `keyspace.table`.
    pub table: String,
    /// Text of the SELECT.
    pub select: String,
    /// Text of the INSERT.
    pub insert: String,
    consistency: u16,
    content: Content,
    verify: bool,
}

/// What a connection calls the statements.
#[derive(Debug, Default)]
pub struct Ids {
    /// Of the SELECT.
    pub select: Vec<u8>,
    /// Of the INSERT.
    pub insert: Vec<u8>,
}

impl Statements {
    /// The statements of a job.
    pub fn new(job: &Job, target: &Cql, rows: &AskedRows) -> Statements {
        let names: Vec<String> = (0..rows.columns)
            .map(|column| format!("c{column}"))
            .collect();
        let table = format!("{}.{}", target.keyspace, target.table);
        let names = names.join(", ");
        Statements {
            select: format!("SELECT {names} FROM {table} WHERE key = ?"),
            insert: format!(
                "INSERT INTO {table} (key, {names}) VALUES (?{})",
                ", ?".repeat(rows.columns as usize)
            ),
            table,
            consistency: code(target.consistency),
            content: Content::of(job, rows),
            verify: rows.verify,
        }
    }

    /// Appends the request of a step.
    pub fn request(&self, step: Step, ids: &Ids, stream: u16, out: &mut Vec<u8>) {
        let (key, version, id, columns) = match step {
            Step::Read(key) => (key, 0, &ids.select, 0),
            Step::Write(key, version) => (key, version, &ids.insert, self.content.columns()),
        };
        let values = columns as u16 + 1;
        let mut request = Request::execute(out, stream, id, self.consistency, values);
        request.value(|out| out.put_i64(key as i64));
        for column in 0..columns {
            request.value(|out| self.content.write(key, version, column, out));
        }
        request.end();
    }

    /// Compares an answer with what it has to be; returns the version of the row that was read.
    pub fn examine(&self, step: Step, answer: &Answer<'_>) -> Result<Version, Failure> {
        match (step, answer) {
            (Step::Read(key), Answer::Rows(rows)) => self.examine_row(key, *rows),
            (Step::Write(..), Answer::Void) => Ok(0),
            (_, Answer::Error(code, text)) => Err(refused(*code, text)),
            (_, other) => Err(Failure {
                kind: "protocol".into(),
                text: format!("{step:?} was answered by {other:?}"),
            }),
        }
    }

    fn examine_row(&self, key: Key, mut rows: Rows<'_>) -> Result<Version, Failure> {
        let wrong = |text: String| Failure {
            kind: WRONG_ROW.into(),
            text: format!("key {key}: {text}"),
        };
        match rows.count {
            0 => {
                return Err(Failure {
                    kind: MISSING_ROW.into(),
                    text: format!("key {key}: no such row"),
                });
            }
            1 => {}
            more => return Err(wrong(format!("{more} rows"))),
        }
        if !self.verify {
            return Ok(0);
        }
        if rows.columns != self.content.columns() {
            return Err(wrong(format!("{} columns", rows.columns)));
        }
        let mut version = 0;
        for column in 0..rows.columns {
            let bytes = rows
                .value()
                .ok_or_else(|| wrong(format!("it ends before column c{column}")))?
                .ok_or_else(|| wrong(format!("column c{column} is null")))?;
            if column == 0 {
                version = self.content.version(key, bytes);
            }
            if !self.content.matches(key, version, column, bytes) {
                return Err(wrong(format!("column c{column} is not what was written")));
            }
        }
        Ok(version)
    }
}

/// **Source:** the native protocol, section 3.
fn code(consistency: Consistency) -> u16 {
    match consistency {
        Consistency::Any => 0,
        Consistency::One => 1,
        Consistency::Two => 2,
        Consistency::Three => 3,
        Consistency::Quorum => 4,
        Consistency::All => 5,
        Consistency::LocalQuorum => 6,
        Consistency::EachQuorum => 7,
        Consistency::LocalOne => 0xA,
    }
}

/// What an error is counted as. **Source:** the native protocol, section 9.
pub fn refused(code: u32, text: &str) -> Failure {
    let kind = match code {
        0x0000 => "server_error",
        0x000A => "protocol",
        0x1000 => "unavailable",
        0x1001 => "overloaded",
        0x1002 => "bootstrapping",
        0x1003 => "truncating",
        0x1100 => "write_timeout",
        0x1200 => "read_timeout",
        0x1300 => "read_failure",
        0x1500 => "write_failure",
        0x2200 => "invalid",
        0x2500 => "unprepared",
        _ => "refused",
    };
    Failure {
        kind: kind.into(),
        text: format!("{kind} ({code:#06x}): {text}"),
    }
}
