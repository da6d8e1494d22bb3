//! Order status: reads a customer's latest order.

use tokio_postgres::Client;

use super::statements::Prepared;
use super::{all, found, int, one};
use crate::workloads::Failure;
use crate::workloads::tpcc::inputs::{Customer, OrderStatus};
use crate::workloads::tpcc::store::missing;

/// Does it. The customer's number is needed for the order, so it takes two ways to the server.
pub async fn perform(
    client: &Client,
    prepared: &Prepared,
    asked: &OrderStatus,
) -> Result<(), Failure> {
    let [warehouse, district] = [asked.warehouse, asked.district].map(int);
    let customer = async {
        match &asked.customer {
            Customer::Number(number) => {
                let number = int(*number);
                let of = &prepared.customer_by_number;
                client
                    .query_opt(of, &[&warehouse, &district, &number])
                    .await
            }
            Customer::LastName(name) => {
                let of = &prepared.customer_by_name;
                client.query_opt(of, &[&warehouse, &district, name]).await
            }
        }
    };
    let (begun, customer) = tokio::join!(biased; client.batch_execute("BEGIN"), customer);
    all([begun])?;
    let customer: i32 = one(customer, "customer")?.get(0);
    let (lines, ended) = tokio::join!(
        biased;
        async { client.query(&prepared.last_order, &[&warehouse, &district, &customer]).await },
        client.batch_execute("COMMIT"),
    );
    let lines = found(lines)?;
    all([ended])?;
    let said: Option<i32> = lines.first().map(|line| line.get(3));
    // Each customer has had an order since the load.
    match said {
        Some(count) if count as usize == lines.len() => Ok(()),
        _ => Err(missing("order_line")),
    }
}
