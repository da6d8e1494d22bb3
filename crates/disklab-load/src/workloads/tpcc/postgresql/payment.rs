//! Payment: the light-weight transaction that meets itself at the warehouse's row.

use tokio_postgres::Client;

use super::statements::Prepared;
use super::{all, int, one};
use crate::workloads::Failure;
use crate::workloads::tpcc::inputs::{Customer, Payment};

/// Does it, in one way to the server.
pub async fn perform(
    client: &Client,
    prepared: &Prepared,
    payment: &Payment,
) -> Result<(), Failure> {
    let [warehouse, district, customer_warehouse, customer_district] = [
        payment.warehouse,
        payment.district,
        payment.customer_warehouse,
        payment.customer_district,
    ]
    .map(int);
    let amount = payment.amount;
    let pay = async {
        let home = (&warehouse, &district);
        let of = (&customer_warehouse, &customer_district);
        match &payment.customer {
            Customer::Number(number) => {
                let number = int(*number);
                let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
                    [home.0, home.1, of.0, of.1, &number, &amount];
                client.query_opt(&prepared.pay_by_number, &values).await
            }
            Customer::LastName(name) => {
                let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
                    [home.0, home.1, of.0, of.1, name, &amount];
                client.query_opt(&prepared.pay_by_name, &values).await
            }
        }
    };
    let (begun, at_warehouse, at_district, paid, ended) = tokio::join!(
        biased;
        client.batch_execute("BEGIN"),
        async { client.query_opt(&prepared.pay_warehouse, &[&warehouse, &amount]).await },
        async { client.query_opt(&prepared.pay_district, &[&warehouse, &district, &amount]).await },
        pay,
        client.batch_execute("COMMIT"),
    );
    all([begun])?;
    one(at_warehouse, "warehouse")?;
    one(at_district, "district")?;
    one(paid, "customer")?;
    all([ended])
}
