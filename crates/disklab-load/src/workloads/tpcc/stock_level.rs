//! Stock level: counts low stocks among the items of a district's last twenty orders.

use tokio_postgres::Client;

use super::inputs::StockLevel;
use super::statements::Prepared;
use super::transactions::{int, one};
use crate::workloads::Failure;

/// Does it. A single statement is a transaction.
pub async fn perform(
    client: &Client,
    prepared: &Prepared,
    asked: &StockLevel,
) -> Result<(), Failure> {
    let [warehouse, district, threshold] =
        [asked.warehouse, asked.district, asked.threshold].map(int);
    let counted = client
        .query_opt(&prepared.low_stocks, &[&warehouse, &district, &threshold])
        .await;
    one(counted, "district").map(drop)
}
