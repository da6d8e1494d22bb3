//! The statements on a table of rows.

use bytes::BufMut;

use super::frames::{Answer, Request, Rows};
use crate::content::{Content, Step};
use crate::job::share::Share;
use crate::job::target::{Consistency, Cql};
use crate::job::workload::Rows as AskedRows;
use crate::keys::Key;
use crate::versions::Version;
use crate::workloads::{Failure, MISSING_ROW, WRONG_ROW};

/// Statements on `key bigint PRIMARY KEY, c0 blob, c1 blob, ...`, and what their answers have to be.
pub struct Statements {
    /// `keyspace.table`.
    pub table: String,
    /// Texts, by number; those that the job's operations do not need are none.
    pub texts: Vec<Option<String>>,
    consistency: u16,
    content: Content,
    verify: bool,
    /// Whether every row that was filled is there: none is deleted.
    is_whole: bool,
}

/// Numbers of the statements; those that write one column follow, by column.
const SELECT: usize = 0;
const INSERT: usize = 1;
const DELETE: usize = 2;
const SCAN: usize = 3;
const UPDATE: usize = 4;

/// What a connection calls the statements, by number.
#[derive(Debug, Default)]
pub struct Ids(pub Vec<Vec<u8>>);

impl Statements {
    /// The statements of a job.
    pub fn new(share: &Share, target: &Cql, rows: &AskedRows) -> Statements {
        let names: Vec<String> = (0..rows.columns)
            .map(|column| format!("c{column}"))
            .collect();
        let table = format!("{}.{}", target.keyspace, target.table);
        let all = names.join(", ");
        let asked = &rows.operations;
        let mut texts = vec![
            Some(format!("SELECT {all} FROM {table} WHERE key = ?")),
            Some(format!(
                "INSERT INTO {table} (key, {all}) VALUES (?{})",
                ", ?".repeat(names.len())
            )),
            (asked.delete > 0.0).then(|| format!("DELETE FROM {table} WHERE key = ?")),
            // In the order of the ring, which is the order of the files. As YCSB's client has it.
            (asked.scan > 0.0).then(|| {
                format!("SELECT key, {all} FROM {table} WHERE token(key) >= token(?) LIMIT ?")
            }),
        ];
        if asked.update > 0.0 {
            let update = |name| format!("UPDATE {table} SET {name} = ? WHERE key = ?");
            texts.extend(names.iter().map(|name| Some(update(name))));
        }
        Statements {
            texts,
            table,
            consistency: code(target.consistency),
            content: rows.content(share.seed),
            verify: rows.verify,
            is_whole: asked.delete <= 0.0,
        }
    }

    /// Appends the request of a step.
    pub fn request(&self, step: Step, ids: &Ids, stream: u16, out: &mut Vec<u8>) {
        let begin = |out, number: usize, values| {
            Request::execute(out, stream, &ids.0[number], self.consistency, values)
        };
        let key_of = |key: Key| move |out: &mut Vec<u8>| out.put_i64(key as i64);
        match step {
            Step::Read(key) | Step::ReadModifyWrite(key) => {
                let mut request = begin(out, SELECT, 1);
                request.value(key_of(key));
                request.end();
            }
            Step::Delete(key) => {
                let mut request = begin(out, DELETE, 1);
                request.value(key_of(key));
                request.end();
            }
            Step::Scan(key, rows) => {
                let mut request = begin(out, SCAN, 2);
                request.value(key_of(key));
                request.value(|out| out.put_i32(rows as i32));
                request.end();
            }
            Step::Update(key, column) => {
                let mut request = begin(out, UPDATE + column as usize, 2);
                request.value(|out| self.content.write(key, 0, column, out));
                request.value(key_of(key));
                request.end();
            }
            Step::Insert(key) => self.request(Step::Write(key, 0), ids, stream, out),
            Step::Write(key, version) => {
                let columns = self.content.columns();
                let mut request = begin(out, INSERT, columns as u16 + 1);
                request.value(key_of(key));
                for column in 0..columns {
                    request.value(|out| self.content.write(key, version, column, out));
                }
                request.end();
            }
        }
    }

    /// Compares an answer with what it has to be; returns the version of the row that was read.
    pub fn examine(&self, step: Step, answer: &Answer<'_>) -> Result<Version, Failure> {
        match (step, answer) {
            (Step::Read(key), Answer::Rows(rows)) => self.examine_row(key, *rows),
            (Step::Scan(key, most), Answer::Rows(rows)) => self.examine_scan(key, most, *rows),
            (Step::Write(..) | Step::Update(..) | Step::Delete(_), Answer::Void) => Ok(0),
            (_, Answer::Error(code, text)) => Err(refused(*code, text)),
            (_, other) => Err(Failure {
                kind: "protocol".into(),
                text: format!("{step:?} was answered by {other:?}"),
            }),
        }
    }

    fn examine_row(&self, key: Key, mut rows: Rows<'_>) -> Result<Version, Failure> {
        match rows.count {
            0 => return Err(missing(key)),
            1 => {}
            more => return Err(wrong(key, &format!("{more} rows"))),
        }
        if !self.verify {
            return Ok(0);
        }
        if rows.columns != self.content.columns() {
            return Err(wrong(key, &format!("{} columns", rows.columns)));
        }
        self.examine_columns(key, &mut rows)
    }

    /// Rows in the order of the ring: the first is the one asked for, unless it was deleted.
    fn examine_scan(&self, from: Key, most: u32, mut rows: Rows<'_>) -> Result<Version, Failure> {
        if rows.count > most {
            return Err(wrong(
                from,
                &format!("a scan of {most} has {} rows", rows.count),
            ));
        }
        if rows.columns != self.content.columns() + 1 {
            return Err(wrong(from, &format!("{} columns", rows.columns)));
        }
        if rows.count == 0 && self.is_whole {
            return Err(missing(from));
        }
        for number in 0..rows.count {
            let bytes = rows
                .value()
                .flatten()
                .and_then(|bytes| bytes.try_into().ok());
            let bytes = bytes.ok_or_else(|| wrong(from, "a scan has a row without a key"))?;
            let key = u64::from_be_bytes(bytes);
            if number == 0 && key != from && self.is_whole {
                return Err(missing(from));
            }
            if self.verify {
                self.examine_columns(key, &mut rows)?;
            } else {
                rows.skip(self.content.columns());
            }
        }
        Ok(0)
    }

    /// The columns of a row, which are next in an answer.
    fn examine_columns(&self, key: Key, rows: &mut Rows<'_>) -> Result<Version, Failure> {
        let mut version = 0;
        for column in 0..self.content.columns() {
            let bytes = rows
                .value()
                .ok_or_else(|| wrong(key, &format!("it ends before column c{column}")))?
                .ok_or_else(|| wrong(key, &format!("column c{column} is null")))?;
            if column == 0 {
                version = self.content.version(key, bytes);
            }
            if !self.content.matches(key, version, column, bytes) {
                let text = format!("column c{column} is not what was written");
                return Err(wrong(key, &text));
            }
        }
        Ok(version)
    }
}

fn wrong(key: Key, text: &str) -> Failure {
    Failure {
        kind: WRONG_ROW.into(),
        text: format!("key {key}: {text}"),
    }
}

fn missing(key: Key) -> Failure {
    Failure {
        kind: MISSING_ROW.into(),
        text: format!("key {key}: no such row"),
    }
}

/// **Source:** the native protocol, section 3.
pub fn code(consistency: Consistency) -> u16 {
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
        0x0100 => "bad_credentials",
        0x1000 => "unavailable",
        0x1001 => "overloaded",
        0x1002 => "bootstrapping",
        0x1003 => "truncating",
        0x1100 => "write_timeout",
        0x1200 => "read_timeout",
        0x1300 => "read_failure",
        0x1500 => "write_failure",
        0x2000 => "syntax_error",
        0x2100 => "unauthorized",
        0x2200 => "invalid",
        0x2400 => "already_exists",
        0x2500 => "unprepared",
        _ => "refused",
    };
    Failure {
        kind: kind.into(),
        text: format!("{} ({code:#06x}): {text}", kind.replace('_', " ")),
    }
}
