//! The scylla driver: it finds the cluster, and hears what becomes of it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use scylla::client::PoolSize;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::NewSessionError;
use scylla::policies::host_filter::AllowListHostFilter;
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::statement::Consistency as Level;

use rustls::ClientConfig;
use scylla::client::session::TlsContext;
use tokio_rustls::TlsConnector;

use crate::clients::tls;
use crate::error::LoadError;
use crate::job::{Consistency, Cql, Login};

/// How long a first connection may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Which nodes a session talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every node that the contact points know.
    Cluster,
    /// The contact points alone: what a node says of itself, only that node can answer.
    ContactPoints,
}

/// How a node is spoken to.
#[derive(Clone)]
pub struct Access {
    /// Who comes; none: the cluster asks nobody.
    pub login: Option<Login>,
    /// What encrypts; none: nothing is.
    pub tls: Option<TlsConnector>,
}

impl Access {
    /// A login, with TLS where it is asked for. With `ca_file` a node's certificate must come from it and have the node's
    /// address, which is all that the cluster tells of a node; without, any certificate will do.
    pub fn new(
        login: Option<Login>,
        tls: bool,
        ca_file: Option<&Path>,
    ) -> Result<Access, LoadError> {
        let config = tls.then(|| tls::config(ca_file)).transpose()?;
        Ok(Access {
            login,
            tls: config.map(|config| TlsConnector::from(Arc::new(config))),
        })
    }

    /// As a job says.
    pub fn of(target: &Cql) -> Result<Access, LoadError> {
        Access::new(target.login(), target.tls, target.ca_file.as_deref())
    }

    fn config(&self) -> Option<Arc<ClientConfig>> {
        self.tls.as_ref().map(|tls| tls.config().clone())
    }
}

/// Opens a session that adds nothing of its own: no retries, no second attempts, no compression.
pub async fn connect(
    contact_points: &[SocketAddr],
    reach: Reach,
    keyspace: Option<&str>,
    consistency: Consistency,
    request_timeout: Option<Duration>,
    access: &Access,
) -> Result<Session, NewSessionError> {
    let profile = ExecutionProfile::builder()
        .consistency(consistency.into())
        .serial_consistency(None)
        .request_timeout(request_timeout)
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .speculative_execution_policy(None)
        .build();
    let mut builder = SessionBuilder::new();
    if let Some(Login { user, password }) = &access.login {
        builder = builder.user(user, password.expose());
    }
    if reach == Reach::ContactPoints
        && let Ok(filter) = AllowListHostFilter::new(contact_points)
    {
        builder = builder.host_filter(Arc::new(filter));
    }
    builder
        .known_nodes_addr(contact_points)
        .default_execution_profile_handle(profile.into_handle())
        .compression(None)
        .tls_context(access.config().map(TlsContext::from))
        .tcp_nodelay(true)
        .connection_timeout(CONNECT_TIMEOUT)
        .pool_size(PoolSize::PerHost(std::num::NonZeroUsize::MIN))
        .fetch_schema_metadata(keyspace.is_some())
        .keyspaces_to_fetch(keyspace)
        .auto_await_schema_agreement(keyspace.is_none())
        .driver_config_reporting(false)
        .build()
        .await
}

/// Addresses of contact points, which were checked when the job was read.
pub fn resolve(contact_points: &[String]) -> Vec<SocketAddr> {
    use std::net::ToSocketAddrs;
    contact_points
        .iter()
        .filter_map(|point| point.to_socket_addrs().ok())
        .flatten()
        .collect()
}

impl From<Consistency> for Level {
    fn from(consistency: Consistency) -> Level {
        match consistency {
            Consistency::Any => Level::Any,
            Consistency::One => Level::One,
            Consistency::Two => Level::Two,
            Consistency::Three => Level::Three,
            Consistency::Quorum => Level::Quorum,
            Consistency::All => Level::All,
            Consistency::LocalQuorum => Level::LocalQuorum,
            Consistency::EachQuorum => Level::EachQuorum,
            Consistency::LocalOne => Level::LocalOne,
        }
    }
}
