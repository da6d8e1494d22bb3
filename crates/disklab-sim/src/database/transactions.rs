//! Transactions of a job: their statements, one after the other, and which comes next.

use std::ops::Range;

use disklab_units::random::Stream;

use crate::chance::exponential;
use crate::job::{Statement, Transaction};

/// Think times are cut at so many times their mean. **Source:** TPC-C 5.2.5.4.
const LONGEST_THINK: u64 = 10;

/// A kind of transaction.
#[derive(Clone, Debug)]
pub struct KindPlan {
    /// Sum of the shares up to this one, itself included.
    share_up_to: u64,
    /// Before it.
    pub keying_ns: u64,
    /// After it, on average.
    pub think_ns: u64,
    /// Its statements.
    pub steps: Range<u32>,
}

/// All kinds of transaction, in the order of the job.
#[derive(Clone, Debug, Default)]
pub struct Kinds(Vec<KindPlan>);

impl Kinds {
    /// Adds a kind, whose statements are `steps`.
    pub fn add(&mut self, transaction: &Transaction, steps: Range<u32>) {
        let before = self.0.last().map_or(0, |kind| kind.share_up_to);
        self.0.push(KindPlan {
            share_up_to: before + u64::from(transaction.share_ppm),
            keying_ns: transaction.keying_ns,
            think_ns: transaction.think_ns,
            steps,
        });
    }

    /// A kind by its number.
    #[inline]
    pub fn of(&self, number: u32) -> &KindPlan {
        &self.0[number as usize]
    }

    /// Draws a kind of transaction.
    pub fn draw(&self, stream: &mut Stream) -> u32 {
        let all = self.0.last().map_or(0, |kind| kind.share_up_to);
        let drawn = stream.below(all.max(1));
        self.0.partition_point(|kind| kind.share_up_to <= drawn) as u32
    }

    /// Draws the kind that follows, and the time until it begins, after one of which a person reads the answer for so
    /// long on average.
    pub fn draw_next(&self, think_ns: u64, kinds: &mut Stream, people: &mut Stream) -> (u32, u64) {
        let kind = self.draw(kinds);
        let thinks = match think_ns {
            0 => 0,
            mean => exponential(people, mean).min(LONGEST_THINK * mean),
        };
        (kind, thinks + self.of(kind).keying_ns)
    }

    /// Draws in which transaction a session is at the start, and when it begins: as if the load had
    /// been on for long. Who sits at a long form, or reads a long answer, is met more often.
    pub fn draw_first(&self, kinds: &mut Stream, people: &mut Stream) -> (u32, u64) {
        let mut before = 0;
        let shares = self.0.iter().map(|kind| {
            let share = kind.share_up_to - std::mem::replace(&mut before, kind.share_up_to);
            (
                share * (kind.keying_ns / 1000),
                share * (kind.think_ns / 1000),
            )
        });
        let shares: Vec<(u64, u64)> = shares.collect();
        let all: u64 = shares.iter().map(|share| share.0 + share.1).sum();
        let mut left = people.below(all.max(1));
        for ((keying, thinking), (kind, number)) in shares.into_iter().zip(self.0.iter().zip(0..)) {
            if left < keying {
                return (number, people.below(kind.keying_ns));
            }
            left -= keying;
            if left < thinking {
                let next = self.draw(kinds);
                let keying_ns = self.of(next).keying_ns;
                return (next, exponential(people, kind.think_ns) + keying_ns);
            }
            left -= thinking;
        }
        (self.draw(kinds), 0)
    }
}

/// One statement: a round trip of a client, unless it came with another.
#[derive(Clone, Debug)]
pub struct Step {
    /// Bytes of request and answer.
    pub bytes: u64,
    /// Whether it came with the statement before.
    pub inside: bool,
    /// Whether it ends a transaction.
    pub commits: bool,
    /// Under which of the names its latency is noted.
    pub name: Option<u32>,
    /// What it touches.
    pub accesses: Range<u32>,
    /// CPU of the server before it goes for its rows, without encryption, in nanoseconds.
    pub cpu_ns: u64,
}

/// All that clients send.
#[derive(Clone, Debug)]
pub struct Script {
    /// All kinds of transaction.
    pub kinds: Kinds,
    /// All statements.
    pub steps: Vec<Step>,
    /// Names in the answer, the kinds of transaction first.
    pub names: Vec<String>,
}

impl Script {
    /// The script of a job. `lay_out`: what a statement touches, and its CPU in nanoseconds.
    pub fn new(
        transactions: &[Transaction],
        mut lay_out: impl FnMut(&Statement) -> (Range<u32>, u64),
    ) -> Script {
        let mut script = Script {
            kinds: Kinds::default(),
            steps: Vec::new(),
            names: transactions.iter().map(|t| t.name.clone()).collect(),
        };
        for transaction in transactions {
            let first = script.steps.len() as u32;
            for statement in &transaction.statements {
                let (accesses, cpu_ns) = lay_out(statement);
                let name = statement.reported_as.as_deref();
                let step = Step {
                    bytes: u64::from(statement.bytes),
                    inside: statement.inside,
                    commits: statement.commits,
                    name: name.map(|name| script.number(name)),
                    accesses,
                    cpu_ns,
                };
                let times = statement.times as usize;
                script.steps.extend(std::iter::repeat_n(step, times));
            }
            let steps = first..script.steps.len() as u32;
            script.kinds.add(transaction, steps);
        }
        script
    }

    fn number(&mut self, name: &str) -> u32 {
        let place = self.names.iter().position(|other| other == name);
        place.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        }) as u32
    }
}
