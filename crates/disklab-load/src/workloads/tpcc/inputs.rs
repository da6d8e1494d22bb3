//! What users enter at their terminals: pure, from a named stream.

use disklab_units::random::Stream;

use super::chance::{Constants, between, last_name};
use super::scale::{DISTRICTS, ITEMS, LINES};
use crate::clients::postgres::decimal::{Cents, Decimal};

/// An item number that no item has. **Source:** clause 2.4.1.5, which asks for an unused one.
pub const UNUSED_ITEM: u32 = ITEMS + 1;

/// Draws the inputs of the terminals.
#[derive(Clone, Debug)]
pub struct Inputs {
    warehouses: u32,
    constants: Constants,
    stream: Stream,
}

/// How a customer is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Customer {
    /// By number.
    Number(u32),
    /// By last name: the one in the middle of all who have it.
    LastName(String),
}

/// A line of a new order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    pub item: u32,
    pub supply_warehouse: u32,
    pub quantity: u32,
}

/// **Source:** clause 2.4.1.
#[derive(Clone, Debug)]
pub struct NewOrder {
    pub warehouse: u32,
    pub district: u32,
    pub customer: u32,
    /// Sorted by stock, so that any two orders lock their stocks in one order and never wait for each other in a circle.
    pub lines: Vec<Line>,
}

/// **Source:** clause 2.5.1.
#[derive(Clone, Debug)]
pub struct Payment {
    pub warehouse: u32,
    pub district: u32,
    pub customer_warehouse: u32,
    pub customer_district: u32,
    pub customer: Customer,
    pub amount: Cents,
}

/// **Source:** clause 2.6.1.
#[derive(Clone, Debug)]
pub struct OrderStatus {
    pub warehouse: u32,
    pub district: u32,
    pub customer: Customer,
}

/// **Source:** clause 2.7.1.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    pub warehouse: u32,
    pub carrier: u32,
}

/// **Source:** clause 2.8.1.
#[derive(Clone, Copy, Debug)]
pub struct StockLevel {
    pub warehouse: u32,
    pub district: u32,
    pub threshold: u32,
}

impl Inputs {
    /// Inputs at the terminals of so many warehouses.
    pub fn new(warehouses: u32, constants: Constants, stream: Stream) -> Inputs {
        Inputs {
            warehouses,
            constants,
            stream,
        }
    }

    fn district(&mut self) -> u32 {
        between(&mut self.stream, 1, DISTRICTS)
    }

    /// Another warehouse than this one, or this one where there is no other.
    fn other_warehouse(&mut self, than: u32) -> u32 {
        if self.warehouses == 1 {
            return than;
        }
        let other = between(&mut self.stream, 1, self.warehouses - 1);
        if other >= than { other + 1 } else { other }
    }

    fn customer(&mut self) -> Customer {
        // 60 % by last name. Source: clauses 2.5.1.2 and 2.6.1.2.
        if self.stream.chance(600_000) {
            Customer::LastName(last_name(self.constants.last_name(&mut self.stream)))
        } else {
            Customer::Number(self.constants.customer(&mut self.stream))
        }
    }

    /// An order at a terminal of this warehouse.
    pub fn new_order(&mut self, warehouse: u32) -> NewOrder {
        let district = self.district();
        let customer = self.constants.customer(&mut self.stream);
        let count = between(&mut self.stream, LINES.0, LINES.1);
        let mut lines: Vec<Line> = (0..count)
            .map(|_| {
                // 1 % of the lines come from elsewhere. Source: clause 2.4.1.5.
                let remote = self.stream.chance(10_000);
                Line {
                    item: self.constants.item(&mut self.stream),
                    supply_warehouse: if remote {
                        self.other_warehouse(warehouse)
                    } else {
                        warehouse
                    },
                    quantity: between(&mut self.stream, 1, 10),
                }
            })
            .collect();
        // 1 % of the orders have an item that is not there, on their last line. Source: clause 2.4.1.4.
        let unused = self.stream.chance(10_000).then(|| lines.pop()).flatten();
        lines.sort_unstable_by_key(|line| (line.supply_warehouse, line.item));
        lines.extend(unused.map(|line| Line {
            item: UNUSED_ITEM,
            ..line
        }));
        NewOrder {
            warehouse,
            district,
            customer,
            lines,
        }
    }

    /// A payment at a terminal of this warehouse.
    pub fn payment(&mut self, warehouse: u32) -> Payment {
        let district = self.district();
        // 15 % of the customers belong elsewhere. Source: clause 2.5.1.2.
        let (customer_warehouse, customer_district) = if self.stream.chance(150_000) {
            (self.other_warehouse(warehouse), self.district())
        } else {
            (warehouse, district)
        };
        Payment {
            warehouse,
            district,
            customer_warehouse,
            customer_district,
            customer: self.customer(),
            amount: Decimal(between(&mut self.stream, 100, 500_000).into()),
        }
    }

    /// A question for an order at a terminal of this warehouse.
    pub fn order_status(&mut self, warehouse: u32) -> OrderStatus {
        OrderStatus {
            warehouse,
            district: self.district(),
            customer: self.customer(),
        }
    }

    /// A delivery of this warehouse.
    pub fn delivery(&mut self, warehouse: u32) -> Delivery {
        Delivery {
            warehouse,
            carrier: between(&mut self.stream, 1, 10),
        }
    }

    /// A question for low stocks at the terminal of a district.
    pub fn stock_level(&mut self, warehouse: u32, district: u32) -> StockLevel {
        StockLevel {
            warehouse,
            district,
            threshold: between(&mut self.stream, 10, 20),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 100_000;

    fn inputs(warehouses: u32) -> Inputs {
        let constants = Constants::of_load(1).of_run(1);
        Inputs::new(warehouses, constants, Stream::new(1, "inputs"))
    }

    /// Whether a count of `draws` is a share within five standard deviations.
    fn is_share(count: usize, draws: usize, share: f64) -> bool {
        let deviation = (draws as f64 * share * (1.0 - share)).sqrt();
        (count as f64 - draws as f64 * share).abs() < 5.0 * deviation
    }

    #[test]
    fn payments_have_the_standard_s_shares() {
        let mut inputs = inputs(7);
        let payments: Vec<Payment> = (0..DRAWS).map(|_| inputs.payment(4)).collect();
        let remote = |payment: &&Payment| payment.customer_warehouse != 4;
        assert!(is_share(
            payments.iter().filter(remote).count(),
            DRAWS,
            0.15
        ));
        let named = |payment: &&Payment| matches!(payment.customer, Customer::LastName(_));
        assert!(is_share(payments.iter().filter(named).count(), DRAWS, 0.6));
        assert!(payments.iter().all(|payment| {
            (1..=7).contains(&payment.customer_warehouse)
                && (1..=10).contains(&payment.customer_district)
                && (100..=500_000).contains(&payment.amount.0)
        }));
    }

    #[test]
    fn orders_have_the_standard_s_shares() {
        let mut inputs = inputs(3);
        let orders: Vec<NewOrder> = (0..DRAWS).map(|_| inputs.new_order(2)).collect();
        let unused = orders
            .iter()
            .filter(|order| order.lines.last().unwrap().item == UNUSED_ITEM);
        assert!(is_share(unused.count(), DRAWS, 0.01));
        let lines: Vec<Line> = orders
            .iter()
            .flat_map(|order| order.lines.clone())
            .collect();
        let remote = lines.iter().filter(|line| line.supply_warehouse != 2);
        assert!(is_share(remote.count(), lines.len(), 0.01));
        let mean = lines.len() as f64 / DRAWS as f64;
        assert!((9.95..10.05).contains(&mean), "{mean}");
        for order in &orders {
            let stocks: Vec<_> = order
                .lines
                .iter()
                .map(|l| (l.supply_warehouse, l.item))
                .collect();
            let used = stocks.iter().filter(|(_, item)| *item != UNUSED_ITEM);
            assert!(used.is_sorted());
        }
    }

    #[test]
    fn a_single_warehouse_has_no_other() {
        let mut inputs = inputs(1);
        assert!((0..1_000).all(|_| inputs.payment(1).customer_warehouse == 1));
    }
}
