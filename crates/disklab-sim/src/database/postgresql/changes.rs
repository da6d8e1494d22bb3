//! What a change of a row does to pages and to the log.

use std::collections::HashMap;

use super::job::PostgresqlSettings;
use crate::database::postgresql::checkpoint::Checkpoints;
use crate::database::postgresql::packing::ROOM_BYTES;
use crate::database::postgresql::plan::{Access, Layout, Plan};
use crate::job::{AccessKind, RowDraw};

/// Bytes of a record of the log beside the row's own. **Source:** xlogrecord.h: 24 of a record, 20 of a block that it names;
/// 14 of heap's `xl_heap_update`.
const RECORD_BYTES: u64 = 60;

/// Bytes of the record of a commit. **Source:** `pg_waldump` of our own servers (15): 34, aligned to 8.
const COMMIT_BYTES: u64 = 40;

/// Pages that a change of one row marks at most: where it was, where it is, its leaf.
pub type Changed = [Option<u32>; 3];

/// Where changes go.
#[derive(Debug)]
pub struct Changes {
    /// End of the log, in bytes since the beginning of the run.
    pub log: u64,
    /// When pages are written, and have images.
    pub checkpoints: Checkpoints,
    /// By page, where it is not as the fill left it: bytes in which a row that changes finds room for its next version.
    ///
    /// A fill packs pages. A row that finds no room goes elsewhere; once its old version is dead, that room is taken by
    /// the next one that changes in this page, whose own old version makes room again. **Source:** README.HOT of PostgreSQL.
    free: HashMap<u32, u16>,
    /// Rows that have gone elsewhere, by relation and number: the page where they are.
    moved: HashMap<(u32, u64), u32>,
    /// By relation and session: the page that its new rows go to. **Source:** `RelationGetTargetBlock` of hio.c, which
    /// each backend has for itself.
    targets: HashMap<(u32, u32), u32>,
    first_new: u64,
    /// Of each page behind the fill: the file it is in.
    files: Vec<u32>,
    taken: u64,
    /// None: nothing will be replayed.
    pub history: Option<History>,
}

/// What the log holds since the last checkpoint that has ended began, which is what a replay begins with.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The log's position there.
    pub redo: u64,
    /// Records since then.
    pub records: Vec<Record>,
    /// Records since the beginning of the run.
    pub count: u64,
    /// Position and number of records when the checkpoint under way began.
    begun: Option<(u64, usize)>,
}

impl History {
    /// Records from a position on.
    pub fn of(redo: u64, records: Vec<Record>) -> History {
        History {
            redo,
            records,
            ..History::default()
        }
    }
}

/// A record of the log, as far as a replay minds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Of a commit.
    Commit,
    /// A change of a page that the replay has to have.
    Change(u32),
    /// A page as a whole: its image, or its first row.
    Whole(u32),
}

impl Changes {
    /// A server that has just been filled.
    pub fn new(settings: &PostgresqlSettings, plan: &Plan, images: bool) -> Changes {
        let pages = plan.pages + plan.growth;
        Changes {
            log: 0,
            checkpoints: Checkpoints::new(settings, pages, images),
            free: HashMap::new(),
            moved: HashMap::new(),
            targets: HashMap::new(),
            first_new: plan.pages,
            files: vec![0; plan.growth as usize],
            taken: 0,
            history: None,
        }
    }

    /// The same, which keeps what a replay would need, if there may be one.
    pub fn kept_if(self, is_kept: bool) -> Changes {
        Changes {
            history: is_kept.then(History::default),
            ..self
        }
    }

    /// Begins a checkpoint with the pages that have changed.
    pub fn begin_checkpoint(&mut self, now: u64, pages: Vec<u32>) {
        self.checkpoints.begin(now, self.log, pages);
        if let Some(history) = &mut self.history {
            history.begun = Some((self.log, history.records.len()));
        }
    }

    /// The checkpoint under way has ended: a replay would begin where it began.
    pub fn end_checkpoint(&mut self) {
        self.checkpoints.end();
        if let Some(history) = &mut self.history
            && let Some((redo, count)) = history.begun.take()
        {
            history.redo = redo;
            history.records.drain(..count);
        }
    }

    /// The server has started, with a checkpoint at the end of its log.
    pub fn start(&mut self, now: u64) {
        self.checkpoints.start(now, self.log);
        if let Some(history) = &mut self.history {
            *history = History {
                redo: self.log,
                count: history.count,
                ..History::default()
            };
        }
    }

    /// Notes a record of the log.
    fn record(&mut self, record: Record) {
        if let Some(history) = &mut self.history {
            history.records.push(record);
            history.count += 1;
        }
    }

    /// The page of a row, unless its relation is an index alone.
    #[inline]
    pub fn page_of(&self, plan: &Plan, relation: u32, row: u64) -> Option<u32> {
        if !self.moved.is_empty()
            && let Some(&page) = self.moved.get(&(relation, row))
        {
            return Some(page);
        }
        plan.relations[relation as usize].page_of(row)
    }

    /// The file of a page.
    #[inline]
    pub fn file_of(&self, plan: &Plan, page: u32) -> usize {
        match u64::from(page).checked_sub(self.first_new) {
            Some(new) => self.files[new as usize] as usize,
            None => plan.file_of(page),
        }
    }

    /// How many pages there are by now.
    pub fn pages(&self) -> u64 {
        self.first_new + self.taken.min(self.files.len() as u64)
    }

    /// Adds a page behind the last one of a relation. **Divergence:** when the room for them is used up, they begin again.
    pub fn new_page(&mut self, plan: &Plan, relation: u32) -> u32 {
        let new = self.taken % self.files.len() as u64;
        let page = (self.first_new + new) as u32;
        self.taken += 1;
        self.files[new as usize] = plan.relations[relation as usize].last_file;
        self.free.insert(page, ROOM_BYTES as u16);
        page
    }

    /// Makes a page the one that a session's new rows go to.
    pub fn take(&mut self, relation: u32, session: u32, page: u32) {
        self.targets.insert((relation, session), page);
    }

    /// The page that a session's new rows go to.
    pub fn target(&self, relation: u32, session: u32) -> Option<u32> {
        self.targets.get(&(relation, session)).copied()
    }

    /// Whether a page behind the fill has room for so many bytes.
    pub fn has_room(&self, page: u32, bytes: u64) -> bool {
        let free = self.free.get(&page);
        free.is_some_and(|&free| u64::from(free) >= bytes)
    }

    /// Bytes that are free in a page with a row of the fill, or behind it.
    fn free_of(&self, layout: &Layout, page: u32) -> u16 {
        let free = self.free.get(&page).copied();
        free.unwrap_or_else(|| layout.free_of(page))
    }

    /// Whether the change that an access makes needs a page with room for the row, and the session has none.
    pub fn wants_page(&self, plan: &Plan, access: &Access, row: u64, session: u32) -> bool {
        let relation = &plan.relations[access.relation as usize];
        let bytes = relation.bytes_of(row);
        let moves = match access.kind {
            AccessKind::Insert => relation.per_page() > 0,
            AccessKind::Update => self
                .page_of(plan, access.relation, row)
                .is_some_and(|page| u64::from(self.free_of(relation, page)) < bytes),
            _ => false,
        };
        let target = self.target(access.relation, session);
        moves && !target.is_some_and(|page| self.has_room(page, bytes))
    }

    /// Writes the record of a commit; returns where the log has to be on the disk.
    pub fn commit(&mut self) -> u64 {
        self.log += COMMIT_BYTES;
        self.record(Record::Commit);
        self.log
    }

    /// Changes a row as an access does; returns the pages that changed.
    ///
    /// A session that [`wants_page`](Self::wants_page) has got one before.
    pub fn row(&mut self, plan: &Plan, access: &Access, row: u64, session: u32) -> Changed {
        let layout = &plan.relations[access.relation as usize];
        let leaf = layout.leaf_of(row);
        let Some(page) = self.page_of(plan, access.relation, row) else {
            // A secondary index: its entry.
            self.write(leaf, layout.entry_bytes, layout.image_bytes().1);
            return [Some(leaf), None, None];
        };
        let (page_image, leaf_image) = layout.image_bytes();
        let row_bytes = layout.bytes_of(row);
        let log_bytes = access.log_bytes * row_bytes / layout.row_bytes.max(1);
        match access.kind {
            AccessKind::Read => [None; 3],
            AccessKind::Lock | AccessKind::Delete => {
                self.write(page, 0, page_image);
                [Some(page), None, None]
            }
            AccessKind::Update => {
                let free = self.free_of(layout, page);
                let stays = u64::from(free) >= row_bytes;
                // The columns that change; of a row that moves, all of it.
                let bytes = if stays { log_bytes } else { row_bytes };
                self.write(page, bytes, page_image);
                let target = (!stays).then(|| {
                    // Its old version will be dead, and nothing else makes room here.
                    self.free.insert(page, free + row_bytes as u16);
                    let target = self.put(access.relation, session, row_bytes);
                    self.moved.insert((access.relation, row), target);
                    target
                });
                let entry = access.indexed || !stays;
                if entry {
                    self.write(leaf, layout.entry_bytes, leaf_image);
                }
                [Some(page), target, entry.then_some(leaf)]
            }
            AccessKind::Insert => {
                let target = self.put(access.relation, session, row_bytes);
                self.log += RECORD_BYTES + log_bytes;
                let leaf = if access.draw == RowDraw::Keys {
                    leaf
                } else {
                    layout.leaf_of(layout.rows - 1)
                };
                self.write(leaf, layout.entry_bytes, leaf_image);
                [Some(target), Some(leaf), None]
            }
        }
    }

    /// A record of a change, and the image of the page with the first one since a checkpoint began.
    fn write(&mut self, page: u32, bytes: u64, image_bytes: u64) {
        self.log += RECORD_BYTES + bytes;
        let has_image = self.checkpoints.changes(page);
        if has_image {
            self.log += image_bytes;
        }
        self.record(if has_image {
            Record::Whole(page)
        } else {
            Record::Change(page)
        });
    }

    /// Puts a row into the session's page; returns it. It has no image in the log while it is new.
    fn put(&mut self, relation: u32, session: u32, bytes: u64) -> u32 {
        let page = self.targets[&(relation, session)];
        let free = self.free.entry(page).or_default();
        let is_new = u64::from(*free) == ROOM_BYTES;
        *free = free.saturating_sub(bytes as u16);
        self.record(if is_new {
            Record::Whole(page)
        } else {
            Record::Change(page)
        });
        page
    }
}
