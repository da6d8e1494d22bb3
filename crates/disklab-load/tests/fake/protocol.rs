//! As much of the native protocol, version 4, as a client needs to read and write rows.
//!
//! **Source:** Apache Cassandra, doc/native_protocol_v4.spec.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};

/// A request as it came.
pub struct Frame {
    /// Number that the answer carries, too.
    pub stream: i16,
    opcode: u8,
    body: Vec<u8>,
}

/// Reads a frame; none at the end of the connection.
pub fn read(input: &mut impl Read) -> Option<Frame> {
    let mut header = [0; 9];
    input.read_exact(&mut header).ok()?;
    let length = u32::from_be_bytes(header[5..9].try_into().ok()?);
    let mut body = vec![0; length as usize];
    input.read_exact(&mut body).ok()?;
    Some(Frame {
        stream: i16::from_be_bytes([header[2], header[3]]),
        opcode: header[4],
        body,
    })
}

/// What a request asks for.
pub enum Request {
    Startup,
    Login(Vec<u8>),
    Register,
    Query(String),
    Prepare(String),
    Execute { id: usize, values: Vec<Vec<u8>> },
}

impl Request {
    /// Understands a frame; none when it is of a kind that the engine does not send.
    pub fn parse(frame: &Frame) -> Option<Request> {
        let mut body = Cursor(&frame.body);
        Some(match frame.opcode {
            0x01 => Request::Startup,
            0x07 => Request::Query(body.long_string()?),
            0x09 => Request::Prepare(body.long_string()?),
            0x0A => {
                let id = body.short_bytes()?;
                let id = u32::from_be_bytes(id.try_into().ok()?) as usize;
                body.take(2)?; // consistency
                let flags = body.take(1)?[0];
                let mut values = Vec::new();
                if flags & 0x01 != 0 {
                    for _ in 0..body.short()? {
                        values.push(body.bytes()?);
                    }
                }
                Request::Execute { id, values }
            }
            0x0B => Request::Register,
            0x0F => Request::Login(body.bytes()?),
            _ => return None,
        })
    }
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn short(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn short_bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.short()?;
        self.take(length.into())
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = self.int()?;
        Some(self.take(usize::try_from(length).ok()?)?.to_vec())
    }

    fn long_string(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?).ok()
    }
}

/// A statement's text, understood as far as needed.
#[derive(Clone)]
pub struct Statement {
    text: String,
}

impl Statement {
    pub fn new(text: String) -> Statement {
        Statement { text }
    }

    /// Whether it writes a row.
    pub fn is_write(&self) -> bool {
        self.text.starts_with("INSERT")
    }

    /// Blob columns that it reads or writes, when it is about rows.
    pub fn row_columns(&self) -> Option<usize> {
        let about_rows = self.is_write() || self.text.ends_with("WHERE key = ?");
        about_rows.then(|| {
            self.text
                .split([',', ' ', '('])
                .filter(|word| word.starts_with('c') && word.len() > 1)
                .count()
        })
    }

    /// The columns that it selects.
    fn selected(&self) -> Vec<&str> {
        let columns = self.text.split(" FROM ").next().unwrap_or("");
        columns
            .trim_start_matches("SELECT ")
            .split(',')
            .map(str::trim)
            .collect()
    }

    fn marks(&self) -> usize {
        self.text.matches('?').count()
    }

    /// The answer of a node to a question about the cluster.
    pub fn about_cluster(&self, own: Node, others: &[Node]) -> Answer {
        let columns = self.selected();
        let mut answer = Answer::start_rows();
        answer.metadata(&columns);
        let is_about = |table: &str| self.text.contains(table);
        let rows = if is_about("system.peers") {
            others
        } else if is_about("system.local") || is_about("system_schema.keyspaces") {
            &[own][..]
        } else {
            &[]
        };
        answer.int(rows.len() as i32);
        for node in rows {
            for column in &columns {
                answer.bytes(&fact(column, *node));
            }
        }
        answer
    }
}

/// A node of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    pub address: SocketAddr,
    /// The last of the tokens whose rows it has.
    pub token: i64,
}

/// What stands in a column about a node, or about the one keyspace.
fn fact(column: &str, node: Node) -> Vec<u8> {
    let IpAddr::V4(ip) = node.address.ip() else {
        panic!("listens on 127.0.0.1")
    };
    let mut map = Answer::new(0);
    match column {
        "rpc_address" => ip.octets().to_vec(),
        "tokens" => {
            map.int(1);
            map.bytes(node.token.to_string().as_bytes());
            map.body
        }
        "replication" => {
            map.int(2);
            for text in ["class", "org.apache.cassandra.locator.SimpleStrategy"] {
                map.bytes(text.as_bytes());
            }
            for text in ["replication_factor", "1"] {
                map.bytes(text.as_bytes());
            }
            map.body
        }
        _ => b"disklab".to_vec(),
    }
}

/// An answer under construction.
pub struct Answer {
    opcode: u8,
    body: Vec<u8>,
}

impl Answer {
    fn new(opcode: u8) -> Answer {
        Answer {
            opcode,
            body: Vec::new(),
        }
    }

    pub fn ready() -> Answer {
        Answer::new(0x02)
    }

    pub fn authenticate() -> Answer {
        let mut answer = Answer::new(0x03);
        answer.string("org.apache.cassandra.auth.PasswordAuthenticator");
        answer
    }

    pub fn authenticated() -> Answer {
        let mut answer = Answer::new(0x10);
        answer.int(-1);
        answer
    }

    pub fn error(code: i32, text: &str) -> Answer {
        let mut answer = Answer::new(0x00);
        answer.int(code);
        answer.string(text);
        answer
    }

    pub fn void() -> Answer {
        let mut answer = Answer::new(0x08);
        answer.int(1);
        answer
    }

    fn start_rows() -> Answer {
        let mut answer = Answer::new(0x08);
        answer.int(2);
        answer
    }

    /// A row, or none when `row` is empty. Its columns are not described again.
    pub fn rows(columns: usize, row: &[Vec<u8>]) -> Answer {
        let mut answer = Answer::start_rows();
        answer.int(0x04); // no metadata
        answer.int(columns as i32);
        answer.int(i32::from(!row.is_empty()));
        for value in row {
            answer.bytes(value);
        }
        answer
    }

    pub fn prepared(statement: &Statement, columns: usize, id: usize) -> Answer {
        let mut answer = Answer::new(0x08);
        answer.int(4);
        answer.short(4);
        answer.int(id as i32);
        let bound = statement.marks();
        answer.int(0);
        answer.int(bound as i32);
        answer.int(1); // the first bound value is the partition key
        answer.short(0);
        answer.column("key");
        for column in 1..bound {
            answer.column(&format!("c{}", column - 1));
        }
        let result: Vec<String> = (0..columns).map(|column| format!("c{column}")).collect();
        let result = if statement.is_write() {
            &[]
        } else {
            &result[..]
        };
        answer.metadata(&result.iter().map(String::as_str).collect::<Vec<_>>());
        answer
    }

    fn metadata(&mut self, columns: &[&str]) {
        self.int(0);
        self.int(columns.len() as i32);
        for column in columns {
            self.column(column);
        }
    }

    fn column(&mut self, name: &str) {
        self.string("disklab");
        self.string("rows");
        self.string(name);
        const MAP: u16 = 0x21;
        const SET: u16 = 0x22;
        const TEXT: u16 = 0x0D;
        let kind: &[u16] = match name {
            "key" => &[0x02],
            "rpc_address" => &[0x10],
            "tokens" => &[SET, TEXT],
            "replication" => &[MAP, TEXT, TEXT],
            _ if name.starts_with('c') && name[1..].parse::<u32>().is_ok() => &[0x03],
            _ => &[TEXT],
        };
        for word in kind {
            self.short(*word);
        }
    }

    fn short(&mut self, value: u16) {
        self.body.extend_from_slice(&value.to_be_bytes());
    }

    fn int(&mut self, value: i32) {
        self.body.extend_from_slice(&value.to_be_bytes());
    }

    fn string(&mut self, text: &str) {
        self.short(text.len() as u16);
        self.body.extend_from_slice(text.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.int(bytes.len() as i32);
        self.body.extend_from_slice(bytes);
    }

    /// The bytes on the wire.
    pub fn frame(&self, stream: i16) -> Vec<u8> {
        let mut frame = vec![0x84, 0];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.push(self.opcode);
        frame.extend_from_slice(&(self.body.len() as u32).to_be_bytes());
        frame.extend_from_slice(&self.body);
        frame
    }
}
