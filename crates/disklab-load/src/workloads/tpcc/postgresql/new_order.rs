//! New order: the middle-weight transaction that is counted.

use std::collections::HashMap;

use tokio_postgres::{Client, Row};

use super::statements::Prepared;
use super::{all, found, int, one};
use crate::clients::postgres::decimal::{Cents, Decimal};
use crate::workloads::Failure;
use crate::workloads::tpcc::inputs::{Line, NewOrder, UNUSED_ITEM};
use crate::workloads::tpcc::store::missing;

/// What a line needs of the stocks: as many statements as an order names one stock, which is nearly always one.
fn waves(lines: &[Line]) -> Vec<Vec<&Line>> {
    let mut waves: Vec<Vec<&Line>> = vec![Vec::with_capacity(lines.len())];
    // Lines are sorted by stock, so that a stock's lines stand together.
    let mut turn = 0;
    let mut before = None;
    for line in lines {
        let stock = (line.supply_warehouse, line.item);
        turn = if before == Some(stock) { turn + 1 } else { 0 };
        before = Some(stock);
        if turn == waves.len() {
            waves.push(Vec::new());
        }
        waves[turn].push(line);
    }
    waves
}

/// Does it; returns whether an item was not there, so that all of it was undone.
pub async fn perform(
    client: &Client,
    prepared: &Prepared,
    order: &NewOrder,
) -> Result<bool, Failure> {
    let used: Vec<Line> = order
        .lines
        .iter()
        .copied()
        .filter(|line| line.item != UNUSED_ITEM)
        .collect();
    let asked: Vec<i32> = order.lines.iter().map(|line| line.item as i32).collect();
    let [warehouse, district, customer] =
        [order.warehouse, order.district, order.customer].map(int);
    let waves = waves(&used);
    // All of this goes to the server at once.
    let (begun, next, customer_row, items, stocks) = tokio::join!(
        biased;
        client.batch_execute("BEGIN"),
        async { client.query_opt(&prepared.next_order, &[&warehouse, &district]).await },
        async { client.query_opt(&prepared.order_customer, &[&warehouse, &district, &customer]).await },
        async { client.query(&prepared.items, &[&asked]).await },
        take_stocks(client, prepared, order, &waves),
    );
    all([begun])?;
    let next = one(next, "district")?;
    one(customer_row, "customer")?;
    let items = found(items)?;
    let stocks = stocks?;
    let order_id: i32 = next.get(0);
    let prices: HashMap<i32, Cents> = items.iter().map(|row| (row.get(0), row.get(1))).collect();
    let lines = Lines::new(&used, &prices, &stocks)?;
    let all_local = int(u32::from(
        used.iter()
            .all(|line| line.supply_warehouse == order.warehouse),
    ));
    let count = int(order.lines.len() as u32);
    // An item that was asked for and is not there.
    let complete = asked.iter().all(|item| prices.contains_key(item));
    let (ordered, queued, lined, ended) = tokio::join!(
        biased;
        async { client.execute(
            &prepared.insert_order,
            &[&warehouse, &district, &order_id, &customer, &count, &all_local],
        ).await },
        async { client.execute(&prepared.insert_new_order, &[&warehouse, &district, &order_id]).await },
        async { client.execute(
            &prepared.insert_lines,
            &[
                &warehouse,
                &district,
                &order_id,
                &lines.numbers,
                &lines.items,
                &lines.supplies,
                &lines.quantities,
                &lines.amounts,
                &lines.infos,
            ],
        ).await },
        client.batch_execute(if complete { "COMMIT" } else { "ROLLBACK" }),
    );
    all([ordered.map(drop), queued.map(drop), lined.map(drop), ended])?;
    Ok(!complete)
}

/// Takes the quantities from the stocks, wave after wave; the rows of all.
async fn take_stocks(
    client: &Client,
    prepared: &Prepared,
    order: &NewOrder,
    waves: &[Vec<&Line>],
) -> Result<Vec<Row>, Failure> {
    let district = int(order.district);
    let mut taken = Vec::new();
    for wave in waves {
        let column =
            |of: fn(&Line) -> u32| -> Vec<i32> { wave.iter().map(|line| int(of(line))).collect() };
        let warehouses = column(|line| line.supply_warehouse);
        let items = column(|line| line.item);
        let quantities = column(|line| line.quantity);
        let remotes: Vec<i32> = wave
            .iter()
            .map(|line| i32::from(line.supply_warehouse != order.warehouse))
            .collect();
        let rows = client
            .query(
                &prepared.take_stock,
                &[&warehouses, &items, &quantities, &remotes, &district],
            )
            .await;
        let rows = found(rows)?;
        if rows.len() != wave.len() {
            return Err(missing("stock"));
        }
        taken.extend(rows);
    }
    Ok(taken)
}

/// The lines of an order as they are written, a column each.
#[derive(Default)]
struct Lines {
    numbers: Vec<i32>,
    items: Vec<i32>,
    supplies: Vec<i32>,
    quantities: Vec<i32>,
    amounts: Vec<Cents>,
    infos: Vec<String>,
}

impl Lines {
    fn new(used: &[Line], prices: &HashMap<i32, Cents>, stocks: &[Row]) -> Result<Lines, Failure> {
        let mut infos: HashMap<(i32, i32), &str> = HashMap::with_capacity(stocks.len());
        for row in stocks {
            infos.insert((row.get(0), row.get(1)), row.get(4));
        }
        let mut lines = Lines::default();
        for (number, line) in (1..).zip(used) {
            let (item, supply) = (int(line.item), int(line.supply_warehouse));
            let price = prices.get(&item).ok_or_else(|| missing("item"))?;
            let info = infos.get(&(supply, item)).ok_or_else(|| missing("stock"))?;
            lines.numbers.push(number);
            lines.items.push(item);
            lines.supplies.push(supply);
            lines.quantities.push(int(line.quantity));
            lines
                .amounts
                .push(Decimal(price.0 * i64::from(line.quantity)));
            lines.infos.push((*info).to_owned());
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stock_named_twice_is_taken_from_twice() {
        let line = |item, quantity| Line {
            item,
            supply_warehouse: 1,
            quantity,
        };
        let lines = [line(3, 1), line(5, 2), line(5, 3), line(5, 4), line(8, 5)];
        let waves = waves(&lines);
        let quantities: Vec<Vec<u32>> = waves
            .iter()
            .map(|wave| wave.iter().map(|line| line.quantity).collect())
            .collect();
        assert_eq!(quantities, [vec![1, 2, 5], vec![3], vec![4]]);
    }
}
