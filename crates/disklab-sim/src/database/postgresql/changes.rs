//! What a change of a row does to pages and to the log.

use crate::database::postgresql::checkpoint::Checkpoints;
use crate::database::postgresql::plan::{Access, Plan};
use crate::job::{AccessKind, PostgresqlSettings, RowDraw};

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
    /// Pages in which a row that changes finds room, a bit each.
    ///
    /// A fill packs pages. The first row of a page that changes goes elsewhere; once it is dead its room is taken by the
    /// next one that changes. **Source:** README.HOT of PostgreSQL.
    roomy: Vec<u64>,
    /// By relation: the page that new rows go to, and how many it has.
    tails: Vec<(u32, u64)>,
    first_new: u64,
    new_pages: u64,
    taken: u64,
}

impl Changes {
    /// A server that has just been filled.
    pub fn new(settings: &PostgresqlSettings, plan: &Plan, images: bool) -> Changes {
        let pages = plan.pages + plan.growth;
        let mut changes = Changes {
            log: 0,
            checkpoints: Checkpoints::new(settings, pages, images),
            roomy: vec![0; pages.div_ceil(64) as usize],
            tails: Vec::new(),
            first_new: plan.pages,
            new_pages: plan.growth,
            taken: 0,
        };
        changes.tails = plan.relations.iter().map(|_| (0, 0)).collect();
        for relation in 0..plan.relations.len() {
            changes.tails[relation] = (changes.new_page(), 0);
        }
        changes
    }

    /// A page behind all others. **Divergence:** when the room for them is used up, they begin again.
    fn new_page(&mut self) -> u32 {
        let page = self.first_new + self.taken % self.new_pages;
        self.taken += 1;
        page as u32
    }

    /// Writes the record of a commit; returns where the log has to be on the disk.
    pub fn commit(&mut self) -> u64 {
        self.log += COMMIT_BYTES;
        self.log
    }

    /// Changes a row as an access does; returns the pages that changed. `indexed`: its indexes get an entry in any case.
    pub fn row(&mut self, plan: &Plan, access: &Access, row: u64, indexed: bool) -> Changed {
        let relation = access.relation as usize;
        let layout = &plan.relations[relation];
        let leaf = layout.leaf_of(row);
        let Some(page) = layout.page_of(row) else {
            // A secondary index: its entry.
            self.write(leaf, layout.entry_bytes, layout.image_bytes().1);
            return [Some(leaf), None, None];
        };
        let (page_image, leaf_image) = layout.image_bytes();
        match access.kind {
            AccessKind::Read => [None; 3],
            AccessKind::Lock | AccessKind::Delete => {
                self.write(page, 0, page_image);
                [Some(page), None, None]
            }
            AccessKind::Update => {
                let (word, bit) = (page as usize / 64, 1 << (page % 64));
                let stays = self.roomy[word] & bit != 0;
                self.roomy[word] |= bit;
                // The columns that change; of a row that moves, all of it.
                let bytes = if stays {
                    access.log_bytes
                } else {
                    layout.row_bytes
                };
                self.write(page, bytes, page_image);
                let tail = (!stays).then(|| self.new_row(relation, layout.per_page()));
                let entry = indexed || !stays;
                if entry {
                    self.write(leaf, layout.entry_bytes, leaf_image);
                }
                [Some(page), tail, entry.then_some(leaf)]
            }
            AccessKind::Insert => {
                let tail = self.new_row(relation, layout.per_page());
                self.log += RECORD_BYTES + access.log_bytes;
                let leaf = if access.draw == RowDraw::Keys {
                    leaf
                } else {
                    layout.leaf_of(layout.rows - 1)
                };
                self.write(leaf, layout.entry_bytes, leaf_image);
                [Some(tail), Some(leaf), None]
            }
        }
    }

    /// A record of a change, and the image of the page with the first one since a checkpoint began.
    fn write(&mut self, page: u32, bytes: u64, image_bytes: u64) {
        self.log += RECORD_BYTES + bytes;
        if self.checkpoints.changes(page) {
            self.log += image_bytes;
        }
    }

    /// Puts a row behind the others; returns its page, which has no image in the log while it is new.
    fn new_row(&mut self, relation: usize, per_page: u64) -> u32 {
        if self.tails[relation].1 >= per_page {
            self.tails[relation] = (self.new_page(), 0);
        }
        self.tails[relation].1 += 1;
        self.tails[relation].0
    }
}
