//! Links that a timetable changes: ways that carry nothing, take longer, are narrow, or lose packets.
//!
//! **What a lost packet costs** is what TCP makes of it, for messages and streams are connections of TCP:
//!
//! - It is sent again when a later packet of its connection has been acknowledged, a round trip and a quarter behind that
//!   one (RACK, RFC 8985, whose window of reordering is a quarter of the shortest round trip), or when the time-out of a
//!   retransmission is over, whichever comes first: a round trip and 200 ms in Linux (RFC 6298 with `TCP_RTO_MIN`; a tail
//!   loss probe of RFC 8985 comes no sooner while one packet is under way). A packet that is lost again doubles that.
//! - What comes behind it waits: a connection gives its bytes out in their order.
//! - A connection sends a window each round trip, and losses keep the window at `sqrt(3/2p)` packets (Mathis, Semke,
//!   Mahdavi and Ott, The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm, 1997) or, where that is more, at
//!   what CUBIC has (RFC 9438, equation 6). Without loss it ends at half of Linux's largest receive buffer.
//!
//! Held against one real connection of Linux over this machine's emulated network (2026-11-25): Reno and CUBIC within 0.9
//! to 1.3 of that rate at 11 and 21 ms with 1 and 5 % lost, twice at 5 ms; 206 ms for a lost packet of a quiet connection.
//! BBR does not slow down for losses.
//!
//! **Divergence:** when the next packet comes is drawn with the mean distance of those before, for what comes next is not
//! known yet; connections are one for messages and one for streams on each way, and slow start is left out.

use disklab_units::random::Stream;

use crate::chance::exponential;
use crate::job::faults::{LinkChange, Peer};

/// Bytes of a full packet. **Source:** an Ethernet frame of 1,500 less the headers of IP and TCP with time stamps.
const SEGMENT_BYTES: u64 = 1_448;

/// The shortest time-out of a retransmission beyond the round trip. **Source:** `TCP_RTO_MIN` of Linux, 200 ms.
const RTO_MIN_NS: u64 = 200_000_000;

/// Times that one packet is lost at most: its connection would be given up. **Source:** `tcp_retries2` of Linux, 15.
const MOST_TIMES: u32 = 15;

/// The largest window. **Source:** `tcp_rmem` of Linux ends at 6 MiB, half of which is window (`tcp_adv_win_scale` 1).
const WINDOW_BYTES: u64 = 3 << 20;

/// A mean distance of packets moves by this part with each of them. **Source:** as TCP's own smoothed round trip.
const SMOOTHED: u64 = 8;

const MILLION: u64 = 1_000_000;

/// What is sent in one direction of a way.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// When the narrow way is free for the next bytes.
    free_at: u64,
    /// Nothing comes before this, which came behind a packet that was lost.
    open_at: u64,
    last_at: u64,
    gap_ns: u64,
}

/// What travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Requests and answers.
    Messages,
    /// Pieces of tables.
    Tables,
}

/// All links, by their ends: seats, and behind them the client.
#[derive(Clone, Debug)]
pub struct Links {
    ends: usize,
    own: Vec<LinkChange>,
    /// By both ends, the lower first.
    pairs: Vec<LinkChange>,
    /// By direction: messages, tables.
    flows: Vec<[Flow; 2]>,
    chances: Stream,
}

impl Links {
    /// Whole links of so many seats and the client.
    pub fn new(seats: usize, seed: u64) -> Links {
        let ends = seats + 1;
        Links {
            ends,
            own: vec![LinkChange::default(); ends],
            pairs: vec![LinkChange::default(); ends * ends],
            flows: vec![[Flow::default(); 2]; ends * ends],
            chances: Stream::new(seed, "lost packets"),
        }
    }

    /// The client's end.
    pub fn client(&self) -> usize {
        self.ends - 1
    }

    /// The other end of a way between two.
    pub fn end_of(&self, peer: Peer) -> usize {
        match peer {
            Peer::Client => self.client(),
            Peer::Node(seat) => seat as usize,
        }
    }

    fn pair(&self, one: usize, other: usize) -> usize {
        one.min(other) * self.ends + one.max(other)
    }

    /// The link of a seat, or the way between two, is like this from now on; None: as it was at first.
    pub fn change(&mut self, seat: usize, peer: Option<Peer>, change: Option<LinkChange>) {
        let change = change.unwrap_or_default();
        match peer {
            None => self.own[seat] = change,
            Some(peer) => {
                let at = self.pair(seat, self.end_of(peer));
                self.pairs[at] = change;
            }
        }
    }

    /// Whether any link is not as it was.
    pub fn any(&self) -> bool {
        self.own
            .iter()
            .chain(&self.pairs)
            .any(|one| *one != LinkChange::default())
    }

    /// What a node's link lets it send; None: what it did at first.
    pub fn own_rate(&self, seat: usize) -> Option<u64> {
        self.own[seat].bytes_per_s
    }

    /// Whether the way between two carries nothing.
    #[inline]
    pub fn is_cut(&self, one: usize, other: usize) -> bool {
        one != other && self.pairs[self.pair(one, other)].cut
    }

    /// Whether news of one seat come to another, over others where their own way is cut.
    pub fn hears(&self, one: usize, other: usize, up: impl Fn(usize) -> bool) -> bool {
        let mut reached = vec![false; self.client()];
        let mut open = vec![one];
        while let Some(at) = open.pop() {
            if std::mem::replace(&mut reached[at], true) {
                continue;
            }
            let next = (0..self.client()).filter(|&to| !reached[to] && up(to));
            open.extend(next.filter(|&to| !self.is_cut(at, to)));
        }
        reached[other]
    }

    /// When bytes that have left one end at a time come to the other, whose plain way takes so long.
    #[inline]
    pub fn arrives(
        &mut self,
        left: u64,
        delay_ns: u64,
        (from, to): (usize, usize),
        bytes: u64,
        traffic: Traffic,
    ) -> u64 {
        if from == to {
            return left + delay_ns;
        }
        let pair = self.pairs[self.pair(from, to)];
        let parts = [self.own[from], self.own[to], pair];
        if parts.iter().all(|one| *one == LinkChange::default()) {
            return left + delay_ns;
        }
        let delay_ns = delay_ns + parts.iter().map(|one| one.extra_ns).sum::<u64>();
        let kept = parts.iter().fold(1.0, |kept, one| {
            kept * (1.0 - f64::from(one.loss_ppm) / MILLION as f64)
        });
        let loss = 1.0 - kept;
        let rate = match traffic {
            Traffic::Messages => pair.bytes_per_s,
            Traffic::Tables => {
                let window = window_rate(2 * delay_ns, loss);
                Some(pair.bytes_per_s.unwrap_or(window).min(window))
            }
        };
        let flow = &mut self.flows[from * self.ends + to][traffic as usize];
        let left = match rate {
            Some(rate) => {
                let span = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
                flow.free_at = flow.free_at.max(left) + span as u64;
                flow.free_at
            }
            None => left,
        };
        if loss == 0.0 {
            return left + delay_ns;
        }
        let gap = left.saturating_sub(flow.last_at);
        flow.gap_ns = (flow.gap_ns * (SMOOTHED - 1) + gap) / SMOOTHED;
        flow.last_at = flow.last_at.max(left);
        let gap_ns = flow.gap_ns;
        let again = match traffic {
            // The rate above is what losses leave of a stream.
            Traffic::Tables => 0,
            Traffic::Messages => self.sent_again(bytes, loss, 2 * delay_ns, gap_ns),
        };
        let flow = &mut self.flows[from * self.ends + to][traffic as usize];
        flow.open_at = flow.open_at.max(left + delay_ns + again);
        flow.open_at
    }

    /// How long a message waits for those of its packets that are lost.
    fn sent_again(&mut self, bytes: u64, loss: f64, round_trip_ns: u64, gap_ns: u64) -> u64 {
        let segments = bytes.div_ceil(SEGMENT_BYTES).max(1) as i32;
        let whole = (1.0 - loss).powi(segments);
        if self.chances.unit() < whole {
            return 0;
        }
        let mut waited = 0;
        for times in 0..MOST_TIMES {
            let next = exponential(&mut self.chances, gap_ns);
            let timer = round_trip_ns + (RTO_MIN_NS << times);
            waited += (next + round_trip_ns * 5 / 4).min(timer);
            if self.chances.unit() >= loss {
                break;
            }
        }
        waited
    }

    /// Bytes a second that a stream from one end to another reaches at most, whose plain way takes so long.
    pub fn stream_rate(&self, from: usize, to: usize, delay_ns: u64) -> Option<u64> {
        let pair = self.pairs[self.pair(from, to)];
        let parts = [self.own[from], self.own[to], pair];
        if parts.iter().all(|one| *one == LinkChange::default()) {
            return None;
        }
        let delay_ns = delay_ns + parts.iter().map(|one| one.extra_ns).sum::<u64>();
        let kept = parts.iter().fold(1.0, |kept, one| {
            kept * (1.0 - f64::from(one.loss_ppm) / MILLION as f64)
        });
        let window = window_rate(2 * delay_ns, 1.0 - kept);
        Some(pair.bytes_per_s.unwrap_or(window).min(window))
    }
}

/// Bytes a second of one connection with such a round trip that loses such a share of its packets.
fn window_rate(round_trip_ns: u64, loss: f64) -> u64 {
    let round_trip_s = (round_trip_ns as f64 / 1e9).max(1e-6);
    let largest = WINDOW_BYTES as f64;
    let window = if loss > 0.0 {
        let reno = (1.5 / loss).sqrt();
        // 1.054 is (0.4 (3 + 0.7) / (4 (1 - 0.7)))^1/4, with CUBIC's own constants.
        let cubic = 1.054 * (round_trip_s / loss).powf(0.75);
        (reno.max(cubic).max(1.0) * SEGMENT_BYTES as f64).min(largest)
    } else {
        largest
    };
    (window / round_trip_s) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn lossy(loss_ppm: u32) -> Option<LinkChange> {
        Some(LinkChange {
            loss_ppm,
            ..LinkChange::default()
        })
    }

    #[test]
    fn a_way_is_slow_for_its_two_ends_alone() {
        let mut links = Links::new(3, 1);
        let slow = LinkChange {
            extra_ns: 10 * MS,
            bytes_per_s: Some(1_000_000),
            ..LinkChange::default()
        };
        links.change(0, Some(Peer::Node(1)), Some(slow));
        let arrives = |links: &mut Links, ends| links.arrives(0, MS, ends, 1000, Traffic::Messages);
        assert_eq!(
            arrives(&mut links, (0, 1)),
            12 * MS,
            "a millisecond each, and ten"
        );
        assert_eq!(arrives(&mut links, (0, 1)), 13 * MS, "behind the first");
        assert_eq!(
            arrives(&mut links, (1, 0)),
            12 * MS,
            "the other direction is free"
        );
        assert_eq!(arrives(&mut links, (0, 2)), MS);
        links.change(0, Some(Peer::Node(1)), None);
        assert_eq!(arrives(&mut links, (1, 0)), MS);
    }

    #[test]
    fn a_lost_packet_of_a_busy_connection_costs_a_round_trip_and_of_a_quiet_one_its_timer() {
        let waits = |gap_ns: u64| {
            let mut links = Links::new(2, 1);
            links.change(0, None, lossy(10_000));
            let mut waited = Vec::new();
            for number in 1..=40_000 {
                let left = number * gap_ns;
                let at = links.arrives(left, MS, (0, 1), 100, Traffic::Messages);
                if at > left + MS {
                    waited.push((at - left - MS) as f64 / MS as f64);
                }
            }
            let mean = waited.iter().sum::<f64>() / waited.len() as f64;
            (waited.len() as f64 / 40_000.0, mean)
        };
        // One in a hundred seconds: one of a hundred waits for its timer, a round trip and 200 ms; the next comes long behind.
        let (share, mean) = waits(100_000 * MS);
        assert!((share - 0.01).abs() < 0.002, "{share}");
        assert!((mean - 206.0).abs() < 12.0, "{mean}");
        // A thousand a second: the next packet tells, so 1 + 2.5 ms; and those behind it wait with it.
        let (share, mean) = waits(MS);
        assert!(share > 0.02 && share < 0.06, "{share}");
        assert!(mean < 5.0, "{mean}");
    }

    #[test]
    fn losses_keep_a_stream_at_its_window_a_round_trip() {
        for (loss_ppm, extra_ns, bytes_per_s) in [
            // sqrt(1.5 / 0.01) = 12.2 packets in 22 ms.
            (10_000, 10 * MS, 12.25 * 1448.0 / 0.022),
            // Without loss the largest window in 202 ms.
            (0, 100 * MS, (3 << 20) as f64 / 0.202),
        ] {
            let mut links = Links::new(2, 1);
            let change = LinkChange {
                extra_ns,
                loss_ppm,
                ..LinkChange::default()
            };
            links.change(1, None, Some(change));
            let mut at = 0;
            for _ in 0..50 {
                at = links.arrives(0, MS, (0, 1), 1 << 20, Traffic::Tables);
            }
            let rate = f64::from(50 << 20) / (at as f64 / 1e9);
            assert!(
                (rate / bytes_per_s - 1.0).abs() < 0.04,
                "{rate}, not {bytes_per_s}"
            );
            let told = links.stream_rate(0, 1, MS).expect("it is not whole") as f64;
            assert!((told / bytes_per_s - 1.0).abs() < 0.01, "{told}");
        }
    }

    #[test]
    fn news_go_round_a_cut_way_where_there_is_another() {
        let mut links = Links::new(3, 1);
        let cut = Some(LinkChange {
            cut: true,
            ..LinkChange::default()
        });
        links.change(0, Some(Peer::Node(1)), cut);
        assert!(links.is_cut(1, 0) && !links.is_cut(1, 2));
        assert!(links.hears(0, 1, |_| true));
        assert!(!links.hears(0, 1, |seat| seat != 2), "the third is away");
        links.change(2, Some(Peer::Node(1)), cut);
        assert!(!links.hears(0, 1, |_| true));
    }
}
