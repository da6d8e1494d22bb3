//! The rows of a load, each a pure function of seed and place. **Source:** clause 4.3.3.

use bytes::{BufMut, BytesMut};
use disklab_units::random::Stream;

use super::chance::{Constants, between, digits, last_name, letters, stream_of};
use super::scale::{CUSTOMERS, DISTRICTS, FIRST_UNDELIVERED, LAST_NAMES, LINES, ORDERS};
use crate::clients::postgres::decimal::{Cents, Decimal};

/// Microseconds from 1970 to 2000, where PostgreSQL's time begins.
const POSTGRES_EPOCH_US: i64 = 946_684_800_000_000;

/// How a row is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// PostgreSQL's COPY in binary form.
    Binary,
    /// The values of an INSERT.
    Text,
}

impl Form {
    /// Ends the row before the next one, or the last one.
    pub fn end(self, out: &mut BytesMut) {
        if let (Form::Text, Some(last)) = (self, out.last_mut()) {
            // The comma behind its last field.
            *last = b')';
        }
    }

    fn row(self, out: &mut BytesMut, fields: i16) -> Fields<'_> {
        match self {
            Form::Binary => out.put_i16(fields),
            Form::Text if out.is_empty() => out.put_u8(b'('),
            Form::Text => {
                self.end(out);
                out.put_slice(b",(");
            }
        }
        Fields(out, self)
    }
}

/// What all rows of a load hang on.
#[derive(Clone, Copy, Debug)]
pub struct Maker {
    seed: u64,
    constants: Constants,
    /// The time of the load, in PostgreSQL's microseconds.
    now: i64,
    form: Form,
}

/// Appends the fields of a row.
struct Fields<'a>(&'a mut BytesMut, Form);

impl Fields<'_> {
    /// A field: what it is in binary form after its length, or as text.
    fn field(
        &mut self,
        bytes: usize,
        binary: impl FnOnce(&mut BytesMut),
        text: impl FnOnce(&mut BytesMut),
    ) -> &mut Self {
        match self.1 {
            Form::Binary => {
                self.0.put_i32(bytes as i32);
                binary(self.0);
            }
            Form::Text => {
                text(self.0);
                self.0.put_u8(b',');
            }
        }
        self
    }

    /// Letters, none of which has to be escaped.
    fn characters(&mut self, bytes: u32, put: impl FnOnce(&mut BytesMut)) -> &mut Self {
        match self.1 {
            Form::Binary => {
                self.0.put_i32(bytes as i32);
                put(self.0);
            }
            Form::Text => {
                self.0.put_u8(b'\'');
                put(self.0);
                self.0.put_slice(b"',");
            }
        }
        self
    }

    fn int(&mut self, value: u32) -> &mut Self {
        let text = |out: &mut BytesMut| out.put_slice(value.to_string().as_bytes());
        self.field(4, |out| out.put_u32(value), text)
    }

    /// The time of the load.
    fn time(&mut self, value: Option<i64>) -> &mut Self {
        let Some(time) = value else {
            return self.null();
        };
        let text = |out: &mut BytesMut| out.put_slice(b"now(6)");
        self.field(8, |out| out.put_i64(time), text)
    }

    fn null(&mut self) -> &mut Self {
        match self.1 {
            Form::Binary => self.0.put_i32(-1),
            Form::Text => self.0.put_slice(b"NULL,"),
        }
        self
    }

    fn decimal<const SCALE: u32>(&mut self, value: Decimal<SCALE>) -> &mut Self {
        let text = |out: &mut BytesMut| out.put_slice(value.to_string().as_bytes());
        self.field(value.wire_bytes(), |out| value.put(out), text)
    }

    fn text(&mut self, value: &str) -> &mut Self {
        self.characters(value.len() as u32, |out| out.put_slice(value.as_bytes()))
    }

    /// Letters of a random length.
    fn letters(&mut self, stream: &mut Stream, lowest: u32, highest: u32) -> &mut Self {
        let count = between(stream, lowest, highest);
        self.characters(count, |out| letters(stream, count, out))
    }

    /// Letters, and ORIGINAL among them in a tenth of the rows.
    fn data(&mut self, stream: &mut Stream) -> &mut Self {
        const ORIGINAL: &[u8] = b"ORIGINAL";
        let count = between(stream, 26, 50);
        let original = stream.chance(100_000);
        let start = between(stream, 0, count - ORIGINAL.len() as u32) as usize;
        self.characters(count, |out| {
            let from = out.len() + start;
            letters(stream, count, out);
            if original {
                out[from..from + ORIGINAL.len()].copy_from_slice(ORIGINAL);
            }
        })
    }

    /// Digits.
    fn digits(&mut self, stream: &mut Stream, count: u32) -> &mut Self {
        self.characters(count, |out| digits(stream, count, out))
    }

    /// Street, street, city, state, zip.
    fn address(&mut self, stream: &mut Stream) -> &mut Self {
        self.letters(stream, 10, 20)
            .letters(stream, 10, 20)
            .letters(stream, 10, 20)
            .letters(stream, 2, 2)
            .characters(9, |out| {
                digits(stream, 4, out);
                out.put_slice(b"11111");
            })
    }
}

impl Maker {
    /// The maker of a load at `unix_ns`.
    pub fn new(seed: u64, unix_ns: u64, form: Form) -> Maker {
        Maker {
            seed,
            constants: Constants::of_load(seed),
            now: (unix_ns / 1_000) as i64 - POSTGRES_EPOCH_US,
            form,
        }
    }

    fn stream(&self, table: &str, place: [u32; 3]) -> Stream {
        stream_of(self.seed, table, place)
    }

    /// An item.
    pub fn item(&self, item: u32, out: &mut BytesMut) {
        let mut stream = self.stream("item", [item, 0, 0]);
        let mut fields = self.form.row(out, 5);
        fields
            .int(item)
            .int(between(&mut stream, 1, 10_000))
            .letters(&mut stream, 14, 24)
            .decimal::<2>(Decimal(between(&mut stream, 100, 10_000).into()))
            .data(&mut stream);
    }

    /// A warehouse.
    pub fn warehouse(&self, warehouse: u32, out: &mut BytesMut) {
        let mut stream = self.stream("warehouse", [warehouse, 0, 0]);
        self.form
            .row(out, 9)
            .int(warehouse)
            .letters(&mut stream, 6, 10)
            .address(&mut stream)
            .decimal::<4>(Decimal(between(&mut stream, 0, 2_000).into()))
            .decimal::<2>(Decimal(30_000_000));
    }

    /// A district.
    pub fn district(&self, warehouse: u32, district: u32, out: &mut BytesMut) {
        let mut stream = self.stream("district", [warehouse, district, 0]);
        self.form
            .row(out, 11)
            .int(warehouse)
            .int(district)
            .letters(&mut stream, 6, 10)
            .address(&mut stream)
            .decimal::<4>(Decimal(between(&mut stream, 0, 2_000).into()))
            .decimal::<2>(Decimal(3_000_000))
            .int(ORDERS + 1);
    }

    /// A stock.
    pub fn stock(&self, warehouse: u32, item: u32, out: &mut BytesMut) {
        let mut stream = self.stream("stock", [warehouse, item, 0]);
        let mut fields = self.form.row(out, 17);
        fields
            .int(warehouse)
            .int(item)
            .int(between(&mut stream, 10, 100));
        for _ in 0..DISTRICTS {
            fields.letters(&mut stream, 24, 24);
        }
        fields.int(0).int(0).int(0).data(&mut stream);
    }

    /// A customer.
    pub fn customer(&self, warehouse: u32, district: u32, customer: u32, out: &mut BytesMut) {
        let mut stream = self.stream("customer", [warehouse, district, customer]);
        let name = if customer <= LAST_NAMES {
            customer - 1
        } else {
            self.constants.last_name(&mut stream)
        };
        let mut fields = self.form.row(out, 21);
        fields
            .int(warehouse)
            .int(district)
            .int(customer)
            .letters(&mut stream, 8, 16)
            .text("OE")
            .text(&last_name(name))
            .address(&mut stream)
            .digits(&mut stream, 16);
        let credit = if stream.chance(100_000) { "BC" } else { "GC" };
        fields
            .time(Some(self.now))
            .text(credit)
            .decimal::<2>(Decimal(5_000_000))
            .decimal::<4>(Decimal(between(&mut stream, 0, 5_000).into()))
            .decimal::<2>(Decimal(-1_000))
            .decimal::<2>(Decimal(1_000))
            .int(1)
            .int(0)
            .letters(&mut stream, 300, 500);
    }

    /// A customer's only payment.
    pub fn history(&self, warehouse: u32, district: u32, customer: u32, out: &mut BytesMut) {
        let mut stream = self.stream("history", [warehouse, district, customer]);
        self.form
            .row(out, 8)
            .int(customer)
            .int(district)
            .int(warehouse)
            .int(district)
            .int(warehouse)
            .time(Some(self.now))
            .decimal::<2>(Decimal(1_000))
            .letters(&mut stream, 12, 24);
    }

    /// The customers of a district in the order of their orders: each has one.
    pub fn order_customers(&self, warehouse: u32, district: u32) -> Vec<u32> {
        let mut stream = self.stream("order customers", [warehouse, district, 0]);
        let mut customers: Vec<u32> = (1..=CUSTOMERS).collect();
        // Fisher and Yates.
        for last in (1..customers.len()).rev() {
            let other = stream.below(last as u64 + 1) as usize;
            customers.swap(last, other);
        }
        customers
    }

    /// How many lines an order has.
    fn line_count(&self, place: [u32; 3]) -> u32 {
        between(&mut self.stream("lines", place), LINES.0, LINES.1)
    }

    /// An order.
    pub fn order(&self, place: [u32; 3], customer: u32, out: &mut BytesMut) {
        let [warehouse, district, order] = place;
        let mut stream = self.stream("orders", place);
        let mut fields = self.form.row(out, 8);
        fields
            .int(warehouse)
            .int(district)
            .int(order)
            .int(customer)
            .time(Some(self.now));
        if order < FIRST_UNDELIVERED {
            fields.int(between(&mut stream, 1, 10));
        } else {
            fields.null();
        }
        fields.int(self.line_count(place)).int(1);
    }

    /// An order that is not delivered.
    pub fn new_order(&self, [warehouse, district, order]: [u32; 3], out: &mut BytesMut) {
        self.form
            .row(out, 3)
            .int(warehouse)
            .int(district)
            .int(order);
    }

    /// The lines of an order; returns how many.
    pub fn lines(&self, place: [u32; 3], out: &mut BytesMut) -> u32 {
        let [warehouse, district, order] = place;
        let mut stream = self.stream("order_line", place);
        let delivered = order < FIRST_UNDELIVERED;
        let count = self.line_count(place);
        for number in 1..=count {
            let amount: Cents = if delivered {
                Decimal(0)
            } else {
                Decimal(between(&mut stream, 1, 999_999).into())
            };
            self.form
                .row(out, 10)
                .int(warehouse)
                .int(district)
                .int(order)
                .int(number)
                .int(between(&mut stream, 1, super::scale::ITEMS))
                .int(warehouse)
                .time(delivered.then_some(self.now))
                .int(5)
                .decimal(amount)
                .letters(&mut stream, 24, 24);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_hangs_on_seed_and_place_alone() {
        let made = |seed, district| {
            let mut out = BytesMut::new();
            Maker::new(seed, 0, Form::Binary).customer(3, district, 7, &mut out);
            out
        };
        assert_eq!(made(1, 2), made(1, 2));
        assert_ne!(made(1, 2), made(2, 2));
        assert_ne!(made(1, 2), made(1, 3));
    }

    #[test]
    fn rows_are_values_of_one_statement() {
        let mut out = BytesMut::new();
        let maker = Maker::new(5, 0, Form::Text);
        maker.new_order([1, 2, 3], &mut out);
        maker.order([1, 2, 2_900], 7, &mut out);
        Form::Text.end(&mut out);
        let text = String::from_utf8(out.to_vec()).unwrap();
        let lines = maker.line_count([1, 2, 2_900]);
        assert_eq!(text, format!("(1,2,3),(1,2,2900,7,now(6),NULL,{lines},1)"));
    }

    #[test]
    fn each_customer_has_one_order() {
        let mut customers = Maker::new(5, 0, Form::Binary).order_customers(1, 1);
        assert_ne!(customers, (1..=CUSTOMERS).collect::<Vec<_>>());
        customers.sort_unstable();
        assert_eq!(customers, (1..=CUSTOMERS).collect::<Vec<_>>());
    }

    #[test]
    fn an_order_has_as_many_lines_as_it_says() {
        let maker = Maker::new(5, 0, Form::Binary);
        let counts: Vec<u32> = (1..=1_000)
            .map(|order| {
                let mut lines = BytesMut::new();
                maker.lines([1, 1, order], &mut lines);
                let count = maker.line_count([1, 1, order]);
                // Ten fields of at least four bytes' length each.
                assert!(lines.len() as u32 >= count * 2 + count * 10 * 4);
                assert!((lines.len() as u32) < (count + 1) * 120);
                count
            })
            .collect();
        assert_eq!(counts.iter().min(), Some(&5));
        assert_eq!(counts.iter().max(), Some(&15));
        let mean = f64::from(counts.iter().sum::<u32>()) / 1_000.0;
        assert!((9.6..10.4).contains(&mean), "{mean}");
    }
}
