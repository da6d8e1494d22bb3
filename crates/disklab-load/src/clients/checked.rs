//! Rows as SQL has them, compared with what was written.

use crate::content::Content;
use crate::job::share::Share;
use crate::job::workload::Rows;
use crate::keys::Key;
use crate::versions::Version;
use crate::workloads::{Failure, MISSING_ROW, WRONG_ROW};

/// What the rows of a job must be.
pub struct Checked {
    /// What was written.
    pub content: Content,
    verify: bool,
    /// Rows that were filled, where none is deleted.
    whole_rows: Option<u64>,
}

impl Checked {
    /// Those of a job.
    pub fn of(share: &Share, rows: &Rows) -> Checked {
        Checked {
            content: rows.content(share.seed),
            verify: rows.verify,
            whole_rows: (rows.operations.delete <= 0.0).then_some(rows.rows),
        }
    }

    /// The same where a write of what is there already would change nothing, so that each has a version of its own.
    pub fn with_versions(self) -> Checked {
        let content = self.content.with_versions();
        Checked { content, ..self }
    }

    /// The columns of a row; None inside: NULL.
    pub fn row<'a>(
        &self,
        key: Key,
        row: impl Iterator<Item = Option<&'a [u8]>>,
    ) -> Result<Version, Failure> {
        if !self.verify {
            return Ok(0);
        }
        let (mut columns, mut version) = (0, 0);
        for bytes in row {
            let bytes = bytes.ok_or_else(|| wrong(key, format!("column c{columns} is null")))?;
            if columns == self.content.columns() {
                return Err(wrong(key, format!("more than {columns} columns")));
            }
            if columns == 0 {
                version = self.content.version(key, bytes);
            }
            if !self.content.matches(key, version, columns, bytes) {
                let text = format!("column c{columns} is not what was written");
                return Err(wrong(key, text));
            }
            columns += 1;
        }
        if columns == self.content.columns() {
            return Ok(version);
        }
        Err(wrong(key, format!("{columns} columns")))
    }

    /// Row `number` of a scan from `from` on, without its key: keys follow each other where none is deleted.
    pub fn scanned<'a>(
        &self,
        from: Key,
        number: u64,
        key: Option<Key>,
        row: impl Iterator<Item = Option<&'a [u8]>>,
    ) -> Result<(), Failure> {
        let key = key.ok_or_else(|| wrong(from, "a scan has a row without a key".into()))?;
        let due = from + number;
        if self.whole_rows.is_some_and(|rows| key != due && due < rows) {
            return Err(missing(due));
        }
        self.row(key, row).map(|_| ())
    }

    /// The end of a scan of at most `most` rows, which had `count`.
    pub fn scan_ended(&self, key: Key, most: u32, count: u64) -> Result<(), Failure> {
        let most = u64::from(most);
        let whole = self.whole_rows;
        let due = whole.map_or(0, |all| most.min(all.saturating_sub(key)));
        match count {
            more if more > most => Err(wrong(key, format!("a scan of {most} has {more} rows"))),
            less if less < due => Err(missing(key + less)),
            _ => Ok(()),
        }
    }
}

/// What is there is not what was written.
fn wrong(key: Key, text: String) -> Failure {
    Failure {
        kind: WRONG_ROW.into(),
        text: format!("key {key}: {text}"),
    }
}

/// A row that was written is not there.
pub fn missing(key: Key) -> Failure {
    Failure {
        kind: MISSING_ROW.into(),
        text: format!("key {key}: no such row"),
    }
}
