//! Stock level: counts low stocks among the items of a district's last twenty orders.

use tokio_postgres::Client;

use super::statements::Prepared;
use super::{all, int, one};
use crate::workloads::Failure;
use crate::workloads::tpcc::inputs::StockLevel;

/// Does it. The district says which orders are the last ones, so it takes two ways to the server.
pub async fn perform(
    client: &Client,
    prepared: &Prepared,
    asked: &StockLevel,
) -> Result<(), Failure> {
    let [warehouse, district, threshold] =
        [asked.warehouse, asked.district, asked.threshold].map(int);
    let (begun, end) = tokio::join!(
        biased;
        client.batch_execute("BEGIN"),
        async { client.query_opt(&prepared.orders_end, &[&warehouse, &district]).await },
    );
    all([begun])?;
    let end: i32 = one(end, "district")?.get(0);
    let (counted, ended) = tokio::join!(
        biased;
        async {
            client.query_opt(&prepared.low_stocks, &[&warehouse, &district, &end, &threshold]).await
        },
        client.batch_execute("COMMIT"),
    );
    one(counted, "stock")?;
    all([ended])
}
