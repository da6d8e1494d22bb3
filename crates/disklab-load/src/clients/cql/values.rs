//! Values of any kind, as JSON.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::body::Body;

/// The answer to a statement: rows with names.
#[derive(Debug, Default)]
pub struct Table {
    /// Names and kinds.
    pub columns: Vec<(String, Kind)>,
    /// As many values each as there are columns; none: null.
    pub rows: Vec<Vec<Option<Vec<u8>>>>,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One value. **Source:** the native protocol, version 4, section 4.2.5.2.
    Plain(u16),
    /// A list or a set.
    List(Box<Kind>),
    /// Of keys and values.
    Map(Box<(Kind, Kind)>),
    /// A user's own type.
    Fields(Vec<(String, Kind)>),
    /// Values without names.
    Tuple(Vec<Kind>),
}

/// What is said of a row.
#[derive(Clone, Copy)]
pub enum Shown {
    /// Its values.
    Values,
    /// The value of its first column, and of each other one how many bytes it has.
    Lengths,
}

impl Table {
    /// Its rows by their columns' names.
    pub fn json(&self, shown: Shown) -> Vec<Value> {
        let row = |values: &Vec<Option<Vec<u8>>>| {
            let cells = values.iter().zip(&self.columns).enumerate();
            let cell = cells.map(|(place, (value, (name, kind)))| {
                let value = match (value, shown) {
                    (None, _) => Value::Null,
                    (Some(bytes), Shown::Lengths) if place > 0 => json!(bytes.len()),
                    (Some(bytes), _) => kind.json(bytes),
                };
                (name.clone(), value)
            });
            Value::from(cell.collect::<Map<_, _>>())
        };
        self.rows.iter().map(row).collect()
    }
}

impl Kind {
    /// A value. What JSON has no form for is text: its bytes as CQL writes a blob.
    fn json(&self, bytes: &[u8]) -> Value {
        let mut body = Body(bytes);
        match self {
            Kind::Plain(code) => plain(*code, bytes).unwrap_or_else(|| json!(hex(bytes, "0x"))),
            Kind::List(kind) => {
                let items = items(&mut body);
                items.iter().map(|item| kind.cell(*item)).collect()
            }
            Kind::Map(kinds) => {
                let items = items(&mut body);
                let (pairs, _) = items.as_chunks::<2>();
                let entry = |[key, value]: &[Option<&[u8]>; 2]| {
                    let key = kinds.0.cell(*key);
                    let name = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                    (name, kinds.1.cell(*value))
                };
                Value::from(pairs.iter().map(entry).collect::<Map<_, _>>())
            }
            Kind::Fields(fields) => {
                // Fields that were added later are not there.
                let field = |(name, kind): &(String, Kind)| {
                    (name.clone(), kind.cell(body.value().flatten()))
                };
                Value::from(fields.iter().map(field).collect::<Map<_, _>>())
            }
            Kind::Tuple(kinds) => {
                let cells = kinds.iter().map(|kind| kind.cell(body.value().flatten()));
                cells.collect()
            }
        }
    }

    fn cell(&self, bytes: Option<&[u8]>) -> Value {
        bytes.map_or(Value::Null, |bytes| self.json(bytes))
    }
}

/// What a list holds, or a map: a key, its value, and so on.
fn items<'a>(body: &mut Body<'a>) -> Vec<Option<&'a [u8]>> {
    let _count = body.int();
    std::iter::from_fn(|| body.value()).collect()
}

/// A value of one part; none where it has another length than its kind, or no form in JSON.
fn plain(code: u16, bytes: &[u8]) -> Option<Value> {
    Some(match code {
        0x01 | 0x0D => json!(String::from_utf8_lossy(bytes)),
        // A number without bytes cannot be decoded.
        _ if bytes.is_empty() => Value::Null,
        0x02 | 0x05 | 0x0B => json!(i64::from_be_bytes(bytes.try_into().ok()?)),
        0x04 => json!(bytes != [0]),
        0x07 => json!(f64::from_be_bytes(bytes.try_into().ok()?)),
        0x08 => json!(f32::from_be_bytes(bytes.try_into().ok()?)),
        0x09 => json!(i32::from_be_bytes(bytes.try_into().ok()?)),
        0x13 => json!(i16::from_be_bytes(bytes.try_into().ok()?)),
        0x14 => json!(i8::from_be_bytes(bytes.try_into().ok()?)),
        0x0C | 0x0F => json!(uuid(bytes.try_into().ok()?)),
        0x10 => json!(address(bytes)?.to_string()),
        0x0E => json!(whole(bytes)?.to_string()),
        _ => return None,
    })
}

fn uuid(bytes: [u8; 16]) -> String {
    let parts = [0..4, 4..6, 6..8, 8..10, 10..16];
    parts.map(|part| hex(&bytes[part], "")).join("-")
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let short = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    short
        .or_else(|_| bytes.try_into().map(<[u8; 16]>::into))
        .ok()
}

/// A whole number of so many bytes; none: of more than 16.
fn whole(bytes: &[u8]) -> Option<i128> {
    let mut number = if bytes.first()? & 0x80 == 0 { 0 } else { -1 };
    for byte in bytes {
        number = (number << 8) | i128::from(*byte);
    }
    (bytes.len() <= 16).then_some(number)
}

fn hex(bytes: &[u8], before: &str) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    before.to_owned() + &digits.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_what_cqlsh_shows() {
        let id: Vec<u8> = (0..16).collect();
        let cases: [(u16, &[u8], Value); 14] = [
            (0x01, b"me", json!("me")),
            (0x02, &[255; 8], json!(-1)),
            (0x03, &[1, 0xAB], json!("0x01ab")),
            (0x04, &[1], json!(true)),
            (0x07, &1.5_f64.to_be_bytes(), json!(1.5)),
            (0x08, &0.5_f32.to_be_bytes(), json!(0.5)),
            (0x09, &[0, 0, 1, 0], json!(256)),
            (0x09, &[], json!(null)),
            (0x0C, &id, json!("00010203-0405-0607-0809-0a0b0c0d0e0f")),
            (0x0D, &[], json!("")),
            (0x0E, &[254, 0], json!("-512")),
            (0x10, &[127, 0, 0, 1], json!("127.0.0.1")),
            (0x13, &[1, 1], json!(257)),
            (0x14, &[128], json!(-128)),
        ];
        for (code, bytes, expected) in cases {
            assert_eq!(Kind::Plain(code).json(bytes), expected, "{code:#x}");
        }
        let six = [0x20, 1, 0xD, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(Kind::Plain(0x10).json(&six), json!("2001:db8::1"));
        // Of another length than its kind: shown as it is.
        assert_eq!(Kind::Plain(0x09).json(&[1]), json!("0x01"));
    }

    #[test]
    fn values_of_several_parts_are_shown_part_by_part() {
        let text = || Kind::Plain(0x0D);
        let two = [0, 0, 0, 1, 0, 0, 0, 1, b'k', 0, 0, 0, 1, b'v'];
        let map = Kind::Map(Box::new((text(), text())));
        assert_eq!(map.json(&two), json!({"k": "v"}));
        let list = Kind::List(Box::new(text()));
        assert_eq!(list.json(&two), json!(["k", "v"]));
        let parts = [0, 0, 0, 1, b'a', 255, 255, 255, 255];
        assert_eq!(
            Kind::Tuple(vec![text(), text()]).json(&parts),
            json!(["a", null])
        );
        let fields = ["x", "y", "later"].map(|name| (name.to_owned(), text()));
        let shown = Kind::Fields(fields.to_vec()).json(&parts);
        assert_eq!(shown, json!({"x": "a", "y": null, "later": null}));
        // What is cut off ends there.
        assert_eq!(list.json(&two[..12]), json!(["k"]));
    }

    #[test]
    fn lengths_are_told_of_all_columns_but_the_first() {
        let table = Table {
            columns: ["a", "b", "c"]
                .map(|name| (name.to_owned(), Kind::Plain(0x0D)))
                .to_vec(),
            rows: vec![vec![Some(b"one".to_vec()), Some(b"secret".to_vec()), None]],
        };
        let told = json!([{"a": "one", "b": 6, "c": null}]);
        assert_eq!(json!(table.json(Shown::Lengths)), told);
        let told = json!([{"a": "one", "b": "secret", "c": null}]);
        assert_eq!(json!(table.json(Shown::Values)), told);
    }
}
