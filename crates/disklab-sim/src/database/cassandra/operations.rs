//! Operations on rows beside reading and writing whole ones.

use serde::{Deserialize, Serialize};

/// Operations beside reads and writes of whole rows, each as its share in parts per million.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OtherOperations {
    /// Writes of rows that were not there.
    pub insert_ppm: u32,
    /// Writes of one column.
    pub update_ppm: u32,
    /// Deletes of a row.
    pub delete_ppm: u32,
    /// Reads of 1 to `scan_rows` rows that follow each other.
    pub scan_ppm: u32,
    /// Reads of a row that a write of it follows.
    pub read_modify_write_ppm: u32,
    /// Rows of a scan at most; each number from one on is as likely.
    pub scan_rows: u32,
    /// CPU of a replica for each further row of a scan beside that for its bytes, in nanoseconds.
    pub scan_row_cpu_ns: u64,
}

impl OtherOperations {
    /// All shares together.
    pub fn sum(&self) -> u32 {
        let read = self.scan_ppm.saturating_add(self.read_modify_write_ppm);
        let changed = self.update_ppm.saturating_add(self.delete_ppm);
        read.saturating_add(changed).saturating_add(self.insert_ppm)
    }
}
