-- pgbench's TPC-B on tables of its form: accounts, and of each 100,000 of them a branch with ten tellers.
-- There are 256 branches at least, so that at a small scale, too, disks decide and not the locks of branches.

require("oltp_common")

local TABLES = {
   {"accounts", "bid INTEGER, abalance INTEGER, filler CHAR(84)", "0, ''"},
   {"tellers", "bid INTEGER, tbalance INTEGER, filler CHAR(84)", "0, ''"},
   {"branches", "bbalance INTEGER, filler CHAR(88)", "''"},
   {"history", "tid INTEGER, bid INTEGER, aid INTEGER, delta INTEGER, mtime TIMESTAMP, filler CHAR(22)"},
}
local branches

local function each_table(act)
   for i = 1, #TABLES do act(TABLES[i]) end
end

function create_table(drv, con, number)
   local accounts = sysbench.opt.table_size
   branches = math.max(math.floor(accounts / 100000), 256)
   local rows = {accounts = accounts, tellers = 10 * branches, branches = branches, history = 0}
   each_table(function(table)
      local name, columns, values = unpack(table)
      local key = name == "history" and "" or "id INTEGER NOT NULL PRIMARY KEY, "
      con:query(string.format("CREATE TABLE %s%d (%s%s)", name, number, key, columns))
      con:bulk_insert_init(string.format("INSERT INTO %s%d VALUES", name, number))
      for row = 1, rows[name] do
         local branch = math.floor((row - 1) * branches / rows[name]) + 1
         con:bulk_insert_next(string.format("(%d, %d, %s)", row, name == "branches" and 0 or branch, values))
      end
      con:bulk_insert_done()
   end)
end

function cleanup()
   local con = sysbench.sql.driver():connect()
   for number = 1, sysbench.opt.tables do
      each_table(function(table) con:query(string.format("DROP TABLE IF EXISTS %s%d", table[1], number)) end)
   end
end

function prepare_statements()
   branches = tonumber((con:query_row("SELECT count(*) FROM branches1")))
end

local function change(table, number, column, delta, id)
   con:query(string.format("UPDATE %s%d SET %s = %s + %d WHERE id = %d", table, number, column, column, delta, id))
end

function event()
   local uniform = sysbench.rand.uniform
   local number, delta = uniform(1, sysbench.opt.tables), uniform(0, 10000) - 5000
   local account, teller = uniform(1, sysbench.opt.table_size), uniform(1, 10 * branches)
   local branch = uniform(1, branches)
   con:query("BEGIN")
   change("accounts", number, "abalance", delta, account)
   con:query(string.format("SELECT abalance FROM accounts%d WHERE id = %d", number, account))
   change("tellers", number, "tbalance", delta, teller)
   change("branches", number, "bbalance", delta, branch)
   con:query(string.format(
      "INSERT INTO history%d (tid, bid, aid, delta, mtime) VALUES (%d, %d, %d, %d, CURRENT_TIMESTAMP)",
      number, teller, branch, account, delta))
   con:query("COMMIT")
end
