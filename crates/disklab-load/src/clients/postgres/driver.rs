//! Connections of tokio-postgres, for workloads with many kinds of statements.

use std::error::Error as _;
use std::fmt::Display;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_postgres::{Client, Config, Error, NoTls};
use tokio_rustls::TlsConnector;

use super::{TAKES_CHANGES, connected, is_end, state_kind};
use crate::clients::pool::{CONNECT_TIMEOUT, Connect, NoConnection, Pool, Server};
use crate::clients::silence::{Watch, watch};
use crate::clients::stream::Stream;
use crate::clients::tls;
use crate::error::LoadError;
use crate::job::share::Share;
use crate::job::target::Postgresql;
use crate::workloads::Failure;

/// The statements of a workload, prepared once on each connection.
pub trait Statements {
    /// The prepared ones.
    type Prepared;

    /// Prepares them.
    fn prepare(&self, client: &Client) -> impl Future<Output = Result<Self::Prepared, Error>>;
}

/// Makes connections of the driver.
pub struct Driver<S> {
    tls: Option<TlsConnector>,
    statements: S,
}

/// A connection with its prepared statements. Dropping it closes the connection at once, whatever is under way.
pub struct Session<P> {
    /// What asks.
    pub client: Client,
    /// Its statements.
    pub prepared: P,
    driver: JoinHandle<()>,
}

impl<P> Drop for Session<P> {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl<S: Statements> Pool<Driver<S>> {
    /// Connects `count` slots to the servers in turn and prepares their statements.
    ///
    /// `settings` are run-time parameters of the sessions.
    pub async fn open(
        share: &Share,
        target: &Postgresql,
        settings: &[(&str, &str)],
        statements: S,
        count: usize,
    ) -> Result<Pool<Driver<S>>, LoadError> {
        let tls = target.tls.then(|| tls::config(target.ca_file.as_deref()));
        let tls = tls.transpose()?;
        let tls = tls.map(|config| TlsConnector::from(Arc::new(config)));
        connected(share, target, settings, Driver { tls, statements }, count).await
    }
}

/// Encrypts a connection to the server of that name.
struct Encrypting<'a>(&'a TlsConnector, ServerName<'static>);

impl<'a> TlsConnect<TcpStream> for Encrypting<'a> {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + 'a>>;

    fn connect(self, tcp: TcpStream) -> Self::Future {
        let Encrypting(tls, name) = self;
        Box::pin(async move { Ok(Stream::Tls(Box::new(tls.connect(name, tcp).await?))) })
    }
}

impl TlsStream for Stream {
    /// As with our own connections, a password is not bound to the certificate.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: Statements> Connect for Driver<S> {
    type Connection = Session<S::Prepared>;

    async fn connect(&self, server: &Server) -> Result<Self::Connection, NoConnection> {
        let unreachable = |error: Error| NoConnection::Unreachable(failure(&error));
        let lost = |error: &dyn Display| {
            NoConnection::Unreachable(Failure {
                kind: "connection_lost".into(),
                text: format!("error connecting to server: {error}"),
            })
        };
        let (tcp, watch) = opened(server).await.map_err(|error| lost(&error))?;
        let config = config(server, self.tls.is_some());
        let (client, driver) = match &self.tls {
            Some(tls) => {
                let name = ServerName::try_from(server.host.clone());
                let name = name.map_err(|error| lost(&error))?;
                let connected = config.connect_raw(tcp, Encrypting(tls, name)).await;
                let (client, connection) = connected.map_err(unreachable)?;
                (client, tokio::task::spawn_local(drive(connection, watch)))
            }
            None => {
                let connected = config.connect_raw(tcp, NoTls).await;
                let (client, connection) = connected.map_err(unreachable)?;
                (client, tokio::task::spawn_local(drive(connection, watch)))
            }
        };
        if server.read_write {
            let said = client.query_one(TAKES_CHANGES, &[]).await;
            let said = said.and_then(|row| row.try_get(0)).map_err(unreachable);
            if !matches!(said, Ok(true)) {
                driver.abort();
                return Err(said.err().unwrap_or_else(|| server.takes_no_changes()));
            }
        }
        match self.statements.prepare(&client).await {
            Ok(prepared) => Ok(Session {
                client,
                prepared,
                driver,
            }),
            Err(error) => {
                driver.abort();
                Err(NoConnection::Refused(failure(&error)))
            }
        }
    }

    fn is_open(session: &Self::Connection) -> bool {
        !session.client.is_closed()
    }

    fn is_end(failure: &Failure) -> bool {
        is_end(failure)
    }
}

/// Opens a connection, which ends when its far end is silent.
async fn opened(server: &Server) -> io::Result<(TcpStream, Watch)> {
    let connecting = TcpStream::connect((server.host.as_str(), server.port));
    let tcp = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await??;
    tcp.set_nodelay(true)?;
    let watch = watch(&tcp)?;
    Ok((tcp, watch))
}

/// Sends and receives until the connection ends; why it does is told to the operation that waits.
async fn drive(connection: impl Future<Output = Result<(), Error>>, _watch: Watch) {
    let _ = connection.await;
}

fn config(server: &Server, tls: bool) -> Config {
    let mut config = Config::new();
    config
        .host(&server.host)
        .port(server.port)
        .dbname(&server.database)
        .user(&server.user)
        .application_name("disklab")
        .ssl_mode(if tls {
            SslMode::Require
        } else {
            SslMode::Disable
        })
        .options(&server.options);
    if let Some(password) = &server.password {
        config.password(password.expose());
    }
    config
}

/// What an error is counted as: the server's SQLSTATE with its name where it is a usual one.
pub fn failure(error: &Error) -> Failure {
    let kind = match error.as_db_error() {
        Some(said) => state_kind(said.code().code()),
        None if error.is_closed() || has_io_source(error) => "connection_lost".into(),
        None => "protocol".into(),
    };
    Failure {
        kind,
        text: described(error),
    }
}

fn has_io_source(error: &Error) -> bool {
    error
        .source()
        .is_some_and(|source| source.is::<std::io::Error>())
}

/// The server's own words, or the chain of what went wrong here.
fn described(error: &Error) -> String {
    if let Some(said) = error.as_db_error() {
        let detail = said.detail().map(|text| format!(" ({text})"));
        return format!(
            "{} {}: {}{}",
            said.severity(),
            said.code().code(),
            said.message(),
            detail.unwrap_or_default()
        );
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // The driver repeats some of its causes.
        if !text.ends_with(&cause_text) {
            text.push_str(&format!(": {cause_text}"));
        }
        source = cause.source();
    }
    text
}
