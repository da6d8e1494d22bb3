//! Delivery: the oldest order of each district of a warehouse, in one transaction.

use tokio_postgres::Client;

use super::statements::Prepared;
use super::{all, found, int};
use crate::workloads::Failure;
use crate::workloads::tpcc::inputs::Delivery;
use crate::workloads::tpcc::scale::DISTRICTS;
use crate::workloads::tpcc::store::missing;

/// Does it; returns how many districts had nothing to deliver.
pub async fn perform(
    client: &Client,
    prepared: &Prepared,
    delivery: &Delivery,
) -> Result<u32, Failure> {
    let [warehouse, carrier] = [delivery.warehouse, delivery.carrier].map(int);
    let (begun, taken) = tokio::join!(
        biased;
        client.batch_execute("BEGIN"),
        async { client.query(&prepared.take_oldest, &[&warehouse]).await },
    );
    all([begun])?;
    let taken = found(taken)?;
    let districts: Vec<i32> = taken.iter().map(|row| row.get(0)).collect();
    let orders: Vec<i32> = taken.iter().map(|row| row.get(1)).collect();
    let (customers, ended) = tokio::join!(
        biased;
        async { client.query(&prepared.deliver, &[&districts, &orders, &warehouse, &carrier]).await },
        client.batch_execute("COMMIT"),
    );
    let customers = found(customers)?;
    all([ended])?;
    // One bill an order: orders of different districts have different customers.
    if customers.len() != orders.len() {
        return Err(missing("customer"));
    }
    Ok(DISTRICTS - orders.len() as u32)
}
