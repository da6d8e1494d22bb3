//! Statements as text, several in one way to the server, for workloads with many kinds of them.

use std::sync::Arc;

use tokio_rustls::TlsConnector;

pub use super::wire::Answer;
use super::wire::{Wire, WireError};
use super::{Mysql, is_end, problem, servers, takes_changes};
use crate::clients::pool::{Connect, NoConnection, Pool, Server};
use crate::clients::tls;
use crate::error::LoadError;
use crate::job::share::Share;
use crate::workloads::Failure;

/// Makes connections without prepared statements.
pub struct Texts {
    tls: Option<TlsConnector>,
}

/// A connection.
pub struct Session(Wire);

impl Texts {
    /// Connects `count` slots, whose sessions begin with the statements `session`.
    pub async fn connected(
        share: &Share,
        target: &Mysql,
        session: &str,
        count: usize,
    ) -> Result<Pool<Texts>, LoadError> {
        let tls = target.tls.then(|| tls::config(target.ca_file.as_deref()));
        let tls = tls.transpose()?;
        let tls = tls.map(|config| TlsConnector::from(Arc::new(config)));
        let mut servers = servers(share, target);
        for server in &mut servers {
            server.options.push_str("; ");
            server.options.push_str(session);
        }
        let pool = Pool::connected(share.seed, servers, Texts { tls }, count).await;
        Ok(pool.map_err(|why| problem(why, target))?)
    }
}

impl Session {
    /// Does statements, one after the other until one fails; what each of them answered.
    pub async fn ask(&mut self, statements: &str) -> Result<Vec<Answer>, Failure> {
        let answers = self.0.query(statements).await;
        answers.map_err(WireError::into_failure)
    }
}

impl Connect for Texts {
    type Connection = Session;

    async fn connect(&self, server: &Server) -> Result<Session, NoConnection> {
        let mut wire = Wire::connect(server, self.tls.as_ref()).await?;
        if server.read_write && !takes_changes(&mut wire).await? {
            return Err(server.takes_no_changes());
        }
        Ok(Session(wire))
    }

    fn is_open(session: &Session) -> bool {
        session.0.is_open()
    }

    fn is_end(failure: &Failure) -> bool {
        is_end(failure)
    }
}
