//! Cassandra's native protocol: the scylla driver knows the cluster, connections of our own ask it for rows.
//!
//! ```text
//! driver       the scylla driver's session: where the nodes are and what they have
//! routes       which node an operation goes to
//! lane         a connection to a node, with many operations under way
//! statements   the statements, and what their answers have to be
//! frames       the protocol's bytes
//! ```

pub mod driver;
mod frames;
mod lane;
mod routes;
mod statements;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use disklab_units::random::Stream;
use futures_util::future::join_all;
use scylla::client::session::Session;
use scylla::cluster::ClusterState;

use crate::clients::pauses::Pauses;
use crate::clients::{OpenRows, RowClient};
use crate::error::{LoadError, Problem};
use crate::job::{Cql, Job, Rows};
use crate::keys::Key;
use crate::versions::Version;
use crate::workloads::Failure;
use crate::workloads::rows::Step;
use driver::Access;
use lane::{Lane, NotOpen};
use routes::Routes;
use statements::Statements;

/// How often the driver is asked whether it has learned of other nodes: it hears of them within about a second.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// A table of rows in Cassandra: `key bigint PRIMARY KEY, c0 blob, c1 blob, ...`.
pub struct CqlRows {
    routes: Rc<RefCell<Routes>>,
    nodes: usize,
}

impl OpenRows for CqlRows {
    type Target = Cql;

    /// Connects and prepares; the table must be there.
    async fn open(job: &Job, target: &Cql, rows: &Rows) -> Result<CqlRows, LoadError> {
        let access = Access::of(target)?;
        let session = driver::connect(
            &driver::resolve(&target.contact_points),
            driver::Reach::Cluster,
            Some(&target.keyspace),
            target.consistency,
            None,
            &access,
        )
        .await
        .map_err(|error| unreachable(target, &error))?;
        let statements = Rc::new(Statements::new(job, target, rows));
        let cluster = session.get_cluster_state();
        let name = format!(
            "replicas {} of {}",
            job.generator.index, job.generator.count
        );
        let mut routes = Routes::new(Stream::new(job.seed, &name));
        let addresses = routes::addresses(&cluster);
        let nodes = addresses.len();
        let lanes = addresses
            .into_iter()
            .map(|address| lane_to(address, job.seed, statements.clone(), access.clone()));
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
        let target = target.clone();
        let seed = job.seed;
        let make = move |address| lane_to(address, seed, statements.clone(), access.clone());
        routes.follow(&cluster, &target, &make);
        let routes = Rc::new(RefCell::new(routes));
        let follower = follow(session, cluster, routes.clone(), target, make);
        tokio::task::spawn_local(follower);
        Ok(CqlRows { routes, nodes })
    }

    /// Nodes of the cluster that the driver knew at the beginning.
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

/// Keeps the routes as the driver knows the cluster, for ever.
async fn follow(
    session: Session,
    mut known: Arc<ClusterState>,
    routes: Rc<RefCell<Routes>>,
    target: Cql,
    make: impl Fn(SocketAddr) -> Rc<Lane>,
) {
    loop {
        tokio::time::sleep(FOLLOW_EVERY).await;
        let cluster = session.get_cluster_state();
        if !Arc::ptr_eq(&known, &cluster) {
            routes.borrow_mut().follow(&cluster, &target, &make);
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
