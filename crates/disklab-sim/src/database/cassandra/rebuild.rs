//! Data that come to a node: streamed from other nodes, or replayed from its own commit log; and data that are read and
//! hashed for a repair.
//!
//! A piece is read at its source (what the page cache has needs no I/O), passes the source's throttle and link, costs
//! the receiver the time that one thread takes to write it into the page cache, and is written by the receiver's disk.
//! All of it goes through the same disks, links and cores as the load.
//!
//! **A repair** has each copy of the node's rows read from its first to its last, by one thread a node, which merges and
//! hashes them. **Source:** `ValidationManager` of Cassandra; `nodetool repair -full` compares all copies of a range at the
//! same time (`parallel`). **Divergence:** the copies are taken for equal, so nothing is streamed behind it; the hash trees
//! themselves (some MB a node) cost no network.

use disklab_disk::Op;
use disklab_disk::profile::HostProfile;

use super::Cassandra;
use super::links::Traffic;
use crate::bound::Before;
use crate::database::build::share;
use crate::database::cassandra::event::Event;
use crate::database::recovery::left_ns;
use crate::engine::Slab;
use crate::filelayout::PAGE_BYTES;
use crate::storage::{PendingIo, Purpose};

/// Bytes of a piece. **Source:** as of a background write: Premium SSD counts I/Os in units of 256 KiB.
const PIECE_BYTES: u64 = 256 << 10;
const PIECE_PAGES: u64 = PIECE_BYTES / PAGE_BYTES;

/// Pieces that a stream reads at a time: one is on its way out while the kernel reads the next one ahead.
const READ_AT_A_TIME: u32 = 2;

/// What a receiver writes before it waits for its disk, without `trickle_fsync`. **Source:** the interval that
/// `trickle_fsync` has by default, 10 MiB, which is what streams of ours were measured with.
const UNSYNCED_BYTES: u64 = 10 << 20;

/// How often a stream whose way is cut looks whether it is open again.
const CUT_LOOK_NS: u64 = 1_000_000_000;

/// Where a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// So many I/Os still read it.
    Reading(u32),
    /// It waits for the throttle of its source.
    Throttled,
    /// It is on the network.
    Sent,
    /// The receiver's thread writes it into the page cache, or hashes it.
    Taken,
    /// It is being written.
    Written,
}

/// What is done with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They are sent to another node.
    Stream,
    /// They are applied once more.
    Replay,
    /// They are hashed.
    Validation,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Stream => "stream",
            Kind::Replay => "replay",
            Kind::Validation => "validation",
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    stream: u32,
    bytes: u64,
    stage: Stage,
}

/// Data on their way from one node to another, or from its log to a node.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) source: u16,
    pub(super) target: u16,
    pub(super) kind: Kind,
    pub(super) rebuild: u32,
    /// Pieces in all, those that were begun, those at the source, and all under way.
    pieces: u64,
    begun: u64,
    at_source: u32,
    under_way: u64,
    pub(super) bytes: u64,
    /// When the receiver's thread is free.
    free_at: u64,
    /// Pages from one piece to the next in the source's table.
    stride: u64,
}

impl Stream {
    fn new(kind: Kind, source: usize, target: usize, bytes: u64) -> Stream {
        Stream {
            source: source as u16,
            target: target as u16,
            kind,
            rebuild: 0,
            pieces: bytes.div_ceil(PIECE_BYTES),
            begun: 0,
            at_source: 0,
            under_way: 0,
            bytes,
            free_at: 0,
            stride: PIECE_PAGES,
        }
    }

    /// The same over a table with so many pages.
    fn over(self, pages: u64) -> Stream {
        let stride = (pages / self.pieces.max(1)).max(1);
        Stream { stride, ..self }
    }
}

/// What comes back to one node.
#[derive(Clone, Debug)]
pub(super) struct Rebuild {
    pub(super) kind: Kind,
    pub(super) node: usize,
    pub(super) begun: u64,
    pub(super) ended: Option<u64>,
    pub(super) bytes: u64,
    pub(super) done: u64,
    /// Where the next piece is written.
    pub(super) cursor: u64,
    pub(super) sources: u32,
    /// What the source sends that sends most, and what the largest stream has.
    pub(super) most_from: u64,
    pub(super) largest: u64,
    /// What each node had done when it began.
    pub(super) before: Vec<Before>,
    pub(super) told: bool,
}

/// What the database itself allows: bytes a second; zero: unlimited.
#[derive(Clone, Copy, Debug)]
pub struct Throttles {
    /// `stream_throughput_outbound`.
    pub stream: u64,
    /// Of a repair's reading.
    pub validate: u64,
    /// Of one thread that merges and hashes.
    pub validate_thread: u64,
}

/// All of them.
#[derive(Clone)]
pub struct Rebuilds {
    pub(super) hosts: Vec<HostProfile>,
    pub(super) streams: Vec<Stream>,
    pieces: Slab<Piece>,
    pub(super) all: Vec<Rebuild>,
    /// The rebuild of each node that was begun last.
    last: Vec<Option<usize>>,
    /// When the throttles of each node let the next piece pass: of streams, of validation.
    allowed_at: [Vec<u64>; 2],
    pub(super) throttles: Throttles,
    lost_rows: u64,
}

impl Rebuilds {
    /// None yet, of so many nodes on such hosts.
    pub fn new(hosts: Vec<HostProfile>, nodes: usize, throttles: Throttles) -> Rebuilds {
        Rebuilds {
            hosts,
            streams: Vec::new(),
            pieces: Slab::default(),
            all: Vec::new(),
            last: vec![None; nodes],
            allowed_at: [vec![0; nodes], vec![0; nodes]],
            throttles,
            lost_rows: 0,
        }
    }

    /// Whether the last rebuild of a node has ended.
    pub fn is_done(&self, node: usize) -> bool {
        self.last[node].is_none_or(|at| self.all[at].ended.is_some())
    }

    /// Bytes that came to each node by the last rebuild of one.
    pub fn received(&self, node: usize) -> Vec<(usize, u64)> {
        let last = self.last[node].map(|at| at as u32);
        let streams = self.streams.iter().filter(|one| Some(one.rebuild) == last);
        let mut found: Vec<(usize, u64)> = Vec::new();
        for stream in streams.filter(|one| one.kind == Kind::Stream) {
            let target = usize::from(stream.target);
            match found.iter_mut().find(|known| known.0 == target) {
                Some(known) => known.1 += stream.bytes,
                None => found.push((target, stream.bytes)),
            }
        }
        found
    }

    /// How long a node's rebuild goes on at the rate that it had.
    pub fn left_ns(&self, now: u64, node: usize) -> u64 {
        let Some(at) = self.last[node] else { return 0 };
        let rebuild = &self.all[at];
        let left = rebuild.bytes - rebuild.done;
        left_ns(now, rebuild.begun, rebuild.done, left)
    }

    /// How long one source takes for so many bytes, at the rate that each has had in a node's rebuild.
    pub fn one_source_ns(&self, now: u64, node: usize, bytes: u64) -> u64 {
        let Some(at) = self.last[node] else { return 0 };
        let rebuild = &self.all[at];
        let spent = rebuild.ended.unwrap_or(now).saturating_sub(rebuild.begun);
        let each = u128::from(spent) * u128::from(rebuild.sources);
        (u128::from(bytes) * each / u128::from(rebuild.done.max(1))) as u64
    }

    /// Rows of which no copy was left when they should have been streamed.
    pub fn lost_rows(&self) -> u64 {
        self.lost_rows
    }

    fn add(&mut self, stream: Stream) {
        if stream.pieces > 0 {
            self.streams.push(stream);
        }
    }
}

impl Cassandra {
    /// Streams a node's data from the copies that are there.
    pub(super) fn begin_streams(&mut self, now: u64, node: usize) {
        let seat = self.seat(node);
        let may_send = |other: usize| self.may_send(usize::from(self.node_on(other as u8)));
        let (rows_from, lost) = self.ring.rows_from(seat, may_send);
        let sources = (0..self.nodes.len()).filter(|&one| rows_from[one] > 0);
        let handed =
            sources.map(|one| (usize::from(self.node_on(one as u8)), node, rows_from[one]));
        let handed = handed.collect();
        self.begin_moving(now, node, handed, lost);
    }

    /// Streams a node's data to the one that is to take its place in the ring.
    ///
    /// While both are there each row has a copy too many, so the one that is furthest on the ring loses it: it sends it to
    /// the new node. **Source:** `RangeStreamer` of Cassandra with `consistent.rangemovement`, which is on by default; so
    /// it was logged in our own rehearsal of 2026-11-25.
    pub(super) fn begin_taking_over(&mut self, now: u64, node: usize) {
        let seat = self.seat(node);
        let displaced = self.ring.displaced(seat);
        let others = displaced.iter().filter(|one| usize::from(one.0) != seat);
        let gives_back = self.bytes_of(node, others.map(|one| one.1).sum());
        if let Some(broken) = &mut self.broken {
            broken.seen[node].gives_back = gives_back;
        }
        let handed = displaced
            .into_iter()
            .map(|(from, rows)| (usize::from(self.node_on(from)), node, rows));
        let handed = handed.collect();
        self.begin_moving(now, node, handed, 0);
    }

    /// Streams what a node leaves behind, whose place another has: the copies that the furthest had lost for its sake.
    pub(super) fn begin_giving_back(&mut self, now: u64, node: usize) {
        let seat = self.seat(node);
        let displaced = self.ring.displaced(seat).into_iter();
        let handed = displaced
            .filter(|&(to, _)| usize::from(to) != seat)
            .map(|(to, rows)| (node, usize::from(self.node_on(to)), rows));
        let handed = handed.collect();
        self.begin_moving(now, node, handed, 0);
    }

    /// Streams what changes hands when a node joins, or leaves in order.
    pub(super) fn begin_handing(&mut self, now: u64, node: usize) {
        let seat = self.seat(node);
        let handed = self.ring.handed(seat).into_iter().map(|(from, to, rows)| {
            let (from, to) = (self.node_on(from), self.node_on(to));
            (usize::from(from), usize::from(to), rows)
        });
        let handed = handed.collect();
        self.begin_moving(now, node, handed, 0);
    }

    /// Has so many rows sent from nodes to nodes on behalf of one.
    fn begin_moving(&mut self, now: u64, node: usize, handed: Vec<(usize, usize, u64)>, lost: u64) {
        let streams = handed.into_iter().map(|(source, target, rows)| {
            let bytes = self.bytes_of(target, rows);
            let pages = self.nodes[source].machine.storage.layout().data_pages();
            Stream::new(Kind::Stream, source, target, bytes).over(pages)
        });
        let streams = streams.collect();
        self.begin_rebuild(now, node, Kind::Stream, streams);
        if let Some(broken) = &mut self.broken {
            broken.rebuilds.lost_rows += lost;
        }
    }

    /// Bytes that so many rows take in a node's table.
    fn bytes_of(&self, node: usize, rows: u64) -> u64 {
        let node = &self.nodes[node];
        let all = node.machine.storage.layout().data_pages() * PAGE_BYTES;
        share(all, rows, node.room_rows)
    }

    /// Replays so many bytes of a node's own commit log.
    pub(super) fn begin_replay(&mut self, now: u64, node: usize, bytes: u64) {
        let stream = Stream::new(Kind::Replay, node, node, bytes);
        self.begin_rebuild(now, node, Kind::Replay, vec![stream]);
    }

    /// Has every copy of a node's rows read and hashed.
    pub(super) fn begin_validation(&mut self, now: u64, node: usize) {
        let seat = self.seat(node);
        let able = (0..self.nodes.len())
            .filter(|&one| usize::from(self.node_on(self.seat(one) as u8)) == one)
            .filter(|&one| self.may_send(one));
        let streams = able.map(|one| {
            let rows = self.ring.shared_rows(seat, self.seat(one));
            let pages = self.nodes[one].machine.storage.layout().data_pages();
            Stream::new(Kind::Validation, one, one, self.bytes_of(one, rows)).over(pages)
        });
        let streams = streams.filter(|stream| stream.pieces > 0).collect();
        self.begin_rebuild(now, node, Kind::Validation, streams);
    }

    fn begin_rebuild(&mut self, now: u64, node: usize, kind: Kind, new: Vec<Stream>) {
        let bytes = new.iter().map(|stream| stream.bytes).sum();
        let mut sent = vec![0; self.nodes.len()];
        for stream in &new {
            sent[usize::from(stream.source)] += stream.bytes;
        }
        let nodes = self.nodes.iter();
        let rebuild = Rebuild {
            most_from: sent.iter().copied().max().unwrap_or(0),
            largest: new.iter().map(|stream| stream.bytes).max().unwrap_or(0),
            kind,
            node,
            begun: now,
            ended: (bytes == 0).then_some(now),
            bytes,
            done: 0,
            cursor: 0,
            sources: sent.iter().filter(|&&bytes| bytes > 0).count() as u32,
            before: nodes.map(|node| Before::of(now, &node.machine)).collect(),
            told: false,
        };
        let Some(broken) = &mut self.broken else {
            return;
        };
        let rebuilds = &mut broken.rebuilds;
        rebuilds.last[node] = Some(rebuilds.all.len());
        rebuilds.all.push(rebuild);
        let first = rebuilds.streams.len();
        let rebuild = rebuilds.all.len() as u32 - 1;
        for stream in new {
            rebuilds.add(Stream { rebuild, ..stream });
        }
        for number in first..rebuilds.streams.len() {
            self.pump_stream(now, number);
        }
    }

    /// Reads as many pieces as a stream may have at its source and under way.
    fn pump_stream(&mut self, now: u64, number: usize) {
        let window = self.rules.unsynced_bytes.unwrap_or(UNSYNCED_BYTES);
        let most = (window / PIECE_BYTES).max(u64::from(READ_AT_A_TIME));
        loop {
            let broken = self.broken.as_mut().expect("it has streams");
            let stream = &mut broken.rebuilds.streams[number];
            if stream.begun == stream.pieces
                || stream.at_source >= READ_AT_A_TIME
                || stream.under_way >= most
            {
                return;
            }
            let index = stream.begun;
            stream.begun += 1;
            stream.at_source += 1;
            stream.under_way += 1;
            let (source, replays) = (usize::from(stream.source), stream.kind == Kind::Replay);
            let first = index * stream.stride;
            let piece = broken.rebuilds.pieces.add(Piece {
                stream: number as u32,
                bytes: PIECE_BYTES.min(stream.bytes - index * PIECE_BYTES),
                stage: Stage::Reading(0),
            });
            self.read_piece(now, piece, source, first, replays);
        }
    }

    fn read_piece(&mut self, now: u64, piece: u32, source: usize, first: u64, replays: bool) {
        let storage = &mut self.nodes[source].machine.storage;
        let runs = if replays {
            // The log is read where it was written; a machine that was lost has none of it in memory.
            vec![(first, first + PIECE_PAGES)]
        } else {
            storage.absent_runs(first, PIECE_PAGES)
        };
        let volume = if replays {
            self.rules.commitlog(storage.host())
        } else {
            storage.data_volume()
        };
        let count = runs.len() as u32;
        for (from, to) in runs {
            let io = PendingIo::new(source as u16, Purpose::Piece(piece));
            let io = self.course.ios.add(io);
            let len = ((to - from) * PAGE_BYTES) as u32;
            storage.submit(now, volume, Op::Read, from * PAGE_BYTES, len, io);
        }
        let broken = self.broken.as_mut().expect("it has streams");
        broken.rebuilds.pieces[piece].stage = Stage::Reading(count);
        if count == 0 {
            self.course.queue.push(now, Event::Piece(piece));
        }
    }

    /// An I/O of a piece has ended.
    pub(super) fn piece_io_ended(&mut self, now: u64, number: u32) {
        let broken = self.broken.as_mut().expect("it has streams");
        match &mut broken.rebuilds.pieces[number].stage {
            Stage::Reading(left) => {
                *left -= 1;
                if *left == 0 {
                    self.piece_goes_on(now, number);
                }
            }
            _ => self.piece_is_there(now, number),
        }
    }

    /// A piece goes to its next place.
    pub(super) fn piece_goes_on(&mut self, now: u64, number: u32) {
        let broken = self.broken.as_mut().expect("it has streams");
        let rebuilds = &mut broken.rebuilds;
        let piece = rebuilds.pieces[number];
        let stream = rebuilds.streams[piece.stream as usize].clone();
        let (source, target) = (usize::from(stream.source), usize::from(stream.target));
        match piece.stage {
            Stage::Reading(_) if stream.kind == Kind::Replay => {
                rebuilds.pieces[number].stage = Stage::Taken;
                let rows = piece.bytes / self.rules.stored_row_bytes.max(1) + 1;
                let span = rows * self.rules.parameters.write_cpu_ns;
                let at = self.nodes[target].machine.cores.serve(now, span);
                self.course.queue.push(at, Event::Piece(number));
                self.leaves_source(now, piece.stream);
            }
            Stage::Reading(_) => {
                rebuilds.pieces[number].stage = Stage::Throttled;
                let hashes = stream.kind == Kind::Validation;
                let throttle = match hashes {
                    true => rebuilds.throttles.validate,
                    false => rebuilds.throttles.stream,
                };
                let allowed_at = &mut rebuilds.allowed_at[usize::from(hashes)][source];
                let at = (*allowed_at).max(now);
                *allowed_at = at + time_of(piece.bytes, throttle);
                self.course.queue.push(at, Event::Piece(number));
            }
            Stage::Throttled if stream.kind == Kind::Validation => {
                rebuilds.pieces[number].stage = Stage::Taken;
                let span = time_of(piece.bytes, rebuilds.throttles.validate_thread);
                self.takes_thread(now, number, span);
            }
            Stage::Throttled => self.send_piece(now, number, (source, target)),
            Stage::Sent => {
                rebuilds.pieces[number].stage = Stage::Taken;
                let span = time_of(piece.bytes, self.rules.table_write_bytes_per_s);
                self.takes_thread(now, number, span);
            }
            Stage::Taken if stream.kind == Kind::Replay => self.piece_is_there(now, number),
            Stage::Taken if stream.kind == Kind::Validation => {
                self.piece_is_there(now, number);
                self.leaves_source(now, piece.stream);
            }
            Stage::Taken => {
                rebuilds.pieces[number].stage = Stage::Written;
                let all = &mut rebuilds.all[stream.rebuild as usize];
                let at = all.cursor;
                all.cursor += PIECE_BYTES;
                let storage = &mut self.nodes[target].machine.storage;
                let write = (Op::Write, at, PIECE_BYTES);
                storage.send(now, &mut self.course.ios, Purpose::Piece(number), write);
            }
            Stage::Written => unreachable!("its I/O ends it"),
        }
    }

    /// A piece leaves its source, if its way carries anything; else its connection waits for it.
    fn send_piece(&mut self, now: u64, number: u32, (source, target): (usize, usize)) {
        if self.is_way_cut(source, target) {
            let again = now + CUT_LOOK_NS;
            return self.course.queue.push(again, Event::Piece(number));
        }
        let broken = self.broken.as_mut().expect("it has streams");
        let piece = &mut broken.rebuilds.pieces[number];
        piece.stage = Stage::Sent;
        let Piece { bytes, stream, .. } = *piece;
        let left = self.nodes[source].machine.link.send(now, now, bytes);
        let ends = (self.seat(source), self.seat(target));
        let way = self.paths.delay(ends.0, ends.1);
        let at = self.arrives(left, way, ends, bytes, Traffic::Tables);
        self.course.queue.push(at, Event::Piece(number));
        // The next piece has the throttle and the link to itself when this one has left.
        self.leaves_source(now, stream);
    }

    /// The receiving thread of a stream works on a piece for so long, when it has a core.
    fn takes_thread(&mut self, now: u64, number: u32, span: u64) {
        let broken = self.broken.as_mut().expect("it has streams");
        let stream = broken.rebuilds.pieces[number].stream as usize;
        let stream = &mut broken.rebuilds.streams[stream];
        let begins = stream.free_at.max(now);
        let served = self.nodes[usize::from(stream.target)]
            .machine
            .cores
            .serve(now, span);
        stream.free_at = served.max(begins + span);
        self.course.queue.push(stream.free_at, Event::Piece(number));
    }

    fn leaves_source(&mut self, now: u64, stream: u32) {
        let broken = self.broken.as_mut().expect("it has streams");
        broken.rebuilds.streams[stream as usize].at_source -= 1;
        self.pump_stream(now, stream as usize);
    }

    fn piece_is_there(&mut self, now: u64, number: u32) {
        let broken = self.broken.as_mut().expect("it has streams");
        let rebuilds = &mut broken.rebuilds;
        let piece = rebuilds.pieces[number];
        rebuilds.pieces.release(number);
        let stream = &mut rebuilds.streams[piece.stream as usize];
        stream.under_way -= 1;
        let rebuild = &mut rebuilds.all[stream.rebuild as usize];
        rebuild.done += piece.bytes;
        if rebuild.done == rebuild.bytes {
            rebuild.ended = Some(now);
        }
        self.pump_stream(now, piece.stream as usize);
    }
}

/// Nanoseconds that so many bytes take; none at a rate of zero.
fn time_of(bytes: u64, bytes_per_s: u64) -> u64 {
    if bytes_per_s == 0 {
        return 0;
    }
    (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s)) as u64
}
