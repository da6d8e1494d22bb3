//! A connection to a member of the cluster: HTTP/2, encrypted or not, with many calls under way.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::Display;
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Method, Request, Version};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::MutualTls;
use super::messages::unprefixed;
use crate::error::{LoadError, Problem};
use crate::workloads::Failure;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What may be on its way to us before we have said that we took it: rows of all calls of a link, and not HTTP/2's
/// 64 KiB, which one large row fills.
const WINDOW_BYTES: u32 = 8 << 20;

/// The largest answer: etcd's own limit of a request is 1.5 MiB, that of its answers 2 GiB.
const MOST_ANSWER_BYTES: usize = 64 << 20;

/// Makes connections.
pub struct Connector {
    tls: Option<TlsConnector>,
}

/// A connection. Clones are the same one.
#[derive(Clone)]
pub struct Link {
    sender: SendRequest<Bytes>,
    authority: Rc<str>,
    scheme: &'static str,
    is_closed: Rc<Cell<bool>>,
}

impl Connector {
    /// Reads the certificates.
    pub fn new(tls: Option<&MutualTls>) -> Result<Connector, LoadError> {
        let tls = tls.map(configured).transpose()?;
        Ok(Connector {
            tls: tls.map(|config| TlsConnector::from(Arc::new(config))),
        })
    }

    /// Connects to `HOST:PORT`.
    pub async fn connect(&self, point: &str) -> Result<Link, Failure> {
        let made = tokio::time::timeout(CONNECT_TIMEOUT, self.made(point)).await;
        made.unwrap_or_else(|_| Err(lost(format!("no connection within {CONNECT_TIMEOUT:?}"))))
            .map_err(|failure| Failure {
                text: format!("{point}: {}", failure.text),
                ..failure
            })
    }

    async fn made(&self, point: &str) -> Result<Link, Failure> {
        let stream = TcpStream::connect(point).await.map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        let Some(tls) = &self.tls else {
            return shaken(stream, point, "http").await;
        };
        // The points were resolved when the job was read; the port is what follows the last colon.
        let host = point.rsplit_once(':').map_or(point, |(host, _)| host);
        let host = host.trim_matches(['[', ']']);
        let name = match host.parse::<IpAddr>() {
            Ok(address) => ServerName::IpAddress(address.into()),
            Err(_) => ServerName::try_from(host.to_string()).map_err(lost)?,
        };
        let stream = tls.connect(name, stream).await.map_err(lost)?;
        shaken(stream, point, "https").await
    }
}

/// Begins HTTP/2, with a task of its own that moves the connection's frames.
async fn shaken<S>(stream: S, point: &str, scheme: &'static str) -> Result<Link, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let (sender, connection) = h2::client::Builder::new()
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .handshake(stream)
        .await
        .map_err(lost)?;
    let is_closed = Rc::new(Cell::new(false));
    let closed = is_closed.clone();
    tokio::task::spawn_local(async move {
        // Each call that is under way gets the error as its own.
        let _ = connection.await;
        closed.set(true);
    });
    Ok(Link {
        sender,
        authority: point.into(),
        scheme,
        is_closed,
    })
}

impl Link {
    /// Whether it was not lost yet, as far as is known without asking.
    pub fn is_open(&self) -> bool {
        !self.is_closed.get()
    }

    /// Calls a method with a message, its prefix before it; returns the answer's message.
    pub async fn call(&self, path: &str, message: Bytes) -> Result<Bytes, Failure> {
        let uri = format!("{}://{}{path}", self.scheme, self.authority);
        let request = Request::builder()
            .method(Method::POST)
            .version(Version::HTTP_2)
            .uri(uri)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .map_err(protocol)?;
        let mut sender = self.sender.clone().ready().await.map_err(lost)?;
        let (answer, body) = sender.send_request(request, false).map_err(lost)?;
        send(body, message).await?;
        let (head, body) = answer.await.map_err(lost)?.into_parts();
        if !head.status.is_success() {
            return Err(protocol(format!("HTTP status {}", head.status)));
        }
        let (bytes, last) = received(body).await?;
        // An answer without a message has its status in its head.
        check(&last.unwrap_or(head.headers))?;
        unprefixed(&bytes).map_err(protocol)
    }
}

/// Sends as much as the server's window lets, and the rest when it opens.
async fn send(mut body: SendStream<Bytes>, mut message: Bytes) -> Result<(), Failure> {
    while !message.is_empty() {
        body.reserve_capacity(message.len());
        let room = match poll_fn(|context| body.poll_capacity(context)).await {
            Some(room) => room.map_err(lost)?,
            None => return Err(lost("the server takes no more of the request")),
        };
        let part = message.split_to(room.min(message.len()));
        body.send_data(part, message.is_empty()).map_err(lost)?;
    }
    Ok(())
}

async fn received(mut body: RecvStream) -> Result<(Bytes, Option<HeaderMap>), Failure> {
    let mut parts = BytesMut::new();
    let mut only = Bytes::new();
    while let Some(part) = body.data().await {
        let part = part.map_err(lost)?;
        body.flow_control()
            .release_capacity(part.len())
            .map_err(lost)?;
        if only.is_empty() && parts.is_empty() {
            // The usual answer is one frame: it is not copied.
            only = part;
            continue;
        }
        if parts.is_empty() {
            parts.extend_from_slice(&only);
        }
        parts.extend_from_slice(&part);
        if parts.len() > MOST_ANSWER_BYTES {
            return Err(protocol("an answer of more than 64 MiB"));
        }
    }
    let bytes = if parts.is_empty() {
        only
    } else {
        parts.freeze()
    };
    Ok((bytes, body.trailers().await.map_err(lost)?))
}

fn check(headers: &HeaderMap) -> Result<(), Failure> {
    let word = |name| headers.get(name).and_then(|value| value.to_str().ok());
    match word("grpc-status") {
        Some("0") => Ok(()),
        Some(code) => Err(Failure {
            kind: status_kind(code),
            text: format!(
                "gRPC {code}: {}",
                word("grpc-message").unwrap_or("no message")
            ),
        }),
        None => Err(protocol("an answer without a gRPC status")),
    }
}

/// What a gRPC status is counted as. **Source:** gRPC's "Status codes and their use".
fn status_kind(code: &str) -> Cow<'static, str> {
    const USUAL: [&str; 6] = [
        "4 deadline_exceeded",
        "8 resource_exhausted",
        "9 failed_precondition",
        "13 internal",
        "14 unavailable",
        "16 unauthenticated",
    ];
    let known = USUAL
        .into_iter()
        .find(|kind| kind.split(' ').next() == Some(code));
    known.map_or_else(|| Cow::Owned(format!("{code} grpc")), Cow::Borrowed)
}

/// The failure of an operation whose connection was lost.
pub fn lost(why: impl Display) -> Failure {
    Failure {
        kind: "connection_lost".into(),
        text: why.to_string(),
    }
}

/// The failure of an operation whose answer is none.
pub fn protocol(why: impl Display) -> Failure {
    Failure {
        kind: "protocol".into(),
        text: why.to_string(),
    }
}

fn configured(tls: &MutualTls) -> Result<ClientConfig, LoadError> {
    let refused = |place: &str, why: &dyn Display| {
        let rule = format!("cannot be used: {why}");
        LoadError::from(Problem::new(place, "PEM", rule, "give it as PEM text"))
    };
    let certificates = |place: &str, text: &str| {
        CertificateDer::pem_slice_iter(text.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| refused(place, &error))
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates("target.tls.authority", &tls.authority)? {
        let added = roots.add(certificate);
        added.map_err(|error| refused("target.tls.authority", &error))?;
    }
    let own = certificates("target.tls.certificate", &tls.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(tls.key.expose().as_bytes())
        .map_err(|error| refused("target.tls.key", &error))?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused("target.tls", &error))?
        .with_root_certificates(roots)
        .with_client_auth_cert(own, key)
        .map_err(|error| refused("target.tls.certificate", &error))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}
