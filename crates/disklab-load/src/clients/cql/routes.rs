//! Which node an operation goes to: one that has its row.

use std::net::SocketAddr;
use std::rc::Rc;

use disklab_units::random::Stream;
use tokio::task::JoinHandle;

use super::cluster::Cluster;
use super::lane::{Lane, Opened};
use crate::keys::Key;
use crate::workloads::Failure;

/// The nodes of a cluster and what they have.
pub struct Routes {
    served: Vec<Served>,
    ring: Ring,
    chance: Stream,
}

/// A node, and the task that sends and receives.
struct Served {
    lane: Rc<Lane>,
    task: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
        self.lane.close(&"the node has left the cluster");
    }
}

impl Routes {
    /// No node yet; `chance` chooses between replicas.
    pub fn new(chance: Stream) -> Routes {
        Routes {
            served: Vec::new(),
            ring: Ring::default(),
            chance,
        }
    }

    /// Adds a node, with its first connection where there is one.
    pub fn add(&mut self, lane: Rc<Lane>, opened: Option<Opened>) {
        let talk = opened.map(|opened| lane.accept(opened));
        let task = tokio::task::spawn_local(lane.clone().serve(talk));
        self.served.push(Served { lane, task });
    }

    /// Takes over what a node knows: which nodes there are, and who has which rows. `make` makes a new one.
    pub fn follow(&mut self, cluster: &Cluster, make: impl Fn(SocketAddr) -> Rc<Lane>) {
        let addresses = cluster.addresses();
        self.served
            .retain(|served| addresses.contains(&served.lane.address()));
        for address in addresses {
            if self.position(address).is_none() {
                self.add(make(address), None);
            }
        }
        let owned = cluster.owners().into_iter().map(|(token, nodes)| {
            let owners = nodes.iter().filter_map(|address| self.position(*address));
            (token, owners.collect())
        });
        self.ring = Ring(owned.collect());
    }

    fn position(&self, address: SocketAddr) -> Option<usize> {
        let mut lanes = self.served.iter().map(|served| served.lane.address());
        lanes.position(|known| known == address)
    }

    /// A connected node that has the row, by chance; else any connected one.
    pub fn choose(&mut self, key: Key) -> Result<&Rc<Lane>, Failure> {
        let found = match self.served.len() {
            // The usual case of a rehearsal: nothing is to be chosen.
            1 => Some(0).filter(|node| self.is_open(*node)),
            count => {
                let chance = self.chance.draw();
                let owners = self.ring.owners(token(key));
                let owner = turned(owners.len(), chance).map(|place| owners[place]);
                let mut wanted = owner.chain(turned(count, chance));
                wanted.find(|node| self.is_open(*node))
            }
        };
        match found {
            Some(node) => Ok(&self.served[node].lane),
            None => Err(self.why_none()),
        }
    }

    fn is_open(&self, node: usize) -> bool {
        self.served[node].lane.is_open()
    }

    fn why_none(&self) -> Failure {
        let closed = self.served.iter().find_map(|served| served.lane.closed());
        closed.unwrap_or_else(|| Failure {
            kind: "no_node".into(),
            text: "the cluster has no node".into(),
        })
    }
}

/// Where a row lies, by the partitioner that Cassandra has had since 1.2. **Source:** `MurmurHash.hash3_x64_128`, of eight
/// bytes; unlike elsewhere, each of them has a sign.
fn token(key: Key) -> i64 {
    let mut word: u64 = 0;
    for (place, byte) in key.to_be_bytes().into_iter().enumerate() {
        word ^= (i64::from(byte as i8) << (8 * place)) as u64;
    }
    let word = word.wrapping_mul(0x87c3_7b91_1142_53d5).rotate_left(31);
    let first = word.wrapping_mul(0x4cf5_ad43_2745_937f) ^ 8;
    let mixed = |half: u64| {
        let half = (half ^ (half >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let half = (half ^ (half >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        half ^ (half >> 33)
    };
    let first = first.wrapping_add(8);
    let second = first.wrapping_add(8);
    let token = mixed(first).wrapping_add(mixed(second)) as i64;
    // The smallest token marks the start of the ring; no row has it.
    if token == i64::MIN { i64::MAX } else { token }
}

/// All places of a list from one on, and round.
fn turned(count: usize, from: u64) -> impl Iterator<Item = usize> {
    let from = if count == 0 {
        0
    } else {
        (from % count as u64) as usize
    };
    (from..count).chain(0..from)
}

/// Tokens in order, and the nodes that have the rows from the one before to this one.
#[derive(Default)]
struct Ring(Vec<(i64, Vec<usize>)>);

impl Ring {
    fn owners(&self, token: i64) -> &[usize] {
        let place = self.0.partition_point(|(end, _)| *end < token);
        // Beyond the last token the ring begins again.
        let owned = self.0.get(place).or_else(|| self.0.first());
        owned.map_or(&[], |(_, owners)| owners)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_belongs_to_the_next_one_on_the_ring() {
        let ring = Ring(vec![(-10, vec![0]), (5, vec![1, 2]), (7, vec![2])]);
        let owners = [i64::MIN, -10, -9, 5, 6, 7, 8, i64::MAX].map(|token| ring.owners(token));
        let expected: [&[usize]; 8] = [&[0], &[0], &[1, 2], &[1, 2], &[2], &[2], &[0], &[0]];
        assert_eq!(owners, expected);
        assert!(Ring::default().owners(3).is_empty());
    }

    #[test]
    fn a_key_s_token_is_cassandra_s() {
        // SELECT token(key) of Cassandra 5.0.6, 2026-11-22.
        let told = [
            (0, 2_945_182_322_382_062_539),
            (1, 6_292_367_497_774_912_474),
            (42, 8_623_491_988_607_824_794),
        ];
        for (key, expected) in told {
            assert_eq!(token(key), expected, "{key}");
        }
    }

    #[test]
    fn every_place_is_tried_once_from_any_on() {
        assert_eq!(turned(3, 4).collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!(turned(0, 4).count(), 0);
    }
}
