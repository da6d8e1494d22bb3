//! A connection that speaks MySQL's protocol in the caller's own task: it needs no channel, and no memory for each
//! answer.
//!
//! **Source:** MariaDB's documentation, "MariaDB Connection Protocol"; what each part is called is its.

use std::fmt;
use std::io;

use bytes::{Buf, BufMut, BytesMut};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::code_kind;
use crate::clients::pool::{CONNECT_TIMEOUT, NoConnection, Server};
use crate::clients::silence::{Watch, watch};
use crate::clients::stream::{Received, Stream};
use crate::workloads::Failure;

/// A longer packet goes on in a second one, which neither we nor rows of the usual benchmarks have.
const MOST_PACKET_BYTES: usize = (1 << 24) - 1;
/// Length and number of a packet.
const HEAD: usize = 4;
/// What the server may send at once: its own largest.
const MOST_ANSWER_BYTES: u32 = 1 << 30;
/// utf8mb4_general_ci: names are text, values bytes.
const CHARSET: u8 = 45;
const NATIVE: &str = "mysql_native_password";
const SCRAMBLE_BYTES: usize = 20;

/// First bytes of packets.
const OK: u8 = 0;
const MORE: u8 = 1;
const END: u8 = 0xFE;
const ERROR: u8 = 0xFF;
/// The row of an answer to a prepared statement.
const ROW: u8 = 0;

const QUERY: u8 = 3;
const PREPARE: u8 = 0x16;
const EXECUTE: u8 = 0x17;

/// Types of parameters and columns: an integer of 8 bytes, and bytes.
const INTEGER: u8 = 8;
const BLOB: u8 = 252;

/// What both sides can do.
mod can {
    pub const MYSQL: u64 = 1;
    pub const CONNECT_WITH_DB: u64 = 1 << 3;
    pub const PROTOCOL_41: u64 = 1 << 9;
    pub const TLS: u64 = 1 << 11;
    pub const TRANSACTIONS: u64 = 1 << 13;
    pub const SECURE_CONNECTION: u64 = 1 << 15;
    pub const SEVERAL_STATEMENTS: u64 = 1 << 16;
    pub const SEVERAL_ANSWERS: u64 = 1 << 17;
    pub const PLUGIN_AUTH: u64 = 1 << 19;
    pub const DEPRECATE_EOF: u64 = 1 << 24;
    /// MariaDB's own: columns are described once, and not with each answer.
    pub const CACHE_METADATA: u64 = 1 << 36;
    pub const NEEDED: u64 = CONNECT_WITH_DB
        | PROTOCOL_41
        | TRANSACTIONS
        | SECURE_CONNECTION
        | SEVERAL_STATEMENTS
        | SEVERAL_ANSWERS
        | PLUGIN_AUTH
        | DEPRECATE_EOF;
}

/// Why something was not done.
#[derive(Debug)]
pub enum WireError {
    /// The server says so.
    Server { code: u16, text: String },
    /// The connection was lost.
    Lost(io::Error),
    /// What came is not MySQL's protocol, or asks for what this client cannot do.
    Protocol(String),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Server { code, text } => write!(f, "error {code}: {text}"),
            WireError::Lost(error) => write!(f, "the connection was lost: {error}"),
            WireError::Protocol(text) => f.write_str(text),
        }
    }
}

impl WireError {
    /// What it is counted as, and what was said.
    pub fn into_failure(self) -> Failure {
        Failure {
            kind: match &self {
                WireError::Server { code, .. } => code_kind(*code),
                WireError::Lost(_) => "connection_lost".into(),
                WireError::Protocol(_) => "protocol".into(),
            },
            text: self.to_string(),
        }
    }
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> WireError {
        WireError::Lost(error)
    }
}

/// A statement of a connection.
#[derive(Debug)]
pub struct Prepared {
    number: u32,
    parameters: u16,
    /// Types of the columns of its rows.
    columns: Vec<u8>,
    /// The server knows the types of its parameters.
    is_bound: bool,
}

/// A parameter.
pub enum Parameter<W> {
    /// A whole number.
    Integer(i64),
    /// Bytes: how many, and what writes them.
    Bytes(usize, W),
}

/// What a statement answered.
#[derive(Debug)]
pub struct Answer {
    /// Its rows as text; None: NULL.
    pub rows: Vec<Vec<Option<String>>>,
    /// How many rows it changed.
    pub changed: u64,
}

/// Of the state in the last packet of an answer: another one follows.
const MORE_ANSWERS: u16 = 8;

/// A connection. Dropping it closes it, whatever is under way.
pub struct Wire {
    stream: Stream,
    /// Packets that are sent next.
    out: BytesMut,
    input: Received,
    /// Number of the next packet of this exchange.
    next: u8,
    caches_metadata: bool,
    _watch: Watch,
}

impl Wire {
    /// Connects, logs in and sets the session.
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
        let mut wire = Wire {
            stream: Stream::Plain(tcp),
            out: BytesMut::new(),
            input: Received::default(),
            next: 0,
            caches_metadata: false,
            _watch: watch,
        };
        let greeting = Greeting::read(wire.receive().await?)?;
        let mut asked = can::NEEDED | (can::CACHE_METADATA & greeting.can);
        if greeting.can & can::NEEDED != can::NEEDED {
            let text = "the server is older than MariaDB 10.2 or MySQL 5.7.5";
            return Err(WireError::Protocol(text.into()));
        }
        wire.caches_metadata = asked & can::CACHE_METADATA != 0;
        if let Some(tls) = tls {
            if greeting.can & can::TLS == 0 {
                return Err(WireError::Protocol(
                    "the server does not support TLS".into(),
                ));
            }
            asked |= can::TLS;
            wire.packet(|out| put_head(asked, out))?;
            wire.send().await?;
            wire = wire.encrypted(server, tls).await?;
        }
        wire.authenticate(server, asked, &greeting).await?;
        let session = server.options.clone();
        wire.query(&session).await?;
        Ok(wire)
    }

    async fn encrypted(self, server: &Server, tls: &TlsConnector) -> Result<Wire, WireError> {
        let name = ServerName::try_from(server.host.clone());
        let name = name.map_err(|error| WireError::Protocol(error.to_string()))?;
        let Stream::Plain(tcp) = self.stream else {
            return Err(WireError::Protocol("it is encrypted already".into()));
        };
        let stream = tls.connect(name, tcp).await;
        let stream = stream.map_err(|error| WireError::Protocol(format!("TLS: {error}")))?;
        Ok(Wire {
            stream: Stream::Tls(Box::new(stream)),
            ..self
        })
    }

    async fn authenticate(
        &mut self,
        server: &Server,
        asked: u64,
        greeting: &Greeting,
    ) -> Result<(), WireError> {
        let password = server.password.as_ref().map_or("", |one| one.expose());
        let answer = scrambled(password, &greeting.scramble);
        self.packet(|out| {
            put_head(asked, out);
            put_text(&server.user, out);
            out.put_u8(answer.len() as u8);
            out.put_slice(&answer);
            put_text(&server.database, out);
            put_text(NATIVE, out);
        })?;
        loop {
            self.send().await?;
            let body = self.receive().await?;
            match body.first() {
                Some(&OK) => return Ok(()),
                Some(&END) => {
                    let mut parts = body[1..].splitn(2, |byte| *byte == 0);
                    let method = parts.next().unwrap_or_default();
                    if method != NATIVE.as_bytes() {
                        let text = format!(
                            "the server asks for {}, and this client has {NATIVE}",
                            String::from_utf8_lossy(method)
                        );
                        return Err(WireError::Protocol(text));
                    }
                    let scramble = parts.next().and_then(|rest| rest.first_chunk());
                    let answer = scrambled(password, scramble.ok_or_else(cut_off)?);
                    self.packet(|out| out.put_slice(&answer))?;
                }
                _ => return Err(refusal(body)),
            }
        }
    }

    /// Prepares a statement.
    pub async fn prepare(&mut self, statement: &str) -> Result<Prepared, NoConnection> {
        let prepared = self.prepared(statement).await;
        prepared.map_err(|error| NoConnection::Refused(error.into_failure()))
    }

    async fn prepared(&mut self, statement: &str) -> Result<Prepared, WireError> {
        self.command(|out| {
            out.put_u8(PREPARE);
            out.put_slice(statement.as_bytes());
        })?;
        self.send().await?;
        let mut body = self.receive().await?;
        if body.first() != Some(&OK) {
            return Err(refusal(body));
        }
        let told = "a prepared statement has a number and counts";
        let told = || WireError::Protocol(told.into());
        body.advance(1);
        let number = body.try_get_u32_le().map_err(|_| told())?;
        let columns = body.try_get_u16_le().map_err(|_| told())?;
        let parameters = body.try_get_u16_le().map_err(|_| told())?;
        for _ in 0..parameters {
            self.receive().await?;
        }
        let mut prepared = Prepared {
            number,
            parameters,
            columns: Vec::new(),
            is_bound: false,
        };
        for _ in 0..columns {
            let kind = type_of(self.receive().await?)?;
            prepared.columns.push(kind);
        }
        Ok(prepared)
    }

    /// Runs a prepared statement; `row` sees each row of the answer.
    pub async fn execute<W: FnOnce(&mut BytesMut)>(
        &mut self,
        prepared: &mut Prepared,
        parameters: impl ExactSizeIterator<Item = Parameter<W>>,
        mut row: impl FnMut(RowBytes<'_>),
    ) -> Result<(), WireError> {
        debug_assert_eq!(parameters.len(), usize::from(prepared.parameters));
        let is_bound = prepared.is_bound;
        let types = if is_bound { 0 } else { 2 * parameters.len() };
        self.command(|out| {
            out.put_u8(EXECUTE);
            out.put_u32_le(prepared.number);
            // No cursor, and one run of it.
            out.put_u8(0);
            out.put_u32_le(1);
            if parameters.len() == 0 {
                return;
            }
            // None of them is NULL.
            out.put_bytes(0, parameters.len().div_ceil(8));
            out.put_u8(u8::from(!is_bound));
            let mut type_at = out.len();
            out.put_bytes(0, types);
            for parameter in parameters {
                let kind = match parameter {
                    Parameter::Integer(number) => {
                        out.put_i64_le(number);
                        INTEGER
                    }
                    Parameter::Bytes(count, write) => {
                        put_length(count, out);
                        write(out);
                        BLOB
                    }
                };
                if !is_bound {
                    out[type_at] = kind;
                    type_at += 2;
                }
            }
        })?;
        let columns = &prepared.columns;
        self.send().await?;
        self.answer(|body| match body.split_first() {
            Some((&ROW, rest)) => {
                row(RowBytes::new(columns, rest)?);
                Ok(())
            }
            _ => Err(cut_off()),
        })
        .await?;
        prepared.is_bound = true;
        Ok(())
    }

    /// Runs statements as text, one after the other until one fails; what each of them answered.
    pub async fn query(&mut self, statements: &str) -> Result<Vec<Answer>, WireError> {
        self.command(|out| {
            out.put_u8(QUERY);
            out.put_slice(statements.as_bytes());
        })?;
        self.send().await?;
        let mut answers = Vec::new();
        loop {
            let mut rows = Vec::new();
            let row = |body: &[u8]| {
                rows.push(text_row(body).ok_or_else(cut_off)?);
                Ok(())
            };
            let (changed, state) = self.answer(row).await?;
            answers.push(Answer { rows, changed });
            if state & MORE_ANSWERS == 0 {
                return Ok(answers);
            }
        }
    }

    /// Takes the answer of a statement, whose rows `row` sees; returns how many rows were changed, and the state.
    async fn answer(
        &mut self,
        mut row: impl FnMut(&[u8]) -> Result<(), WireError>,
    ) -> Result<(u64, u16), WireError> {
        let caches_metadata = self.caches_metadata;
        let mut body = self.receive().await?;
        match body.first() {
            Some(&OK) => return end_of(body).ok_or_else(cut_off),
            Some(&ERROR) | None => return Err(refusal(body)),
            Some(_) => {}
        }
        let columns = take_length(&mut body).ok_or_else(cut_off)?;
        if !caches_metadata || body.first() == Some(&MORE) {
            for _ in 0..columns {
                self.receive().await?;
            }
        }
        // Every row is read, wrong ones too: a row left unread would be taken for the answer to the next command.
        let mut wrong = None;
        loop {
            let body = self.receive().await?;
            match body.first() {
                Some(&END) if body.len() < MOST_PACKET_BYTES => {
                    let end = end_of(body).ok_or_else(cut_off)?;
                    return wrong.map_or(Ok(end), Err);
                }
                Some(&ERROR) | None => return Err(refusal(body)),
                Some(_) => {
                    if let Err(error) = row(body) {
                        wrong.get_or_insert(error);
                    }
                }
            }
        }
    }

    /// Appends the first packet of an exchange.
    fn command(&mut self, put: impl FnOnce(&mut BytesMut)) -> Result<(), WireError> {
        self.next = 0;
        self.packet(put)
    }

    /// Appends a packet.
    fn packet(&mut self, put: impl FnOnce(&mut BytesMut)) -> Result<(), WireError> {
        self.out.clear();
        self.out.put_u32_le(0);
        put(&mut self.out);
        let len = self.out.len() - HEAD;
        if len >= MOST_PACKET_BYTES {
            self.out.clear();
            let text = format!("{len} bytes are too long for a packet");
            return Err(WireError::Protocol(text));
        }
        let head = (len as u32) | (u32::from(self.next) << 24);
        self.out[..HEAD].copy_from_slice(&head.to_le_bytes());
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    async fn send(&mut self) -> io::Result<()> {
        let sent = self.stream.send(&self.out).await;
        self.out.clear();
        sent
    }

    /// Returns the next packet, without its head.
    async fn receive(&mut self) -> Result<&[u8], WireError> {
        loop {
            let mut needed = HEAD;
            if let Some(head) = self.input.bytes().first_chunk::<HEAD>() {
                let head = u32::from_le_bytes(*head);
                let len = (head & 0x00FF_FFFF) as usize;
                if len == MOST_PACKET_BYTES {
                    let text = "an answer of 16 MiB and more";
                    return Err(WireError::Protocol(text.into()));
                }
                needed += len;
                if self.input.bytes().len() >= needed {
                    self.next = ((head >> 24) as u8).wrapping_add(1);
                    return Ok(&self.input.take(needed)[HEAD..]);
                }
            }
            self.input.fill(needed, &mut self.stream).await?;
        }
    }

    /// Whether it can be used: nothing came unasked, which is how a server says goodbye. Costs no system call while the
    /// socket is silent.
    pub fn is_open(&self) -> bool {
        let silent = self.stream.tcp().try_read(&mut [0]);
        silent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// What a server says first.
struct Greeting {
    can: u64,
    scramble: [u8; SCRAMBLE_BYTES],
}

impl Greeting {
    fn read(body: &[u8]) -> Result<Greeting, WireError> {
        const VERSION: u8 = 10;
        if body.first() == Some(&ERROR) {
            return Err(refusal(body));
        }
        Greeting::parts(body)
            .filter(|_| body.first() == Some(&VERSION))
            .ok_or_else(|| WireError::Protocol("this is not MySQL or MariaDB".into()))
    }

    fn parts(body: &[u8]) -> Option<Greeting> {
        let name_end = body.iter().position(|byte| *byte == 0)?;
        let mut rest = body.get(name_end + 1..)?;
        let _connection = rest.try_get_u32_le().ok()?;
        let (first, after) = rest.split_at_checked(8)?;
        let mut scramble = [0; SCRAMBLE_BYTES];
        scramble[..8].copy_from_slice(first);
        rest = after.get(1..)?;
        let low = rest.try_get_u16_le().ok()?;
        // Character set and state.
        rest = rest.get(3..)?;
        let high = rest.try_get_u16_le().ok()?;
        let mut can = u64::from(low) | (u64::from(high) << 16);
        // The length of the scramble, and what nobody uses.
        rest = rest.get(7..)?;
        let extended = rest.try_get_u32_le().ok()?;
        if can & can::MYSQL == 0 {
            can |= u64::from(extended) << 32;
        }
        scramble[8..].copy_from_slice(rest.get(..SCRAMBLE_BYTES - 8)?);
        Some(Greeting { can, scramble })
    }
}

/// The first part of what a client says of itself.
fn put_head(can: u64, out: &mut BytesMut) {
    out.put_u32_le(can as u32);
    out.put_u32_le(MOST_ANSWER_BYTES);
    out.put_u8(CHARSET);
    out.put_bytes(0, 19);
    out.put_u32_le((can >> 32) as u32);
}

fn put_text(text: &str, out: &mut BytesMut) {
    out.put_slice(text.as_bytes());
    out.put_u8(0);
}

/// What is answered with `mysql_native_password`: nobody who listens learns the password, or what the server keeps.
fn scrambled(password: &str, scramble: &[u8; SCRAMBLE_BYTES]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let hash = |bytes: &[u8]| digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes);
    let first = hash(password.as_bytes());
    let kept = hash(first.as_ref());
    let mask = hash(&[&scramble[..], kept.as_ref()].concat());
    let pairs = first.as_ref().iter().zip(mask.as_ref());
    pairs.map(|(one, other)| one ^ other).collect()
}

/// The error in a packet that came instead of the expected answer.
fn refusal(body: &[u8]) -> WireError {
    let parts = body.split_first().and_then(|(kind, rest)| {
        let (code, text) = rest.split_first_chunk()?;
        (*kind == ERROR).then(|| (u16::from_le_bytes(*code), text))
    });
    let Some((code, text)) = parts else {
        let kind = body.first();
        return WireError::Protocol(format!("an unexpected packet, which begins with {kind:?}"));
    };
    // A mark and five letters of the state come first, but for errors before the log-in.
    let text = match text {
        [b'#', rest @ ..] => rest.get(5..).unwrap_or_default(),
        _ => text,
    };
    let text = String::from_utf8_lossy(text).into_owned();
    WireError::Server { code, text }
}

/// The type of a column, of its description: five texts, an extended one with MariaDB's, and numbers of fixed length.
fn type_of(mut body: &[u8]) -> Result<u8, WireError> {
    // Catalog, schema, table and column, the latter two with their own names.
    for _ in 0..6 {
        take_bytes(&mut body).ok_or_else(cut_off)?;
    }
    // The length of what follows, the character set and the width.
    body.get(7).copied().ok_or_else(cut_off)
}

fn put_length(length: usize, out: &mut BytesMut) {
    match length {
        0..=250 => out.put_u8(length as u8),
        251..=0xFFFF => {
            out.put_u8(0xFC);
            out.put_u16_le(length as u16);
        }
        _ => {
            out.put_u8(0xFD);
            out.put_uint_le(length as u64, 3);
        }
    }
}

fn take_length(from: &mut &[u8]) -> Option<u64> {
    let (first, rest) = from.split_first()?;
    *from = rest;
    match first {
        0..=250 => Some(u64::from(*first)),
        0xFC => from.try_get_u16_le().ok().map(u64::from),
        0xFD => from.try_get_uint_le(3).ok(),
        0xFE => from.try_get_u64_le().ok(),
        _ => None,
    }
}

fn take_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_length(from)?;
    let (bytes, rest) = from.split_at_checked(usize::try_from(length).ok()?)?;
    *from = rest;
    Some(bytes)
}

/// How many rows were changed, and the state, of the last packet of an answer.
fn end_of(mut body: &[u8]) -> Option<(u64, u16)> {
    body.advance(1);
    let changed = take_length(&mut body)?;
    let _last_number = take_length(&mut body)?;
    Some((changed, body.try_get_u16_le().ok()?))
}

/// The columns of a row as text.
fn text_row(mut body: &[u8]) -> Option<Vec<Option<String>>> {
    const NULL: u8 = 0xFB;
    let mut columns = Vec::new();
    while let Some(first) = body.first() {
        columns.push(if *first == NULL {
            body.advance(1);
            None
        } else {
            Some(String::from_utf8_lossy(take_bytes(&mut body)?).into_owned())
        });
    }
    Some(columns)
}

/// A row as it came: its columns in their binary form.
#[derive(Clone, Copy)]
pub struct RowBytes<'a> {
    columns: &'a [u8],
    /// A bit for each column that is NULL, after two that say nothing.
    nulls: &'a [u8],
    rest: &'a [u8],
    at: usize,
}

impl<'a> RowBytes<'a> {
    fn new(columns: &'a [u8], body: &'a [u8]) -> Result<RowBytes<'a>, WireError> {
        let nulls = (columns.len() + 2).div_ceil(8);
        let (nulls, rest) = body.split_at_checked(nulls).ok_or_else(cut_off)?;
        Ok(RowBytes {
            columns,
            nulls,
            rest,
            at: 0,
        })
    }
}

impl<'a> Iterator for RowBytes<'a> {
    /// None inside: NULL.
    type Item = Option<&'a [u8]>;

    /// The next column; None also where the row is cut off.
    fn next(&mut self) -> Option<Option<&'a [u8]>> {
        let kind = *self.columns.get(self.at)?;
        let bit = self.at + 2;
        self.at += 1;
        if self.nulls[bit / 8] & (1 << (bit % 8)) != 0 {
            return Some(None);
        }
        if kind != INTEGER {
            return take_bytes(&mut self.rest).map(Some);
        }
        let (number, rest) = self.rest.split_at_checked(size_of::<i64>())?;
        self.rest = rest;
        Some(Some(number))
    }
}

fn cut_off() -> WireError {
    WireError::Protocol("a packet is cut off".into())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_password_is_answered_as_mariadb_s_own_client_does() {
        // From libmariadb 3.3.19 (`ma_scramble_41`), 2026-11-27, is SHA1(p) ^ SHA1(scramble + SHA1(SHA1(p))).
        let scramble = *b"01234567890123456789";
        let answer = scrambled("secret", &scramble);
        let hash = |bytes: &[u8]| digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes);
        let kept = hash(hash(b"secret").as_ref());
        let mask = hash(&[&scramble[..], kept.as_ref()].concat());
        let first: Vec<u8> = answer
            .iter()
            .zip(mask.as_ref())
            .map(|(a, b)| a ^ b)
            .collect();
        // The server, which keeps only `kept`, is convinced.
        assert_eq!(hash(&first).as_ref(), kept.as_ref());
        assert!(scrambled("", &scramble).is_empty());
    }

    #[test]
    fn an_error_has_the_server_s_own_words() {
        let body = b"\xff\xbd\x04#40001Deadlock found";
        let failure = refusal(body).into_failure();
        assert_eq!(failure.kind, "1213 deadlock");
        assert_eq!(failure.text, "error 1213: Deadlock found");
        let early = refusal(b"\xff\x10\x04Too many connections").into_failure();
        assert_eq!(early.text, "error 1040: Too many connections");
    }

    #[test]
    fn columns_of_a_row_are_its_bytes_and_what_is_cut_off_ends_it() {
        let columns = [INTEGER, BLOB, BLOB];
        let mut body = vec![0b1000, 7, 0, 0, 0, 0, 0, 0, 0];
        body.extend([2, 8, 9]);
        let row = RowBytes::new(&columns, &body).unwrap();
        let number = 7_i64.to_le_bytes();
        let whole: Vec<_> = row.collect();
        assert_eq!(whole, [Some(&number[..]), None, Some(&[8, 9][..])]);
        let cut = RowBytes::new(&columns, &body[..11]).unwrap();
        assert_eq!(cut.count(), 2);
        assert!(RowBytes::new(&columns, &[]).is_err());
    }

    proptest! {
        #[test]
        fn lengths_come_back(length in 0_usize..MOST_PACKET_BYTES) {
            let mut out = BytesMut::new();
            put_length(length, &mut out);
            prop_assert_eq!(take_length(&mut &out[..]), Some(length as u64));
        }

        #[test]
        fn fuzz_whatever_a_server_says_is_read(body in vec(any::<u8>(), 0..200)) {
            let _ = Greeting::read(&body);
            let _ = refusal(&body).into_failure();
            let _ = text_row(&body);
            let _ = (!body.is_empty()).then(|| end_of(&body));
            let _ = type_of(&body);
            if let Ok(row) = RowBytes::new(&[INTEGER, BLOB, BLOB], &body) {
                prop_assert!(row.count() <= 3);
            }
        }
    }
}
