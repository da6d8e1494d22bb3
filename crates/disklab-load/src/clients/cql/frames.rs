//! As much of Cassandra's native protocol, version 4, as rows and questions need.
//!
//! Version 4 and not 5, whose frames carry checksums: those cost the client time and are no part of the question.
//! **Source:** Apache Cassandra, doc/native_protocol_v4.spec.

use bytes::BufMut;

use super::body::Body;
use super::values::{Kind, Table};

/// Bytes before the body of a frame.
pub const HEAD_BYTES: usize = 9;

/// The longest body. **Source:** the specification, section 2.5.
const MOST_BODY_BYTES: usize = 256 << 20;

/// Lists of lists of lists: how deep they may be.
const MOST_DEEP: u8 = 16;

const VERSION: u8 = 0x04;
const ANSWER: u8 = 0x80;

/// Kinds of requests. **Source:** section 2.4.
const STARTUP: u8 = 0x01;
const QUERY: u8 = 0x07;
const PREPARE: u8 = 0x09;
const EXECUTE: u8 = 0x0A;
const REGISTER: u8 = 0x0B;
const AUTH_RESPONSE: u8 = 0x0F;

/// Flags of a statement: values follow; the columns need not be described again. **Source:** section 4.1.4.
const VALUES: u8 = 0x01;
const SKIP_METADATA: u8 = 0x02;

/// A request under construction at the end of a buffer.
pub struct Request<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Request<'a> {
    fn begin(out: &'a mut Vec<u8>, stream: u16, opcode: u8) -> Request<'a> {
        let start = out.len();
        out.put_slice(&[VERSION, 0]);
        out.put_u16(stream);
        out.put_u8(opcode);
        // The length is known at the end.
        out.put_u32(0);
        Request { out, start }
    }

    /// Begins a conversation.
    pub fn startup(out: &mut Vec<u8>) {
        let request = Request::begin(out, 0, STARTUP);
        request.out.put_u16(1);
        for text in ["CQL_VERSION", "3.0.0"] {
            put_string(request.out, text);
        }
        request.end();
    }

    /// Wants to hear of nodes that come and go. **Source:** section 4.1.8.
    pub fn register(out: &mut Vec<u8>) {
        let request = Request::begin(out, 0, REGISTER);
        request.out.put_u16(2);
        for text in ["TOPOLOGY_CHANGE", "STATUS_CHANGE"] {
            put_string(request.out, text);
        }
        request.end();
    }

    /// Runs a statement without values; its rows come on one page. **Source:** section 4.1.4.
    pub fn query(out: &mut Vec<u8>, statement: &str, consistency: u16) {
        let request = Request::begin(out, 0, QUERY);
        request.out.put_u32(statement.len() as u32);
        request.out.put_slice(statement.as_bytes());
        request.out.put_u16(consistency);
        request.out.put_u8(0);
        request.end();
    }

    /// Says who is there, as `PasswordAuthenticator` wants to hear it. **Source:** RFC 4616 (SASL PLAIN).
    pub fn login(out: &mut Vec<u8>, user: &str, password: &str) {
        let mut request = Request::begin(out, 0, AUTH_RESPONSE);
        request.value(|out| {
            for text in [user, password] {
                out.put_u8(0);
                out.put_slice(text.as_bytes());
            }
        });
        request.end();
    }

    /// Asks for a statement's id.
    pub fn prepare(out: &mut Vec<u8>, statement: &str) {
        let request = Request::begin(out, 0, PREPARE);
        request.out.put_u32(statement.len() as u32);
        request.out.put_slice(statement.as_bytes());
        request.end();
    }

    /// Runs a prepared statement; so many values have to follow.
    pub fn execute(
        out: &'a mut Vec<u8>,
        stream: u16,
        id: &[u8],
        consistency: u16,
        values: u16,
    ) -> Request<'a> {
        let request = Request::begin(out, stream, EXECUTE);
        request.out.put_u16(id.len() as u16);
        request.out.put_slice(id);
        request.out.put_u16(consistency);
        request.out.put_u8(VALUES | SKIP_METADATA);
        request.out.put_u16(values);
        request
    }

    /// Appends a value; `write` appends its bytes.
    pub fn value(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let place = self.out.len();
        self.out.put_u32(0);
        write(self.out);
        self.put_length(place);
    }

    /// The request is whole.
    pub fn end(self) {
        let place = self.start + HEAD_BYTES - size_of::<u32>();
        let Request { out, .. } = self;
        put_length(out, place);
    }

    fn put_length(&mut self, place: usize) {
        put_length(self.out, place);
    }
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.put_u16(text.len() as u16);
    out.put_slice(text.as_bytes());
}

/// Writes at `place` how many bytes follow there.
fn put_length(out: &mut [u8], place: usize) {
    let from = place + size_of::<u32>();
    let len = (out.len() - from) as u32;
    out[place..from].copy_from_slice(&len.to_be_bytes());
}

/// What stands before the body of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The number of the request, or -1 of an event.
    pub stream: i16,
    /// Bytes of the body.
    pub body_bytes: usize,
    flags: u8,
    opcode: u8,
}

impl Head {
    /// Reads one.
    pub fn read(bytes: &[u8; HEAD_BYTES]) -> Result<Head, String> {
        let [version, flags, s0, s1, opcode, l0, l1, l2, l3] = *bytes;
        if version != ANSWER | VERSION {
            return Err(format!("an answer of version {version:#x}"));
        }
        let body_bytes = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if body_bytes > MOST_BODY_BYTES {
            return Err(format!("a frame of {body_bytes} bytes"));
        }
        Ok(Head {
            stream: i16::from_be_bytes([s0, s1]),
            body_bytes,
            flags,
            opcode,
        })
    }

    /// Whether nobody asked: something has become of the cluster.
    pub fn is_event(&self) -> bool {
        self.stream < 0
    }
}

/// What a node answered.
#[derive(Debug)]
pub enum Answer<'a> {
    /// It is ready for statements.
    Ready,
    /// It wants to know who is there.
    Authenticate,
    /// It believes who was said to be there.
    Authenticated,
    /// A statement's id.
    Prepared(&'a [u8]),
    /// The rows of a SELECT.
    Rows(Rows<'a>),
    /// The same with the names and kinds of their columns.
    Table(Table),
    /// It is done.
    Void,
    /// It is done, and keyspaces or tables are others than before.
    SchemaChanged,
    /// It is not done: the code and what was said.
    Error(u32, String),
}

impl<'a> Answer<'a> {
    /// Reads the body that belongs to a head.
    pub fn read(head: Head, body: &'a [u8]) -> Result<Answer<'a>, String> {
        let mut body = Body(body);
        body.skip_extras(head.flags).ok_or_else(cut_off)?;
        match head.opcode {
            0x00 => body.error().ok_or_else(cut_off),
            0x02 => Ok(Answer::Ready),
            0x03 => Ok(Answer::Authenticate),
            0x08 => body.result(),
            0x10 => Ok(Answer::Authenticated),
            other => Err(format!("an unexpected answer {other:#x}")),
        }
    }
}

fn cut_off() -> String {
    "a frame is cut off".into()
}

impl<'a> Body<'a> {
    /// Skips what a node may put before the body proper. **Source:** section 2.2.
    fn skip_extras(&mut self, flags: u8) -> Option<()> {
        const TRACING: u8 = 0x02;
        const PAYLOAD: u8 = 0x04;
        const WARNING: u8 = 0x08;
        if flags & TRACING != 0 {
            self.take(16)?;
        }
        if flags & WARNING != 0 {
            for _ in 0..self.short()? {
                self.string()?;
            }
        }
        if flags & PAYLOAD != 0 {
            for _ in 0..self.short()? {
                self.string()?;
                self.value()?;
            }
        }
        Some(())
    }

    fn error(mut self) -> Option<Answer<'a>> {
        let code = self.int()? as u32;
        let text = String::from_utf8_lossy(self.string()?).into_owned();
        Some(Answer::Error(code, text))
    }

    /// **Source:** section 4.2.5.
    fn result(mut self) -> Result<Answer<'a>, String> {
        let kind = self.int().ok_or_else(cut_off)?;
        match kind {
            // The third says which keyspace is used from now on.
            1 | 3 => Ok(Answer::Void),
            2 => self.rows(),
            4 => self.string().map(Answer::Prepared).ok_or_else(cut_off),
            5 => Ok(Answer::SchemaChanged),
            other => Err(format!("an unexpected result {other}")),
        }
    }

    fn rows(mut self) -> Result<Answer<'a>, String> {
        const MORE_PAGES: i32 = 0x02;
        const NO_METADATA: i32 = 0x04;
        let flags = self.int().ok_or_else(cut_off)?;
        if flags & MORE_PAGES != 0 {
            return Err(format!("rows with flags {flags:#x}: a page of them"));
        }
        let columns = self.number()?;
        if flags & NO_METADATA == 0 {
            return self.table(flags, columns).map(Answer::Table);
        }
        let count = self.number()?;
        Ok(Answer::Rows(Rows {
            columns,
            count,
            rest: self,
        }))
    }

    /// How many rows or columns there are.
    fn number(&mut self) -> Result<u32, String> {
        let number = self.int().ok_or_else(cut_off)?;
        u32::try_from(number).map_err(|_| format!("{number} rows or columns"))
    }

    fn table(&mut self, flags: i32, columns: u32) -> Result<Table, String> {
        const ONE_TABLE: i32 = 0x01;
        let text = |body: &mut Self| {
            let text = body.string().ok_or_else(cut_off)?;
            Ok::<_, String>(String::from_utf8_lossy(text).into_owned())
        };
        let mut table = Table::default();
        if flags & ONE_TABLE != 0 {
            // Keyspace and table.
            text(self)?;
            text(self)?;
        }
        for _ in 0..columns {
            if flags & ONE_TABLE == 0 {
                text(self)?;
                text(self)?;
            }
            let name = text(self)?;
            table.columns.push((name, self.kind(MOST_DEEP)?));
        }
        let count = self.number()?;
        if columns == 0 && count > 0 {
            return Err(format!("{count} rows without columns"));
        }
        for _ in 0..count {
            let row = table
                .columns
                .iter()
                .map(|_| self.value().ok_or_else(cut_off));
            let row = row.map(|value| Ok(value?.map(<[u8]>::to_vec)));
            table.rows.push(row.collect::<Result<_, String>>()?);
        }
        Ok(table)
    }

    /// What a column's values are; `deep`: how many kinds may be inside each other. **Source:** section 4.2.5.2.
    fn kind(&mut self, deep: u8) -> Result<Kind, String> {
        let deeper = deep.checked_sub(1).ok_or("kinds of values without end")?;
        let code = self.short().ok_or_else(cut_off)?;
        Ok(match code {
            // The name of a class of the server's.
            0x00 => self.string().map(|_| Kind::Plain(0)).ok_or_else(cut_off)?,
            0x20 | 0x22 => Kind::List(Box::new(self.kind(deeper)?)),
            0x21 => Kind::Map(Box::new((self.kind(deeper)?, self.kind(deeper)?))),
            0x30 => {
                let (_keyspace, _name) = (self.string(), self.string());
                let mut fields = Vec::new();
                for _ in 0..self.short().ok_or_else(cut_off)? {
                    let name = self.string().ok_or_else(cut_off)?;
                    let name = String::from_utf8_lossy(name).into_owned();
                    fields.push((name, self.kind(deeper)?));
                }
                Kind::Fields(fields)
            }
            0x31 => {
                let mut kinds = Vec::new();
                for _ in 0..self.short().ok_or_else(cut_off)? {
                    kinds.push(self.kind(deeper)?);
                }
                Kind::Tuple(kinds)
            }
            plain => Kind::Plain(plain as u16),
        })
    }
}

/// Rows as they came.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Columns of each.
    pub columns: u32,
    /// How many.
    pub count: u32,
    rest: Body<'a>,
}

impl<'a> Rows<'a> {
    /// The next value, row by row; None inside: null. None also where the body ends.
    pub fn value(&mut self) -> Option<Option<&'a [u8]>> {
        self.rest.value()
    }

    /// Passes over so many values.
    pub fn skip(&mut self, count: u32) {
        for _ in 0..count {
            self.value();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    fn head(flags: u8, opcode: u8, body: &[u8]) -> Head {
        let mut bytes = [VERSION | ANSWER, flags, 0, 7, opcode, 0, 0, 0, 0];
        bytes[5..].copy_from_slice(&(body.len() as u32).to_be_bytes());
        Head::read(&bytes).unwrap()
    }

    #[test]
    fn a_request_says_how_long_it_and_its_values_are() {
        let mut out = vec![0xEE];
        let mut request = Request::execute(&mut out, 0x0102, &[9, 8], 10, 2);
        request.value(|out| out.put_u8(5));
        request.value(|_| ());
        request.end();
        let frame = [4, 0, 1, 2, 0x0A, 0, 0, 0, 18];
        let statement = [0, 2, 9, 8, 0, 10, 3, 0, 2];
        let values = [0, 0, 0, 1, 5, 0, 0, 0, 0];
        assert_eq!(out, [&[0xEE], &frame[..], &statement, &values].concat());
    }

    #[test]
    fn a_login_is_user_and_password_each_behind_a_zero() {
        let mut out = Vec::new();
        Request::login(&mut out, "me", "pw!");
        let frame = [4, 0, 0, 0, 0x0F, 0, 0, 0, 11];
        let token = [0, 0, 0, 7, 0, b'm', b'e', 0, b'p', b'w', b'!'];
        assert_eq!(out, [&frame[..], &token].concat());
        let no_challenge = [255, 255, 255, 255];
        let answer = Answer::read(head(0, 0x10, &no_challenge), &no_challenge).unwrap();
        assert!(matches!(answer, Answer::Authenticated));
    }

    #[test]
    fn rows_are_read_behind_warnings_tracing_and_payload() {
        let extras = [
            &[1; 16][..],
            &[0, 1, 0, 2, b'n', b'o'],
            &[0, 1, 0, 1, b'k', 0, 0, 0, 1, 9],
        ];
        let rows = [
            0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2, 7, 8, 255, 255, 255, 255,
            0, 0, 0, 0,
        ];
        let body = [&extras.concat(), &rows[..]].concat();
        let Answer::Rows(mut rows) = Answer::read(head(0x0E, 0x08, &body), &body).unwrap() else {
            panic!("rows");
        };
        assert_eq!((rows.columns, rows.count), (3, 1));
        assert_eq!(rows.value(), Some(Some(&[7, 8][..])));
        assert_eq!(rows.value(), Some(None));
        assert_eq!(rows.value(), Some(Some(&[][..])));
        assert_eq!(rows.value(), None);
    }

    #[test]
    fn what_is_cut_off_or_of_another_kind_is_said() {
        let error = [0, 0, 0x10, 0x01, 0, 2, b'n', b'o'];
        let answer = Answer::read(head(0, 0, &error), &error).unwrap();
        assert!(matches!(answer, Answer::Error(0x1001, text) if text == "no"));
        for len in 0..error.len() {
            assert!(Answer::read(head(0, 0, &error[..len]), &error[..len]).is_err());
        }
        let described = [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1];
        assert!(Answer::read(head(0, 8, &described), &described).is_err());
        assert!(Answer::read(head(0, 0x0C, &[]), &[]).is_err());
        assert!(Head::read(&[0x85, 0, 0, 0, 8, 0, 0, 0, 0]).is_err());
        assert!(Head::read(&[0x84, 0, 0, 0, 8, 255, 0, 0, 0]).is_err());
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

    /// Answers of a Cassandra: rows behind warnings, tracing and payload, an error, an id, rows of nulls.
    const ANSWERS: [(u8, u8, &[u8]); 4] = [
        (
            0x0E,
            0x08,
            &[
                1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 2, b'n', b'o', 0, 1, 0, 1,
                b'k', 0, 0, 0, 1, 9, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2, 7,
                8, 255, 255, 255, 255, 0, 0, 0, 0,
            ],
        ),
        (0, 0x00, &[0, 0, 0x10, 0x01, 0, 2, b'n', b'o']),
        (0, 0x08, &[0, 0, 0, 4, 0, 3, 1, 2, 3]),
        (
            0,
            0x08,
            &[
                0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 2, 255, 255, 255, 255, 255, 255, 255,
                254,
            ],
        ),
    ];

    proptest! {
        // PROPTEST_CASES asks for more: see `make fuzz`.
        #![proptest_config(ProptestConfig {
            cases: ProptestConfig::default().cases.max(4096),
            ..ProptestConfig::default()
        })]

        #[test]
        fn fuzz_no_answer_makes_more_values_than_its_bytes_can_hold(
            which in 0..ANSWERS.len(), flags: Option<u8>, code: Option<u8>, changes in vec((any::<Index>(), any::<u8>()), 0..6), keep: Index
        ) {
            let (usual_flags, usual_code, body) = ANSWERS[which];
            let body = spoiled(body.to_vec(), &changes, keep);
            let head = head(flags.unwrap_or(usual_flags), code.unwrap_or(usual_code), &body);
            if let Ok(Answer::Rows(mut rows)) = Answer::read(head, &body) {
                let mut values = 0;
                while rows.value().is_some() {
                    values += 1;
                }
                prop_assert!(values * size_of::<u32>() <= body.len());
            }
        }

        #[test]
        fn fuzz_a_head_is_of_our_version_and_size(bytes: [u8; HEAD_BYTES]) {
            if let Ok(head) = Head::read(&bytes) {
                prop_assert!(head.body_bytes <= MOST_BODY_BYTES);
                prop_assert_eq!(bytes[0], ANSWER | VERSION);
            }
        }
    }
}
