//! Cassandra's native protocol: one connection asks what the cluster is, one to each node asks for rows.
//!
//! ```text
//! talk         a connection, its beginning, and statements one by one
//! cluster      where the nodes are and what they have
//! routes       which node an operation goes to
//! lane         a connection to a node, with many operations under way
//! statements   the statements on rows, and what their answers have to be
//! frames       the protocol's bytes
//! values       values of any kind, for those who ask one statement
//! ```

mod body;
mod cluster;
mod frames;
mod lane;
mod routes;
mod statements;
pub mod talk;
pub mod values;

use std::cell::RefCell;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::time::Duration;

use disklab_units::random::Stream;
use futures_util::future::join_all;

use crate::clients::pauses::Pauses;
use crate::clients::{OpenRows, RowClient};
use crate::content::Step;
use crate::error::{LoadError, Problem};
use crate::job::share::Share;
use crate::job::target::Cql;
use crate::job::workload::Rows;
use crate::keys::Key;
use crate::versions::Version;
use crate::workloads::Failure;
use cluster::Cluster;
use lane::Lane;
use routes::Routes;
use statements::Statements;
use talk::{Access, NotOpen, Talk};

/// From the news that nodes have come or gone to the question which: a new one has told the others of itself by then.
const FOLLOW_AFTER: Duration = Duration::from_secs(1);

/// How often the cluster is asked without news, which can be lost.
const FOLLOW_EVERY: Duration = Duration::from_secs(60);

/// A table of rows in Cassandra: `key bigint PRIMARY KEY, c0 blob, c1 blob, ...`.
pub struct CqlRows {
    routes: Rc<RefCell<Routes>>,
    nodes: usize,
}

impl OpenRows for CqlRows {
    type Target = Cql;

    /// Connects and prepares; the table must be there.
    async fn open(share: &Share, target: &Cql, rows: &Rows) -> Result<CqlRows, LoadError> {
        let access = Access::of(target)?;
        let points = resolve(&target.contact_points);
        let (control, cluster) = followed(&points, &access, &target.keyspace)
            .await
            .map_err(|error| unreachable(target, &error))?;
        let statements = Rc::new(Statements::new(share, target, rows));
        let name = format!(
            "replicas {} of {}",
            share.generator.index, share.generator.count
        );
        let mut routes = Routes::new(Stream::new(share.seed, &name));
        let addresses = cluster.addresses();
        let nodes = addresses.len();
        let lanes = addresses
            .into_iter()
            .map(|address| lane_to(address, share.seed, statements.clone(), access.clone()));
        let opening = lanes.map(async |lane: Rc<Lane>| (lane.clone(), lane.open().await));
        let mut why_not = None;
        let mut connected = false;
        for (lane, opened) in join_all(opening).await {
            match opened {
                Err(NotOpen::Refused(why)) => return Err(refused(&statements.table, &why)),
                Err(why) => why_not = Some(why),
                Ok(opened) => {
                    connected = true;
                    routes.add(lane, Some(opened));
                }
            }
        }
        if !connected && let Some(why) = why_not {
            return Err(unreachable(target, &why));
        }
        let keyspace = target.keyspace.clone();
        let (seed, of_lanes) = (share.seed, access.clone());
        let make = move |address| lane_to(address, seed, statements.clone(), of_lanes.clone());
        routes.follow(&cluster, &make);
        let routes = Rc::new(RefCell::new(routes));
        let follower = follow(control, cluster, routes.clone(), (access, keyspace), make);
        tokio::task::spawn_local(follower);
        Ok(CqlRows { routes, nodes })
    }

    /// Nodes of the cluster at the beginning.
    fn nodes(&self) -> Option<usize> {
        Some(self.nodes)
    }
}

impl CqlRows {
    async fn perform(&self, step: Step, key: Key) -> Result<Version, Failure> {
        let asked = self.routes.borrow_mut().choose(key)?.ask(step)?;
        asked.await
    }
}

impl RowClient for CqlRows {
    async fn read(&self, _slot: usize, key: Key) -> Result<Version, Failure> {
        self.perform(Step::Read(key), key).await
    }

    async fn write(&self, _slot: usize, key: Key, version: Version) -> Result<(), Failure> {
        self.perform(Step::Write(key, version), key).await.map(drop)
    }

    async fn update(&self, _slot: usize, key: Key, column: u32) -> Result<(), Failure> {
        self.perform(Step::Update(key, column), key).await.map(drop)
    }

    async fn delete(&self, _slot: usize, key: Key) -> Result<(), Failure> {
        self.perform(Step::Delete(key), key).await.map(drop)
    }

    async fn scan(&self, _slot: usize, key: Key, rows: u32) -> Result<(), Failure> {
        self.perform(Step::Scan(key, rows), key).await.map(drop)
    }
}

fn lane_to(address: SocketAddr, seed: u64, statements: Rc<Statements>, access: Access) -> Rc<Lane> {
    let pauses = Pauses::new(Stream::new(seed, &format!("pauses of {address}")));
    Rc::new(Lane::new(address, statements, access, pauses))
}

/// Addresses of contact points, which were checked when the job was read.
pub fn resolve(contact_points: &[String]) -> Vec<SocketAddr> {
    contact_points
        .iter()
        .filter_map(|point| point.to_socket_addrs().ok())
        .flatten()
        .collect()
}

/// A connection to one of these nodes that hears of others, and what that node knows.
async fn followed(
    addresses: &[SocketAddr],
    access: &Access,
    keyspace: &str,
) -> Result<(Talk, Cluster), NotOpen> {
    let mut control = Talk::open_any(addresses, access).await?;
    control.register().await?;
    let cluster = Cluster::ask(&mut control, keyspace).await?;
    Ok((control, cluster))
}

/// Keeps the routes as the cluster is, for ever.
async fn follow(
    mut control: Talk,
    mut known: Cluster,
    routes: Rc<RefCell<Routes>>,
    (access, keyspace): (Access, String),
    make: impl Fn(SocketAddr) -> Rc<Lane>,
) {
    loop {
        let heard = tokio::time::timeout(FOLLOW_EVERY, control.event()).await;
        tokio::time::sleep(FOLLOW_AFTER).await;
        let asked = match heard {
            Ok(Err(lost)) => Err(lost),
            _ => Cluster::ask(&mut control, &keyspace).await,
        };
        let cluster = match asked {
            Ok(cluster) => cluster,
            // Its node is gone, perhaps: another one knows.
            Err(_) => match followed(&known.addresses(), &access, &keyspace).await {
                Ok((other, cluster)) => {
                    control = other;
                    cluster
                }
                Err(_) => continue,
            },
        };
        if cluster != known {
            routes.borrow_mut().follow(&cluster, &make);
            known = cluster;
        }
    }
}

fn unreachable(target: &Cql, error: &dyn std::fmt::Display) -> LoadError {
    Problem::new(
        "target.contact_points",
        target.contact_points.join(", "),
        format!("the database cannot be reached: {error}"),
        "start it, or correct the addresses",
    )
    .into()
}

fn refused(table: &str, why: &Failure) -> LoadError {
    Problem::new(
        "target.table",
        table,
        format!("the database refused the statement: {}", why.text),
        "make the table: key bigint PRIMARY KEY, c0 blob, c1 blob, ...",
    )
    .into()
}
