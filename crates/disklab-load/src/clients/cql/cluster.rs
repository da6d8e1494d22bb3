//! Which nodes a cluster has, and who of them has which rows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::talk::{NotOpen, Talk};
use super::values::Shown;
use crate::job::target::Consistency;

/// A cluster as one of its nodes knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    nodes: Vec<Node>,
    replication: Replication,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    address: SocketAddr,
    data_center: String,
    rack: String,
    tokens: Vec<i64>,
}

/// Of how many nodes each row is kept by.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Replication {
    /// Of so many, wherever they are.
    Anywhere(usize),
    /// Of so many in each data centre, in as many racks as there are.
    ByCentre(BTreeMap<String, usize>),
}

/// What a node says of itself or of another one. A node that is only about to join has no address or tokens yet.
#[derive(Deserialize)]
struct Member {
    rpc_address: Option<IpAddr>,
    data_center: Option<String>,
    rack: Option<String>,
    tokens: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Keyspace {
    replication: BTreeMap<String, String>,
}

impl Cluster {
    /// Asks a node. It is itself at the address where it was found: it may give another one to those elsewhere.
    pub async fn ask(talk: &mut Talk, keyspace: &str) -> Result<Cluster, NotOpen> {
        let own = talk.address()?;
        let columns = "rpc_address, data_center, rack, tokens";
        let of = format!("SELECT {columns} FROM system.local");
        let mut nodes: Vec<Node> = Vec::new();
        for member in rows(talk, &of).await? {
            nodes.extend(node(member, |_| own));
        }
        let others = format!("SELECT {columns} FROM system.peers");
        for member in rows(talk, &others).await? {
            nodes.extend(node(member, |ip| SocketAddr::new(ip, own.port())));
        }
        let quoted = keyspace.replace('\'', "''");
        let kept = format!(
            "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = '{quoted}'"
        );
        let kept: Vec<Keyspace> = rows(talk, &kept).await?;
        let replication = kept
            .first()
            .map(|keyspace| Replication::of(&keyspace.replication));
        Ok(Cluster {
            nodes,
            replication: replication.unwrap_or(Replication::Anywhere(1)),
        })
    }

    /// Where its nodes are.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.address).collect()
    }

    /// Tokens in order, each with the nodes that have the rows from the one before to this one.
    pub fn owners(&self) -> Vec<(i64, Vec<SocketAddr>)> {
        let mut ring: Vec<(i64, &Node)> = Vec::new();
        for node in &self.nodes {
            ring.extend(node.tokens.iter().map(|token| (*token, node)));
        }
        ring.sort_unstable_by_key(|(token, node)| (*token, node.address));
        let owned = (0..ring.len()).map(|place| {
            let onwards = ring[place..].iter().chain(&ring[..place]);
            (ring[place].0, self.replicas(onwards.map(|(_, node)| *node)))
        });
        owned.collect()
    }

    /// Who keeps a row, of the nodes in their order from its token on. **Source:** `SimpleStrategy` and
    /// `NetworkTopologyStrategy` of Apache Cassandra 4.1.
    fn replicas<'a>(&self, onwards: impl Iterator<Item = &'a Node>) -> Vec<SocketAddr> {
        let mut kept: Vec<SocketAddr> = Vec::new();
        match &self.replication {
            Replication::Anywhere(copies) => {
                let copies = self.nodes.len().min(*copies);
                for node in onwards {
                    if kept.len() == copies {
                        break;
                    }
                    if !kept.contains(&node.address) {
                        kept.push(node.address);
                    }
                }
            }
            Replication::ByCentre(copies) => {
                let mut centres: BTreeMap<&str, Centre<'_>> = copies
                    .iter()
                    .map(|(name, copies)| (name.as_str(), self.centre(name, *copies)))
                    .collect();
                let mut left: usize = centres.values().map(|centre| centre.left).sum();
                for node in onwards {
                    if left == 0 {
                        break;
                    }
                    if let Some(centre) = centres.get_mut(node.data_center.as_str())
                        && !kept.contains(&node.address)
                        && centre.takes(&node.rack)
                    {
                        left -= 1;
                        kept.push(node.address);
                    }
                }
            }
        }
        kept
    }

    /// A data centre that keeps so many copies of a row, none of which has been placed yet.
    fn centre(&self, name: &str, copies: usize) -> Centre<'_> {
        let nodes = self.nodes.iter().filter(|node| node.data_center == name);
        let racks: BTreeSet<&str> = nodes.clone().map(|node| node.rack.as_str()).collect();
        Centre {
            left: copies.min(nodes.count()),
            repeats: copies.saturating_sub(racks.len()),
            racks,
        }
    }
}

/// A data centre while the copies of a row are placed.
struct Centre<'a> {
    /// Copies that are still to be placed.
    left: usize,
    /// How many of them may share a rack.
    repeats: usize,
    /// Those without a copy.
    racks: BTreeSet<&'a str>,
}

impl Centre<'_> {
    /// Whether a node of this rack keeps the next copy.
    fn takes(&mut self, rack: &str) -> bool {
        if self.left == 0 {
            return false;
        }
        if !self.racks.remove(rack) {
            if self.repeats == 0 {
                return false;
            }
            self.repeats -= 1;
        }
        self.left -= 1;
        true
    }
}

impl Replication {
    fn of(told: &BTreeMap<String, String>) -> Replication {
        // Transient replication: 3/1 are three copies, one of them transient.
        let copies = |text: &String| text.split('/').next()?.parse().ok();
        let class = told.get("class").map_or("", String::as_str);
        if class.ends_with("NetworkTopologyStrategy") {
            let centres = told
                .iter()
                .filter_map(|(name, text)| Some((name.clone(), copies(text)?)));
            return Replication::ByCentre(centres.collect());
        }
        let factor = told.get("replication_factor").and_then(copies);
        Replication::Anywhere(factor.unwrap_or(1))
    }
}

async fn rows<Row: DeserializeOwned>(
    talk: &mut Talk,
    statement: &str,
) -> Result<Vec<Row>, NotOpen> {
    let (table, _) = talk.query(statement, Consistency::One).await?;
    let rows = Value::from(table.json(Shown::Values));
    serde_json::from_value(rows)
        .map_err(|error| NotOpen::Unreachable(format!("{statement}: its answer: {error}")))
}

fn node(member: Member, at: impl FnOnce(IpAddr) -> SocketAddr) -> Option<Node> {
    let tokens = member.tokens?;
    Some(Node {
        address: at(member.rpc_address?),
        data_center: member.data_center.unwrap_or_default(),
        rack: member.rack.unwrap_or_default(),
        tokens: tokens
            .iter()
            .filter_map(|token| token.parse().ok())
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u8, data_center: &str, rack: &str, tokens: &[i64]) -> Node {
        Node {
            address: ([10, 0, 0, number], 9042).into(),
            data_center: data_center.into(),
            rack: rack.into(),
            tokens: tokens.to_vec(),
        }
    }

    fn replication(told: &[(&str, &str)]) -> Replication {
        let own = |(name, text): &(&str, &str)| (name.to_string(), text.to_string());
        Replication::of(&told.iter().map(own).collect())
    }

    fn owners(cluster: &Cluster) -> Vec<(i64, Vec<u8>)> {
        let number = |address: &SocketAddr| match address.ip() {
            IpAddr::V4(ip) => ip.octets()[3],
            IpAddr::V6(_) => 0,
        };
        let owners = cluster.owners();
        let numbered = owners
            .iter()
            .map(|(token, kept)| (*token, kept.iter().map(number).collect()));
        numbered.collect()
    }

    #[test]
    fn copies_lie_on_the_next_nodes_of_the_ring() {
        let nodes = vec![
            node(1, "dc", "r", &[-50, 40]),
            node(2, "dc", "r", &[0]),
            node(3, "dc", "r", &[30]),
        ];
        let simple = [
            ("class", "org.apache.cassandra.locator.SimpleStrategy"),
            ("replication_factor", "2"),
        ];
        let cluster = Cluster {
            nodes,
            replication: replication(&simple),
        };
        let expected = [(-50, [1, 2]), (0, [2, 3]), (30, [3, 1]), (40, [1, 2])];
        let expected = expected.map(|(token, kept)| (token, kept.to_vec()));
        assert_eq!(owners(&cluster), expected);
    }

    #[test]
    fn a_data_centre_uses_its_racks_before_it_uses_one_twice() {
        let nodes = vec![
            node(1, "east", "a", &[0]),
            node(2, "east", "a", &[10]),
            node(3, "east", "b", &[20]),
            node(4, "west", "a", &[5]),
            node(5, "west", "a", &[15]),
        ];
        let class = (
            "class",
            "org.apache.cassandra.locator.NetworkTopologyStrategy",
        );
        let two = Cluster {
            nodes: nodes.clone(),
            replication: replication(&[class, ("east", "2"), ("west", "1")]),
        };
        let expected = [
            (0, vec![1, 4, 3]),
            (5, vec![4, 2, 3]),
            (10, vec![2, 5, 3]),
            (15, vec![5, 3, 1]),
            (20, vec![3, 1, 4]),
        ];
        assert_eq!(owners(&two), expected);
        // Three copies in two racks: one rack has two of them. A centre that is not named keeps none.
        let three = Cluster {
            nodes,
            replication: replication(&[class, ("east", "3/1")]),
        };
        assert!(owners(&three).iter().all(|(_, kept)| kept.len() == 3));
    }

    #[test]
    fn without_tokens_nobody_owns_anything() {
        let cluster = Cluster {
            nodes: Vec::new(),
            replication: replication(&[("class", "LocalStrategy")]),
        };
        assert_eq!(cluster.replication, Replication::Anywhere(1));
        assert!(cluster.owners().is_empty());
    }
}
