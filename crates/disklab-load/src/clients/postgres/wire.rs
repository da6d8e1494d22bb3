//! A connection that speaks PostgreSQL's protocol in the caller's own task: it needs no channel, and no memory for each
//! answer.
//!
//! tokio-postgres hands each request to a task that owns the socket, and each answer back: two wake-ups and four pieces
//! of memory, for a client of which every connection does one statement at a time anyway.
//! **Source:** PostgreSQL 15's manual, chapter 55.

use std::fmt;
use std::io;

use bytes::BytesMut;
use postgres_protocol::IsNull;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::{backend, frontend};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::state_kind;
use crate::clients::pool::{CONNECT_TIMEOUT, NoConnection, Server};
use crate::clients::silence::{Watch, watch};
use crate::clients::stream::{Received, Stream};
use crate::workloads::Failure;

/// A longer message is a mistake of protocol, not a row: 1 GiB is the server's own limit of a value.
const MOST_MESSAGE_BYTES: usize = 1 << 30;

/// The binary form of values, in both directions.
const BINARY: i16 = 1;

/// Why something was not done.
#[derive(Debug)]
pub enum WireError {
    /// The server says so; the connection goes on unless the code is of class 57P.
    Server(Said),
    /// The connection was lost.
    Lost(io::Error),
    /// What came is not PostgreSQL's protocol, or asks for what this client cannot do.
    Protocol(String),
}

/// The server's error.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    severity: String,
    code: String,
    message: String,
    detail: String,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.severity, self.code, self.message)?;
        if self.detail.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", self.detail)
    }
}

impl WireError {
    /// What it is counted as, and what was said.
    pub fn into_failure(self) -> Failure {
        match self {
            WireError::Server(said) => Failure {
                kind: state_kind(&said.code),
                text: said.to_string(),
            },
            WireError::Lost(error) => Failure {
                kind: "connection_lost".into(),
                text: format!("the connection was lost: {error}"),
            },
            WireError::Protocol(text) => Failure {
                kind: "protocol".into(),
                text,
            },
        }
    }
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> WireError {
        WireError::Lost(error)
    }
}

/// A connection. Dropping it closes it, whatever is under way.
pub struct Wire {
    stream: Stream,
    /// Messages that the next `ask` sends.
    out: BytesMut,
    input: Received,
    _watch: Watch,
}

impl Wire {
    /// Connects and logs in.
    pub async fn connect(
        server: &Server,
        tls: Option<&TlsConnector>,
    ) -> Result<Wire, NoConnection> {
        let late = || io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, Wire::log_in(server, tls)).await;
        connected
            .unwrap_or_else(|_| Err(late().into()))
            .map_err(|error| NoConnection::Unreachable(error.into_failure()))
    }

    async fn log_in(server: &Server, tls: Option<&TlsConnector>) -> Result<Wire, WireError> {
        let tcp = TcpStream::connect((server.host.as_str(), server.port)).await?;
        tcp.set_nodelay(true)?;
        let watch = watch(&tcp)?;
        let stream = match tls {
            None => Stream::Plain(tcp),
            Some(tls) => Stream::Tls(Box::new(encrypted(server, tls, tcp).await?)),
        };
        let mut wire = Wire {
            stream,
            out: BytesMut::new(),
            input: Received::default(),
            _watch: watch,
        };
        let parameters = [
            ("user", server.user.as_str()),
            ("database", &server.database),
            ("application_name", "disklab"),
            ("client_encoding", "UTF8"),
            ("options", &server.options),
        ];
        frontend::startup_message(parameters, &mut wire.out)?;
        wire.authenticate(server).await?;
        // Parameters and the key of the backend come before it is ready.
        wire.ask(|_| ()).await?;
        Ok(wire)
    }

    async fn authenticate(&mut self, server: &Server) -> Result<(), WireError> {
        /// Kinds of the server's question. **Source:** the manual, 55.7.
        const OK: u32 = 0;
        const CLEAR_TEXT: u32 = 3;
        const MD5: u32 = 5;
        const SASL: u32 = 10;
        const SASL_CONTINUE: u32 = 11;
        const SASL_FINAL: u32 = 12;
        let password = || {
            let missing = || WireError::Protocol("the server asks for a password".into());
            let password = server.password.as_ref().ok_or_else(missing)?;
            Ok::<&str, WireError>(password.expose())
        };
        let mut scram: Option<ScramSha256> = None;
        loop {
            self.send().await?;
            let Answer { tag, body } = receive(&mut self.input, &mut self.stream).await?;
            let (kind, rest) = match tag {
                backend::AUTHENTICATION_TAG => body.split_first_chunk().ok_or_else(cut_off)?,
                backend::ERROR_RESPONSE_TAG => return Err(WireError::Server(Said::read(body))),
                _ => return Err(unexpected(tag)),
            };
            match (u32::from_be_bytes(*kind), scram.as_mut()) {
                (OK, _) => return Ok(()),
                (CLEAR_TEXT, _) => {
                    frontend::password_message(password()?.as_bytes(), &mut self.out)?;
                }
                (MD5, _) => {
                    let salt = *rest.first_chunk().ok_or_else(cut_off)?;
                    let hash = md5_hash(server.user.as_bytes(), password()?.as_bytes(), salt);
                    frontend::password_message(hash.as_bytes(), &mut self.out)?;
                }
                (SASL, _)
                    if rest
                        .split(|byte| *byte == 0)
                        .any(|name| name == SCRAM_SHA_256.as_bytes()) =>
                {
                    let binding = ChannelBinding::unsupported();
                    let begun = ScramSha256::new(password()?.as_bytes(), binding);
                    frontend::sasl_initial_response(SCRAM_SHA_256, begun.message(), &mut self.out)?;
                    scram = Some(begun);
                }
                (SASL_CONTINUE, Some(scram)) => {
                    scram.update(rest).map_err(not_believed)?;
                    frontend::sasl_response(scram.message(), &mut self.out)?;
                }
                (SASL_FINAL, Some(scram)) => scram.finish(rest).map_err(not_believed)?,
                (kind, _) => {
                    let text = format!(
                        "the server asks for authentication {kind}, which this client cannot do"
                    );
                    return Err(WireError::Protocol(text));
                }
            }
        }
    }

    /// Prepares a statement under a name, with the types of its parameters.
    pub async fn prepare(
        &mut self,
        name: &str,
        statement: &str,
        types: impl IntoIterator<Item = u32>,
    ) -> Result<(), NoConnection> {
        let prepared = async {
            frontend::parse(name, statement, types, &mut self.out)?;
            frontend::sync(&mut self.out);
            self.ask(|_| ()).await
        };
        let refused = |error: WireError| NoConnection::Refused(error.into_failure());
        prepared.await.map_err(refused)
    }

    /// Runs a prepared statement; `put` appends each of `values` in its binary form, `row` sees each row of the answer.
    pub async fn execute<V>(
        &mut self,
        name: &str,
        values: impl IntoIterator<Item = V>,
        put: impl Fn(V, &mut BytesMut),
        row: impl FnMut(RowBytes<'_>),
    ) -> Result<(), WireError> {
        let put = |value: V, out: &mut BytesMut| {
            put(value, out);
            Ok(IsNull::No)
        };
        let bound = frontend::bind("", name, [BINARY], values, put, [BINARY], &mut self.out);
        if bound.is_err() {
            self.out.clear();
            return Err(WireError::Protocol(
                "the values are too long for a message".into(),
            ));
        }
        frontend::execute("", 0, &mut self.out)?;
        frontend::sync(&mut self.out);
        self.ask(row).await
    }

    /// Sends what is to be sent, and returns when the server is ready for more.
    async fn ask(&mut self, mut row: impl FnMut(RowBytes<'_>)) -> Result<(), WireError> {
        self.send().await?;
        let mut failed = None;
        loop {
            let answer = match receive(&mut self.input, &mut self.stream).await {
                Ok(answer) => answer,
                // What the server said before it hung up says more.
                Err(error) => return Err(failed.map_or(error, WireError::Server)),
            };
            match answer.tag {
                backend::DATA_ROW_TAG => row(RowBytes::new(answer.body)?),
                backend::READY_FOR_QUERY_TAG => {
                    return failed.map_or(Ok(()), |said| Err(WireError::Server(said)));
                }
                backend::ERROR_RESPONSE_TAG => failed = Some(Said::read(answer.body)),
                backend::PARSE_COMPLETE_TAG
                | backend::BIND_COMPLETE_TAG
                | backend::COMMAND_COMPLETE_TAG
                | backend::NO_DATA_TAG
                | backend::NOTICE_RESPONSE_TAG
                | backend::NOTIFICATION_RESPONSE_TAG
                | backend::PARAMETER_STATUS_TAG
                | backend::BACKEND_KEY_DATA_TAG => {}
                tag => return Err(unexpected(tag)),
            }
        }
    }

    async fn send(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        let sent = self.stream.send(&self.out).await;
        self.out.clear();
        sent
    }

    /// Whether it can be used: nothing came unasked, which is how a server says goodbye. Costs no system call while the
    /// socket is silent.
    pub fn is_open(&self) -> bool {
        let silent = self.stream.tcp().try_read(&mut [0]);
        silent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

async fn encrypted(
    server: &Server,
    tls: &TlsConnector,
    mut tcp: TcpStream,
) -> Result<TlsStream<TcpStream>, WireError> {
    let mut question = BytesMut::new();
    frontend::ssl_request(&mut question);
    tcp.write_all(&question).await?;
    // One byte and no more: what follows it is inside the encryption.
    if tcp.read_u8().await? != b'S' {
        return Err(WireError::Protocol(
            "the server does not support TLS".into(),
        ));
    }
    let name = ServerName::try_from(server.host.clone());
    let name = name.map_err(|error| WireError::Protocol(error.to_string()))?;
    tls.connect(name, tcp)
        .await
        .map_err(|error| WireError::Protocol(format!("TLS: {error}")))
}

/// A message of the server.
struct Answer<'a> {
    tag: u8,
    body: &'a [u8],
}

/// Returns the next message.
async fn receive<'a>(
    input: &'a mut Received,
    stream: &mut Stream,
) -> Result<Answer<'a>, WireError> {
    /// The tag, and the length of what follows it with itself.
    const HEAD: usize = 5;
    loop {
        let have = input.bytes();
        let mut needed = HEAD;
        if let Some((tag, rest)) = have.split_first()
            && let Some(len) = rest.first_chunk()
        {
            let len = u32::from_be_bytes(*len) as usize;
            if !(4..=MOST_MESSAGE_BYTES).contains(&len) {
                return Err(WireError::Protocol(format!("a message of {len} bytes")));
            }
            needed = len + 1;
            if have.len() >= needed {
                let tag = *tag;
                let body = &input.take(needed)[HEAD..];
                return Ok(Answer { tag, body });
            }
        }
        input.fill(needed, stream).await?;
    }
}

/// A row as it came: its columns in their binary form.
#[derive(Clone, Copy)]
pub struct RowBytes<'a> {
    rest: &'a [u8],
}

impl<'a> RowBytes<'a> {
    fn new(body: &'a [u8]) -> Result<RowBytes<'a>, WireError> {
        // How many columns it has comes first.
        let (_, rest) = body.split_first_chunk::<2>().ok_or_else(cut_off)?;
        Ok(RowBytes { rest })
    }
}

impl<'a> Iterator for RowBytes<'a> {
    /// None inside: NULL.
    type Item = Option<&'a [u8]>;

    /// The next column; None also where the row is cut off.
    fn next(&mut self) -> Option<Option<&'a [u8]>> {
        let (len, rest) = self.rest.split_first_chunk()?;
        let Ok(len) = usize::try_from(i32::from_be_bytes(*len)) else {
            self.rest = rest;
            return Some(None);
        };
        let (column, rest) = rest.split_at_checked(len)?;
        self.rest = rest;
        Some(Some(column))
    }
}

impl Said {
    /// Reads the fields of an ErrorResponse: a letter and a text each. **Source:** the manual, 55.8.
    fn read(body: &[u8]) -> Said {
        let mut said = Said::default();
        for field in body.split(|byte| *byte == 0) {
            let Some((letter, text)) = field.split_first() else {
                continue;
            };
            let place = match letter {
                b'S' => &mut said.severity,
                b'C' => &mut said.code,
                b'M' => &mut said.message,
                b'D' => &mut said.detail,
                _ => continue,
            };
            *place = String::from_utf8_lossy(text).into_owned();
        }
        said
    }
}

fn unexpected(tag: u8) -> WireError {
    WireError::Protocol(format!("an unexpected message {:?}", char::from(tag)))
}

fn cut_off() -> WireError {
    WireError::Protocol("a message is cut off".into())
}

fn not_believed(error: io::Error) -> WireError {
    WireError::Protocol(format!("SCRAM: {error}"))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    #[test]
    fn columns_of_a_row_are_its_bytes_and_what_is_cut_off_ends_it() {
        let mut body = vec![0, 3, 0, 0, 0, 2, 7, 8];
        body.extend((-1_i32).to_be_bytes());
        body.extend([0, 0, 0, 0]);
        let row = RowBytes::new(&body).unwrap();
        assert_eq!(
            row.collect::<Vec<_>>(),
            [Some(&[7_u8, 8][..]), None, Some(&[][..])]
        );
        let cut = RowBytes::new(&body[..7]).unwrap();
        assert_eq!(cut.count(), 0);
        assert!(RowBytes::new(&[0]).is_err());
    }

    #[test]
    fn an_error_has_the_server_s_own_words() {
        let body = b"SERROR\0VERROR\0C40001\0Mcould not serialize\0Dread/write\0Fx.c\0\0";
        let failure = WireError::Server(Said::read(body)).into_failure();
        assert_eq!(failure.kind, "40001 serialization_failure");
        assert_eq!(
            failure.text,
            "ERROR 40001: could not serialize (read/write)"
        );
    }

    /// What an answer becomes on a bad line: bytes changed, and its end cut off.
    fn spoiled(mut bytes: Vec<u8>, changes: &[(Index, u8)], keep: Index) -> Vec<u8> {
        for (at, byte) in changes {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
        }
        bytes.truncate(keep.index(bytes.len() + 1));
        bytes
    }

    proptest! {
        // PROPTEST_CASES asks for more: see `make fuzz`.
        #![proptest_config(ProptestConfig {
            cases: ProptestConfig::default().cases.max(4096),
            ..ProptestConfig::default()
        })]

        #[test]
        fn fuzz_a_row_has_no_more_columns_than_its_bytes_can_hold(
            columns in vec(proptest::option::of(vec(any::<u8>(), 0..9)), 0..6), changes in vec((any::<Index>(), any::<u8>()), 0..6), keep: Index
        ) {
            let mut body = (columns.len() as u16).to_be_bytes().to_vec();
            for column in &columns {
                match column {
                    Some(bytes) => {
                        body.extend((bytes.len() as u32).to_be_bytes());
                        body.extend(bytes);
                    }
                    None => body.extend((-1_i32).to_be_bytes()),
                }
            }
            let whole: Vec<_> = RowBytes::new(&body).unwrap().map(|one| one.map(<[u8]>::to_vec)).collect();
            prop_assert_eq!(&whole, &columns);
            let body = spoiled(body, &changes, keep);
            if let Ok(row) = RowBytes::new(&body) {
                prop_assert!(row.count() * size_of::<u32>() <= body.len());
            }
        }

        #[test]
        fn fuzz_an_error_is_read_whatever_it_says(changes in vec((any::<Index>(), any::<u8>()), 0..6), keep: Index) {
            let body = b"SERROR\0VERROR\0C40001\0Mcould not serialize\0Dread/write\0Fx.c\0\0";
            let body = spoiled(body.to_vec(), &changes, keep);
            let failure = WireError::Server(Said::read(&body)).into_failure();
            // Each byte that is no UTF-8 becomes three.
            prop_assert!(failure.text.len() <= 3 * body.len() + 64);
        }
    }
}
