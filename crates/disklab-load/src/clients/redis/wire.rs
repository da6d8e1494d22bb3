//! A connection that speaks RESP 2, Redis's protocol: commands are arrays of byte strings, and an answer is looked at
//! where it was received.
//!
//! **Source:** Redis's documentation, "Redis serialization protocol specification".

use std::borrow::Cow;
use std::fmt;
use std::io;

use bytes::{BufMut, BytesMut};
use tokio::net::TcpStream;

use crate::clients::pool::{CONNECT_TIMEOUT, NoConnection, Server};
use crate::clients::silence::{Watch, watch};
use crate::clients::stream::{Received, Stream};
use crate::workloads::Failure;

/// The longest line: of a number, a status or an error. Redis's own have a few hundred bytes.
const MOST_LINE_BYTES: usize = 64 << 10;
/// The longest byte string. **Source:** the default of `proto-max-bulk-len`.
const MOST_BULK_BYTES: usize = 512 << 20;
/// The most parts of an answer, far above the columns of a row.
const MOST_PARTS: usize = 1 << 20;

/// Why something was not done.
#[derive(Debug)]
pub enum WireError {
    /// The server says so: `OOM command not allowed ...`.
    Server(String),
    /// The connection was lost.
    Lost(io::Error),
    /// What came is not Redis's protocol, or not the answer to what was asked.
    Protocol(String),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Server(text) | WireError::Protocol(text) => f.write_str(text),
            WireError::Lost(error) => write!(f, "the connection was lost: {error}"),
        }
    }
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> WireError {
        WireError::Lost(error)
    }
}

impl WireError {
    /// What it is counted as, and what was said.
    pub fn into_failure(self) -> Failure {
        Failure {
            kind: match &self {
                WireError::Server(text) => error_kind(text),
                WireError::Lost(_) => "connection_lost".into(),
                WireError::Protocol(_) => "protocol".into(),
            },
            text: self.to_string(),
        }
    }
}

/// What an error of the server is counted as: its first word, which Redis writes in capitals.
fn error_kind(text: &str) -> Cow<'static, str> {
    const MOST_LETTERS: usize = 20;
    let word = text.split(' ').next().unwrap_or_default();
    let is_kind = (2..=MOST_LETTERS).contains(&word.len())
        && word.bytes().all(|byte| byte.is_ascii_uppercase());
    match is_kind {
        true => word.to_ascii_lowercase().into(),
        false => "error".into(),
    }
}

/// An answer, where it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// It was done.
    Status,
    /// A number.
    Number(i64),
    /// Byte strings one after the other.
    Parts(Parts<'a>),
}

/// Byte strings of an answer; None: there is none in this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    left: usize,
    rest: &'a [u8],
}

impl<'a> Iterator for Parts<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Option<&'a [u8]>> {
        self.left = self.left.checked_sub(1)?;
        // They were looked at before: all of them are here.
        let (part, length) = bulk(self.rest).ok()??;
        self.rest = &self.rest[length..];
        Some(part)
    }
}

/// A line without its first byte and its end, and how many bytes it takes with both; None: its end has not come.
fn line(bytes: &[u8]) -> Result<Option<(&str, usize)>, WireError> {
    let shown = &bytes[..bytes.len().min(MOST_LINE_BYTES)];
    let Some(end) = shown.windows(2).position(|pair| pair == b"\r\n") else {
        return match shown.len() {
            MOST_LINE_BYTES => Err(strange("a line without an end")),
            _ => Ok(None),
        };
    };
    let text = shown.get(1..end).unwrap_or_default();
    let text = std::str::from_utf8(text).map_err(|_| strange("a line that is not text"))?;
    Ok(Some((text, end + 2)))
}

/// The length of what follows a line, as the line says; None: there is nothing, not even something empty.
fn length(text: &str, most: usize) -> Result<Option<usize>, WireError> {
    match text.parse::<i64>() {
        Ok(-1) => Ok(None),
        Ok(number) if (0..=most as i64).contains(&number) => Ok(Some(number as usize)),
        _ => Err(strange("a length that is none")),
    }
}

/// A byte string, or that there is none, and how many bytes either takes; None: not all of it has come.
#[allow(clippy::type_complexity)] // one inside the other, as the protocol has it
fn bulk(bytes: &[u8]) -> Result<Option<(Option<&[u8]>, usize)>, WireError> {
    if bytes.first().is_some_and(|kind| *kind != b'$') {
        return Err(strange("a part that is not a byte string"));
    }
    let Some((text, from)) = line(bytes)? else {
        return Ok(None);
    };
    let Some(length) = length(text, MOST_BULK_BYTES)? else {
        return Ok(Some((None, from)));
    };
    let Some(end) = bytes.get(from + length..from + length + 2) else {
        return Ok(None);
    };
    if end != b"\r\n" {
        return Err(strange("a byte string that is longer than it says"));
    }
    Ok(Some((Some(&bytes[from..from + length]), from + length + 2)))
}

/// The first answer of what has come, and how many bytes it takes; None: not all of it has come.
fn answer(bytes: &[u8]) -> Result<Option<(Answer<'_>, usize)>, WireError> {
    let Some((text, from)) = line(bytes)? else {
        return Ok(None);
    };
    let number = || text.parse().map_err(|_| strange("a number that is none"));
    let (mut left, mut end) = (1, 0);
    match bytes[0] {
        b'+' => return Ok(Some((Answer::Status, from))),
        b':' => return Ok(Some((Answer::Number(number()?), from))),
        b'-' => return Err(WireError::Server(text.into())),
        b'$' => {}
        b'*' => (left, end) = (length(text, MOST_PARTS)?.unwrap_or(0), from),
        _ => return Err(strange("this is not Redis")),
    }
    let parts = Parts {
        left,
        rest: &bytes[end..],
    };
    for _ in 0..left {
        let Some((_, length)) = bulk(&bytes[end..])? else {
            return Ok(None);
        };
        end += length;
    }
    Ok(Some((Answer::Parts(parts), end)))
}

fn strange(what: &str) -> WireError {
    WireError::Protocol(format!("what the server says is strange: {what}"))
}

/// A connection. Dropping it closes it, whatever is under way.
pub struct Wire {
    stream: Stream,
    /// The command that is sent next.
    out: BytesMut,
    input: Received,
    _watch: Watch,
}

impl Wire {
    /// Connects and logs in.
    pub async fn connect(server: &Server) -> Result<Wire, NoConnection> {
        let late = || io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, Wire::log_in(server)).await;
        connected
            .unwrap_or_else(|_| Err(late().into()))
            .map_err(|error| NoConnection::Unreachable(error.into_failure()))
    }

    async fn log_in(server: &Server) -> Result<Wire, WireError> {
        let tcp = TcpStream::connect((server.host.as_str(), server.port)).await?;
        tcp.set_nodelay(true)?;
        let watch = watch(&tcp)?;
        let mut wire = Wire {
            stream: Stream::Plain(tcp),
            out: BytesMut::new(),
            input: Received::default(),
            _watch: watch,
        };
        if let Some(password) = &server.password {
            wire.command(2);
            wire.part(b"AUTH");
            wire.part(password.expose().as_bytes());
            wire.ask(|_| Ok(())).await?;
        }
        // A server that starts, or one that wants a password, says so now.
        wire.command(2);
        wire.part(b"EXISTS");
        wire.part(b"");
        wire.ask(|_| Ok(())).await?;
        Ok(wire)
    }

    /// Begins a command of so many parts.
    pub fn command(&mut self, parts: usize) {
        self.out.clear();
        self.head(b'*', parts);
    }

    /// Appends a part of the command.
    pub fn part(&mut self, bytes: &[u8]) {
        self.part_of(bytes.len(), |out| out.put_slice(bytes));
    }

    /// Appends a part of so many bytes, which are written to where they are sent from.
    pub fn part_of(&mut self, bytes: usize, write: impl FnOnce(&mut BytesMut)) {
        self.head(b'$', bytes);
        write(&mut self.out);
        self.out.put_slice(b"\r\n");
    }

    fn head(&mut self, kind: u8, number: usize) {
        self.out.put_u8(kind);
        self.out.put_slice(number.to_string().as_bytes());
        self.out.put_slice(b"\r\n");
    }

    /// Sends the command and looks at its answer.
    pub async fn ask<T>(
        &mut self,
        look: impl FnOnce(Answer<'_>) -> Result<T, WireError>,
    ) -> Result<T, WireError> {
        self.stream.send(&self.out).await?;
        let length = loop {
            let come = self.input.bytes();
            match answer(come) {
                Ok(Some((_, length))) => break length,
                Ok(None) => {}
                // It is one line, and the connection is well.
                Err(WireError::Server(text)) => {
                    let length = line(come)?.map_or(0, |(_, length)| length);
                    self.input.take(length);
                    return Err(WireError::Server(text));
                }
                Err(error) => return Err(error),
            }
            let needed = 2 * come.len();
            self.input.fill(needed, &mut self.stream).await?;
        };
        match answer(self.input.take(length))? {
            Some((answer, _)) => look(answer),
            None => Err(strange("an answer that was whole is not")),
        }
    }

    /// Whether it can be used: nothing came unasked, which is how a server says goodbye. Costs no system call while the
    /// socket is silent.
    pub fn is_open(&self) -> bool {
        let silent = self.stream.tcp().try_read(&mut [0]);
        silent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn parts(bytes: &[u8]) -> Vec<Option<Vec<u8>>> {
        match answer(bytes) {
            Ok(Some((Answer::Parts(parts), length))) if length == bytes.len() => {
                parts.map(|part| part.map(<[u8]>::to_vec)).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    fn encoded(parts: &[Option<Vec<u8>>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
        for part in parts {
            match part {
                None => bytes.extend(b"$-1\r\n"),
                Some(part) => {
                    bytes.extend(format!("${}\r\n", part.len()).bytes());
                    bytes.extend(part);
                    bytes.extend(b"\r\n");
                }
            }
        }
        bytes
    }

    #[test]
    fn answers_are_what_redis_sends() {
        let status = answer(b"+OK\r\nrest").unwrap();
        assert_eq!(status, Some((Answer::Status, 5)));
        let number = answer(b":-12\r\n").unwrap();
        assert_eq!(number, Some((Answer::Number(-12), 6)));
        assert_eq!(parts(b"$2\r\n\r\n\r\n"), [Some(b"\r\n".to_vec())]);
        assert_eq!(parts(b"*2\r\n$0\r\n\r\n$-1\r\n"), [Some(vec![]), None]);
        assert_eq!(parts(b"*-1\r\n"), []);
    }

    #[test]
    fn an_error_is_counted_by_its_first_word() {
        let failure = |text: &[u8]| answer(text).unwrap_err().into_failure();
        let full = failure(b"-OOM command not allowed when used memory > 'maxmemory'.\r\n");
        assert_eq!(full.kind, "oom");
        assert!(full.text.starts_with("OOM command not allowed"));
        assert_eq!(failure(b"-strange\r\n").kind, "error");
        assert_eq!(failure(b"HTTP/1.1 400 Bad Request\r\n").kind, "protocol");
    }

    #[test]
    fn what_is_no_answer_is_refused_and_takes_no_memory() {
        for bytes in [
            &b"$999999999999\r\n"[..],
            b"*9999999\r\n",
            b"$-2\r\n",
            b"$x\r\n",
            b":1.5\r\n",
            b"$1\r\nabc",
            b"*1\r\n:1\r\n",
            b"\xff\xfe\r\n",
        ] {
            let refused = matches!(answer(bytes), Err(WireError::Protocol(_)));
            assert!(refused, "{}", bytes.escape_ascii());
        }
        let endless = [b'+'; MOST_LINE_BYTES];
        assert!(matches!(answer(&endless), Err(WireError::Protocol(_))));
        assert!(answer(&endless[1..]).unwrap().is_none());
    }

    proptest! {
        #[test]
        fn an_answer_that_is_cut_anywhere_is_awaited(
            content in vec(proptest::option::of(vec(any::<u8>(), 0..40)), 0..6),
            next in vec(any::<u8>(), 0..40),
        ) {
            let whole = encoded(&content);
            prop_assert_eq!(parts(&whole), content);
            for end in 0..whole.len() {
                prop_assert!(answer(&whole[..end]).unwrap().is_none(), "{}", end);
            }
            // What follows is the next answer's.
            let longer = [&whole[..], &next].concat();
            let (_, length) = answer(&longer).unwrap().unwrap();
            prop_assert_eq!(length, whole.len());
        }

        #[test]
        fn fuzz_whatever_a_server_says_is_read(bytes in vec(any::<u8>(), 0..200)) {
            if let Ok(Some((Answer::Parts(parts), length))) = answer(&bytes) {
                prop_assert!(length <= bytes.len());
                prop_assert!(parts.count() <= bytes.len());
            }
        }

        #[test]
        fn fuzz_what_is_almost_an_answer(
            content in vec(proptest::option::of(vec(any::<u8>(), 0..20)), 1..4),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut bytes = encoded(&content);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(Some((Answer::Parts(parts), length))) = answer(&bytes) {
                prop_assert!(length <= bytes.len());
                prop_assert!(parts.flatten().all(|part| part.len() < bytes.len()));
            }
        }
    }
}
