//! How many of what. **Source:** clauses 1.2.1 and 4.3.3.

/// Items that the business sells, and stocks of each warehouse.
pub const ITEMS: u32 = 100_000;
/// Districts of a warehouse.
pub const DISTRICTS: u32 = 10;
/// Customers of a district.
pub const CUSTOMERS: u32 = 3_000;
/// Orders of a district after the load, one for each customer.
pub const ORDERS: u32 = 3_000;
/// The first order of a district that was not delivered yet after the load.
pub const FIRST_UNDELIVERED: u32 = 2_101;
/// The fewest and the most lines of an order.
pub const LINES: (u32, u32) = (5, 15);
/// Customers of a district whose last names are all there are, one each; the others' are drawn.
pub const LAST_NAMES: u32 = 1_000;
