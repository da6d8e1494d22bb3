//! When users do what: the mix, keying in and thinking.

use disklab_units::Duration;
use disklab_units::random::Stream;

use super::scale::DISTRICTS;
use crate::mix::Mix;

/// The five transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the words are the standard's
pub enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

/// What the standard says of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// As a kind of operation.
    pub name: &'static str,
    kind: Kind,
    /// Its part of the mix. New orders are what the others leave. **Source:** clause 5.2.3.
    pub share: f64,
    /// **Source:** clause 5.2.5.2.
    keying: Duration,
    /// The mean. **Source:** clause 5.2.5.7.
    thinking: Duration,
    /// Nine in ten are answered within it. **Source:** clause 5.2.5.3.
    pub limit: Duration,
}

const fn manner(
    name: &'static str,
    kind: Kind,
    share: f64,
    [keying, thinking, limit]: [u64; 3],
) -> Manner {
    Manner {
        name,
        kind,
        share,
        keying: Duration::from_secs(keying),
        thinking: Duration::from_secs(thinking),
        limit: Duration::from_secs(limit),
    }
}

/// All five, as they are numbered.
pub const MANNERS: [Manner; 5] = [
    manner("new_order", Kind::NewOrder, 0.45, [18, 12, 5]),
    manner("payment", Kind::Payment, 0.43, [3, 12, 5]),
    manner("order_status", Kind::OrderStatus, 0.04, [2, 10, 5]),
    manner("delivery", Kind::Delivery, 0.04, [2, 5, 5]),
    manner("stock_level", Kind::StockLevel, 0.04, [2, 5, 20]),
];

/// Their names.
pub const NAMES: [&str; 5] = {
    let mut names = [""; 5];
    let mut at = 0;
    while at < MANNERS.len() {
        names[at] = MANNERS[at].name;
        at += 1;
    }
    names
};

/// No user thinks longer than ten times the mean. **Source:** clause 5.2.5.4.
const LONGEST_THOUGHT: u64 = 10;

/// A terminal: where it stands, and what its user does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// Its home.
    pub warehouse: u32,
    /// The district whose stocks it asks for. **Source:** clause 2.8.1.1.
    pub district: u32,
    next: Kind,
}

/// All terminals of a run.
#[derive(Clone, Debug)]
pub struct Terminals {
    terminals: Vec<Terminal>,
    mix: Mix,
    stream: Stream,
}

impl Kind {
    /// What the standard says of it.
    pub fn manner(self) -> &'static Manner {
        &MANNERS[self as usize]
    }
}

impl Terminals {
    /// So many terminals, spread over the warehouses, and over the districts of each.
    pub fn new(count: u32, warehouses: u32, seed: u64) -> Terminals {
        let mut mix = Mix::new(
            &MANNERS.map(|manner| manner.share),
            Stream::new(seed, "tpcc mix"),
        );
        let terminals = (0..count)
            .map(|number| Terminal {
                warehouse: number % warehouses + 1,
                district: number / warehouses % DISTRICTS + 1,
                next: MANNERS[mix.draw()].kind,
            })
            .collect();
        Terminals {
            terminals,
            mix,
            stream: Stream::new(seed, "tpcc rests"),
        }
    }

    /// When each starts its first transaction: as if it had always been at work.
    ///
    /// Whoever looks at a moment finds a user in a rest of any length in proportion to that length, anywhere in it. So a
    /// rest is drawn from a few, weighted by their lengths, and then a moment of it.
    pub fn first_starts(&mut self) -> Vec<Duration> {
        /// Rests to draw from; more of them change the rate of the first seconds by less than a hundredth.
        const DRAWN: usize = 32;
        let Terminals {
            terminals,
            mix,
            stream,
        } = self;
        let mut first = |terminal: &mut Terminal| {
            let rests: [(Kind, u64); DRAWN] = std::array::from_fn(|_| {
                let before = MANNERS[mix.draw()].kind;
                let next = MANNERS[mix.draw()].kind;
                let rest = thinking(stream, before).saturating_add(next.manner().keying);
                (next, rest.as_nanos())
            });
            let mut at = stream.below(rests.iter().map(|(_, rest)| rest).sum());
            for (next, rest) in rests {
                if at < rest {
                    terminal.next = next;
                    return Duration::from_nanos(at);
                }
                at -= rest;
            }
            unreachable!("a moment lies in one of the rests")
        };
        terminals.iter_mut().map(&mut first).collect()
    }

    /// What a terminal does now; what it does next is drawn, because that is what its user will key in.
    pub fn take(&mut self, terminal: usize) -> (Kind, Terminal) {
        let now = self.terminals[terminal];
        self.terminals[terminal].next = MANNERS[self.mix.draw()].kind;
        (now.next, now)
    }

    /// How long a user thinks about what he got, and keys in the next.
    pub fn rest(&mut self, terminal: usize, ended: Kind) -> Duration {
        let keying = self.terminals[terminal].next.manner().keying;
        thinking(&mut self.stream, ended).saturating_add(keying)
    }
}

/// **Source:** clause 5.2.5.4: negative exponential.
fn thinking(stream: &mut Stream, about: Kind) -> Duration {
    let mean = about.manner().thinking.as_nanos();
    let drawn = -libm::log(stream.unit()) * mean as f64;
    Duration::from_nanos((drawn as u64).min(LONGEST_THOUGHT * mean))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_terminals_make_at_most_the_standard_s_new_orders() {
        // 12.86 a minute where answers take no time: clause 4.2.
        let mut terminals = Terminals::new(10, 1, 3);
        let (mut new_orders, mut time) = (0.0, 0.0);
        for round in 0..200_000 {
            let terminal = round % 10;
            let (kind, _) = terminals.take(terminal);
            new_orders += f64::from(u8::from(kind == Kind::NewOrder));
            time += terminals.rest(terminal, kind).as_nanos() as f64 / 1e9 / 10.0;
        }
        let a_minute = new_orders / time * 60.0;
        assert!((a_minute / 12.86 - 1.0).abs() < 0.01, "{a_minute}");
    }

    #[test]
    fn terminals_are_spread_over_warehouses_and_districts() {
        let terminals = Terminals::new(40, 4, 3).terminals;
        for warehouse in 1..=4 {
            let mut own: Vec<u32> = terminals
                .iter()
                .filter(|terminal| terminal.warehouse == warehouse)
                .map(|terminal| terminal.district)
                .collect();
            own.sort_unstable();
            assert_eq!(own, (1..=10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_first_seconds_are_as_busy_as_any() {
        let starts = Terminals::new(100_000, 10, 3).first_starts();
        // A round takes 20.99 s in the mean, so that 4.76 % start in each second.
        for second in [0, 1] {
            let within = starts
                .iter()
                .filter(|start| start.as_nanos() / 1_000_000_000 == second);
            let rate = within.count() as f64 / 100_000.0;
            assert!((0.045..0.0505).contains(&rate), "{second}: {rate}");
        }
    }
}
