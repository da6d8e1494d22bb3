//! A connection to one node, and statements over it one by one: greeting, login, preparation, and what is asked of the
//! cluster itself.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::select_ok;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::frames::{Answer, HEAD_BYTES, Head, Request};
use super::statements::{code, refused};
use super::values::Table;
use crate::clients::silence::{Watch, watch};
use crate::clients::stream::Stream as Bytes;
use crate::clients::tls;
use crate::error::LoadError;
use crate::job::target::{Consistency, Cql, Login};
use crate::workloads::Failure;

/// How long a first connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What is read at once: sixteen rows of 4 KB. More would not stay in the processor's cache until it is compared.
const READ_BYTES: usize = 64 << 10;

/// How a node is spoken to.
#[derive(Clone)]
pub struct Access {
    login: Option<Login>,
    /// What encrypts; none: nothing is.
    tls: Option<TlsConnector>,
}

impl Access {
    /// A login, where the cluster asks for one, with TLS where it is asked for. With `ca_file` a node's certificate must
    /// come from it and have the node's address, which is all that the cluster tells of a node; without, any
    /// certificate will do.
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
}

/// Why a connection failed.
#[derive(Debug)]
pub enum NotOpen {
    /// Nobody answers, or not in this protocol.
    Unreachable(String),
    /// A statement was refused.
    Refused(Failure),
}

/// The bytes of a connection.
pub struct Talk {
    /// To and from the node.
    pub stream: Bytes,
    /// What has come.
    pub input: Input,
    _watch: Watch,
}

/// What a node answers while a connection is opened.
#[derive(Debug)]
enum Said {
    Welcome,
    WhoIsThere,
    /// Of a statement.
    Id(Vec<u8>),
    Table(Table),
    Done {
        schema_changed: bool,
    },
}

impl From<io::Error> for NotOpen {
    fn from(error: io::Error) -> NotOpen {
        NotOpen::Unreachable(error.to_string())
    }
}

impl fmt::Display for NotOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotOpen::Unreachable(why) => f.write_str(why),
            NotOpen::Refused(failure) => f.write_str(&failure.text),
        }
    }
}

impl Talk {
    /// Connects and logs in.
    pub async fn open(address: SocketAddr, access: &Access) -> Result<Talk, NotOpen> {
        let opened = tokio::time::timeout(CONNECT_TIMEOUT, Talk::greet(address, access)).await;
        opened.unwrap_or_else(|_| {
            Err(NotOpen::Unreachable(format!(
                "no answer within {CONNECT_TIMEOUT:?}"
            )))
        })
    }

    /// A connection to the first of these nodes that has one.
    pub async fn open_any(addresses: &[SocketAddr], access: &Access) -> Result<Talk, NotOpen> {
        let opening = addresses
            .iter()
            .map(|address| Box::pin(Talk::open(*address, access)));
        if addresses.is_empty() {
            return Err(NotOpen::Unreachable("no such host".into()));
        }
        select_ok(opening).await.map(|(talk, _)| talk)
    }

    async fn greet(address: SocketAddr, access: &Access) -> Result<Talk, NotOpen> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let watch = watch(&tcp)?;
        let stream = match &access.tls {
            None => Bytes::Plain(tcp),
            Some(tls) => {
                let name = ServerName::IpAddress(address.ip().into());
                Bytes::Tls(Box::new(tls.connect(name, tcp).await?))
            }
        };
        let mut talk = Talk {
            stream,
            input: Input::default(),
            _watch: watch,
        };
        talk.start(access.login.as_ref()).await?;
        Ok(talk)
    }

    /// Where the node is.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.stream.tcp().peer_addr()
    }

    /// Begins the conversation, with a login where the node asks for one.
    async fn start(&mut self, login: Option<&Login>) -> Result<(), NotOpen> {
        let Said::WhoIsThere = self.ask(Request::startup).await? else {
            return Ok(());
        };
        let Some(Login { user, password }) = login else {
            let why = "it asks for a user, and the job names none";
            return Err(NotOpen::Unreachable(why.into()));
        };
        let said = |out: &mut Vec<u8>| Request::login(out, user, password.expose());
        match self.ask(said).await {
            Ok(_) => Ok(()),
            // No statement was refused, but the user was.
            Err(NotOpen::Refused(why)) => Err(NotOpen::Unreachable(why.text)),
            Err(why) => Err(why),
        }
    }

    /// Asks for a statement's id.
    pub async fn prepare(&mut self, statement: &str) -> Result<Vec<u8>, NotOpen> {
        match self.ask(|out| Request::prepare(out, statement)).await? {
            Said::Id(id) => Ok(id),
            other => Err(NotOpen::Unreachable(format!("it answered {other:?}"))),
        }
    }

    /// Asks one statement; all of its rows come at once. Also whether it has changed the schema.
    pub async fn query(
        &mut self,
        statement: &str,
        consistency: Consistency,
    ) -> Result<(Table, bool), NotOpen> {
        let asked = |out: &mut Vec<u8>| Request::query(out, statement, code(consistency));
        match self.ask(asked).await? {
            Said::Table(table) => Ok((table, false)),
            Said::Done { schema_changed } => Ok((Table::default(), schema_changed)),
            other => Err(NotOpen::Unreachable(format!("it answered {other:?}"))),
        }
    }

    /// Wants to hear when nodes come and go.
    pub async fn register(&mut self) -> Result<(), NotOpen> {
        self.ask(Request::register).await.map(drop)
    }

    /// Waits until something has become of the cluster; an error: the connection is lost.
    pub async fn event(&mut self) -> Result<(), NotOpen> {
        while self.input.frame().map_err(NotOpen::Unreachable)?.is_none() {
            poll_fn(|context| self.input.poll_fill(&mut self.stream, context)).await?;
        }
        Ok(())
    }

    /// Sends one request and waits for its answer. Events that come before it are passed over.
    async fn ask(&mut self, request: impl FnOnce(&mut Vec<u8>)) -> Result<Said, NotOpen> {
        let mut out = Vec::new();
        request(&mut out);
        self.stream.send(&out).await?;
        loop {
            if let Some((head, body)) = self.input.frame().map_err(NotOpen::Unreachable)? {
                if head.is_event() {
                    continue;
                }
                return match Answer::read(head, body).map_err(NotOpen::Unreachable)? {
                    Answer::Prepared(id) => Ok(Said::Id(id.to_vec())),
                    Answer::Ready | Answer::Authenticated => Ok(Said::Welcome),
                    Answer::Authenticate => Ok(Said::WhoIsThere),
                    Answer::Table(table) => Ok(Said::Table(table)),
                    Answer::Void => Ok(Said::Done {
                        schema_changed: false,
                    }),
                    Answer::SchemaChanged => Ok(Said::Done {
                        schema_changed: true,
                    }),
                    Answer::Error(code, text) => Err(NotOpen::Refused(refused(code, &text))),
                    other => Err(NotOpen::Unreachable(format!("it answered {other:?}"))),
                };
            }
            poll_fn(|context| self.input.poll_fill(&mut self.stream, context)).await?;
        }
    }
}

/// What was received and not yet looked at: `bytes[from..to]`.
#[derive(Default)]
pub struct Input {
    bytes: Vec<u8>,
    from: usize,
    to: usize,
}

impl Input {
    /// The next whole frame, if it has come.
    pub fn frame(&mut self) -> Result<Option<(Head, &[u8])>, String> {
        let Some(head) = self.bytes[self.from..self.to].first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let head = Head::read(head)?;
        let body = self.from + HEAD_BYTES;
        let end = body + head.body_bytes;
        if end > self.to {
            return Ok(None);
        }
        self.from = end;
        Ok(Some((head, &self.bytes[body..end])))
    }

    /// Bytes of the frame that has begun to come, as far as is known.
    fn needed(&self) -> usize {
        let head = self.bytes[self.from..self.to].first_chunk::<HEAD_BYTES>();
        let body = head.and_then(|head| Head::read(head).ok());
        HEAD_BYTES + body.map_or(0, |head| head.body_bytes)
    }

    /// Receives something.
    pub fn poll_fill(
        &mut self,
        stream: &mut Bytes,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let room = self.needed().max(READ_BYTES);
        self.bytes.copy_within(self.from..self.to, 0);
        self.to -= self.from;
        self.from = 0;
        if self.bytes.len() < room {
            self.bytes.resize(room, 0);
        }
        let mut buffer = ReadBuf::new(&mut self.bytes[self.to..]);
        ready!(Pin::new(stream).poll_read(context, &mut buffer))?;
        match buffer.filled().len() {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            count => {
                self.to += count;
                Poll::Ready(Ok(()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_wherever_they_are_cut() {
        let frame = |stream: u8| [0x84, 0, 0, stream, 8, 0, 0, 0, 4, 0, 0, 0, 1];
        let bytes = [frame(1), frame(2)].concat();
        for cut in 0..bytes.len() {
            let mut input = Input {
                bytes: bytes.clone(),
                from: 0,
                to: cut,
            };
            let mut found = Vec::new();
            for to in [cut, bytes.len()] {
                input.to = to;
                while let Some((head, body)) = input.frame().unwrap() {
                    found.push((head.stream, body.to_vec()));
                }
            }
            let body = vec![0, 0, 0, 1];
            assert_eq!(found, [(1, body.clone()), (2, body)]);
        }
    }
}
