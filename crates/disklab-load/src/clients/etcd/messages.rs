//! The few messages of etcd's key-value service that rows need.
//!
//! **Source:** etcd's `api/etcdserverpb/rpc.proto` and `api/mvccpb/kv.proto` (3.4: `etcdserver/etcdserverpb`,
//! `mvcc/mvccpb`), and Protocol Buffers' "Encoding"; gRPC's "gRPC over HTTP2" for the five bytes before a message.

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes before each message: whether it is compressed, and its length.
pub const PREFIX_BYTES: usize = 5;

/// Wire types of Protocol Buffers.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

/// Field numbers.
const REQUEST_KEY: u64 = 1;
const PUT_VALUE: u64 = 2;
const RANGE_KVS: u64 = 2;
const KV_VALUE: u64 = 5;

/// A `RangeRequest` for one key, with its prefix. A read is linearizable unless it says otherwise.
pub fn range(key: &[u8]) -> Bytes {
    message(&[(REQUEST_KEY, key)])
}

/// A `PutRequest`, with its prefix.
pub fn put(key: &[u8], value: &[u8]) -> Bytes {
    message(&[(REQUEST_KEY, key), (PUT_VALUE, value)])
}

/// The value of the first key of a `RangeResponse`; None: there is no such key.
pub fn first_value(message: &[u8]) -> Result<Option<&[u8]>, &'static str> {
    match field(message, RANGE_KVS)? {
        None => Ok(None),
        // An empty value is left out.
        Some(found) => Ok(Some(field(found, KV_VALUE)?.unwrap_or_default())),
    }
}

/// The message of a gRPC body: exactly one, not compressed.
pub fn unprefixed(body: &Bytes) -> Result<Bytes, &'static str> {
    let Some((&[compressed, a, b, c, d], rest)) = body.split_first_chunk::<PREFIX_BYTES>() else {
        return Err("an answer without a message");
    };
    if compressed != 0 {
        return Err("a compressed answer, which was not asked for");
    }
    if u32::from_be_bytes([a, b, c, d]) as usize != rest.len() {
        return Err("an answer that is not one message");
    }
    Ok(body.slice(PREFIX_BYTES..))
}

fn message(fields: &[(u64, &[u8])]) -> Bytes {
    /// A tag of one byte and a length of up to ten.
    const HEAD_BYTES: usize = 11;
    let most: usize = fields
        .iter()
        .map(|(_, bytes)| bytes.len() + HEAD_BYTES)
        .sum();
    let mut out = BytesMut::with_capacity(PREFIX_BYTES + most);
    out.put_bytes(0, PREFIX_BYTES);
    for (number, bytes) in fields {
        put_varint(&mut out, number << 3 | LENGTH);
        put_varint(&mut out, bytes.len() as u64);
        out.put_slice(bytes);
    }
    let length = (out.len() - PREFIX_BYTES) as u32;
    out[1..PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
    out.freeze()
}

fn put_varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// The first field of this number that has a length.
fn field(mut message: &[u8], wanted: u64) -> Result<Option<&[u8]>, &'static str> {
    const CUT: &str = "an answer that ends within a field";
    while !message.is_empty() {
        let tag = varint(&mut message).ok_or(CUT)?;
        let length = match tag & 7 {
            VARINT => {
                varint(&mut message).ok_or(CUT)?;
                0
            }
            FIXED64 => 8,
            FIXED32 => 4,
            LENGTH => usize::try_from(varint(&mut message).ok_or(CUT)?).map_err(|_| CUT)?,
            _ => return Err("an answer with a field of no known kind"),
        };
        let (found, rest) = message.split_at_checked(length).ok_or(CUT)?;
        if tag == (wanted << 3 | LENGTH) {
            return Ok(Some(found));
        }
        message = rest;
    }
    Ok(None)
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_put_has_the_bytes_of_the_specification() {
        // Tags 0x0a and 0x12: fields 1 and 2 with a length. 300 as a varint is ac 02, the guide's own example.
        let value = [7; 300];
        let asked = put(b"rows/2a", &value);
        assert_eq!(asked[..5], [0, 0, 0, 1, 56]);
        assert_eq!(asked[5..14], *b"\x0a\x07rows/2a");
        assert_eq!(asked[14..17], [0x12, 0xac, 0x02]);
        assert_eq!(asked[17..], value);
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        assert!(unprefixed(&Bytes::from_static(b"\0\0\0\0")).is_err());
        assert!(unprefixed(&Bytes::from_static(b"\x01\0\0\0\0")).is_err());
        assert!(unprefixed(&Bytes::from_static(b"\0\0\0\0\x01")).is_err());
        assert!(first_value(b"\x12\x05abc").is_err());
        assert_eq!(first_value(b"\x20\x00"), Ok(None));
    }

    proptest! {
        #[test]
        fn a_value_is_found_behind_other_fields(
            key in proptest::collection::vec(any::<u8>(), 0..40),
            value in proptest::collection::vec(any::<u8>(), 1..400),
            revision: u64,
        ) {
            // header (1), kvs (2) with key (1), mod_revision (3) and value (5), count (4).
            let mut kv = BytesMut::new();
            let mut answer = BytesMut::new();
            for (number, bytes) in [(1, &key), (5, &value)] {
                put_varint(&mut kv, number << 3 | LENGTH);
                put_varint(&mut kv, bytes.len() as u64);
                kv.put_slice(bytes);
                put_varint(&mut kv, 3 << 3 | VARINT);
                put_varint(&mut kv, revision);
            }
            for (number, bytes) in [(1, &key[..]), (2, &kv[..])] {
                put_varint(&mut answer, number << 3 | LENGTH);
                put_varint(&mut answer, bytes.len() as u64);
                answer.put_slice(bytes);
            }
            prop_assert_eq!(first_value(&answer), Ok(Some(&value[..])));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = first_value(&bytes);
            let _ = unprefixed(&bytes.into());
        }
    }
}
