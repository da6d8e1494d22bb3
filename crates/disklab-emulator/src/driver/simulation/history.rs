//! What the bytes of a disk may be, by what its program was told.

use std::collections::BTreeMap;

/// The unit in which content is told apart: a logical block of the smaller kind.
pub const UNIT: usize = 512;

/// Content that nobody wrote, or that was discarded.
pub const ZEROS: u64 = 0;

/// A place in the order of what the program saw.
pub type Moment = u64;

/// How an I/O ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub at: Moment,
    pub well: bool,
}

/// A write or discard of one volume.
#[derive(Clone, Debug)]
struct Write {
    /// What it wrote; [`ZEROS`] for a discard.
    content: u64,
    first: usize,
    last: usize,
    submitted: Moment,
    ended: Option<Ended>,
    /// A promise has been given that nothing takes it back.
    durable: bool,
}

/// What was done to a volume since the last time that its content was known for certain.
#[derive(Clone, Debug)]
pub struct History {
    /// Content of each unit then, and when.
    known: Vec<u64>,
    since: Moment,
    writes: BTreeMap<u64, Write>,
}

impl History {
    /// A volume of zeros.
    pub fn new(bytes: u64) -> History {
        History {
            known: vec![ZEROS; bytes as usize / UNIT],
            since: 0,
            writes: BTreeMap::new(),
        }
    }

    /// Notes a write or discard by its number.
    pub fn begin(&mut self, number: u64, content: u64, offset: u64, len: u32, now: Moment) {
        let first = offset as usize / UNIT;
        let write = Write {
            content,
            first,
            last: first + len as usize / UNIT,
            submitted: now,
            ended: None,
            durable: false,
        };
        self.writes.insert(number, write);
    }

    /// Notes its end. `durable`: with its end it is promised to stay.
    pub fn end(&mut self, number: u64, well: bool, durable: bool, now: Moment) {
        if let Some(write) = self.writes.get_mut(&number) {
            write.ended = Some(Ended { at: now, well });
            write.durable = durable && well;
        }
    }

    /// What had ended well before `before` is promised to stay: a FLUSH that came then has ended well.
    pub fn flushed(&mut self, before: Moment) {
        for write in self.writes.values_mut() {
            write.durable |= write
                .ended
                .is_some_and(|ended| ended.well && ended.at < before);
        }
    }

    /// Checks what a read found that was submitted at `submitted`: nothing may have been overwritten by a write that
    /// had ended before the read came.
    pub fn check_read(&self, offset: u64, data: &[u8], submitted: Moment) -> Result<(), String> {
        let supersedes = |write: &Write| {
            write
                .ended
                .is_some_and(|ended| ended.well && ended.at < submitted)
        };
        self.check(offset, data, supersedes, "a read")
    }

    /// Checks what was found after a failure: nothing may have been overwritten by a write that was promised to stay.
    /// From then on the content is known.
    pub fn check_failure(&mut self, data: &[u8], now: Moment) -> Result<(), String> {
        self.check(0, data, |write| write.durable, "the failure")?;
        self.settle(data, now);
        Ok(())
    }

    /// From now on the content is known. Writes under way may still change it.
    pub fn settle(&mut self, data: &[u8], now: Moment) {
        self.known = data.chunks_exact(UNIT).map(content_of).collect();
        self.since = now;
        self.writes.retain(|_, write| write.ended.is_none());
    }

    fn check(
        &self,
        offset: u64,
        data: &[u8],
        supersedes: impl Fn(&Write) -> bool,
        what: &str,
    ) -> Result<(), String> {
        for (index, found) in data.chunks_exact(UNIT).enumerate() {
            let unit = offset as usize / UNIT + index;
            let found = content_of(found);
            let touching = || {
                let writes = self.writes.iter();
                writes.filter(move |(_, write)| (write.first..write.last).contains(&unit))
            };
            // What had ended by `ended` is gone if something came after it that counts.
            let gone = |ended: Option<Moment>| {
                ended.and_then(|ended| {
                    touching().find(|(_, write)| supersedes(write) && ended < write.submitted)
                })
            };
            let mut over = None;
            let mut fits = |ended: Option<Moment>| match gone(ended) {
                None => true,
                Some((number, _)) => {
                    over = Some(*number);
                    false
                }
            };
            let known = self.known[unit] == found && fits(Some(self.since));
            let written = || {
                touching()
                    .filter(|(_, write)| write.content == found)
                    .any(|(_, write)| fits(write.ended.map(|ended| ended.at)))
            };
            if !known && !{ written }() {
                let all: Vec<String> = touching()
                    .map(|(number, write)| format!("    {number}: {write:?}"))
                    .collect();
                return Err(format!(
                    "{what} found {found} at byte {}, which {}; known at {}: {}; writes of it:\n{}",
                    unit * UNIT,
                    over.map_or("nobody wrote".to_owned(), |number| format!(
                        "write {number} had replaced"
                    )),
                    self.since,
                    self.known[unit],
                    all.join("\n")
                ));
            }
        }
        Ok(())
    }
}

/// Fills data with content.
pub fn fill(data: &mut [u8], content: u64) {
    for word in data.chunks_exact_mut(8) {
        word.copy_from_slice(&content.to_le_bytes());
    }
}

/// The content of a unit; `u64::MAX` when it is torn.
fn content_of(unit: &[u8]) -> u64 {
    let (words, _) = unit.as_chunks::<8>();
    let first = u64::from_le_bytes(words[0]);
    let whole = words.iter().all(|word| *word == words[0]);
    if whole { first } else { u64::MAX }
}
