-- Ten inserts of one row in a transaction. sysbench's own script of this name has one, and no
-- transaction around it; the study that disklab repeats counted ten statements in each.

require("oltp_common")

local STATEMENTS = 10

function prepare_statements()
   prepare_begin()
   prepare_commit()
end

function event()
   begin()
   for _ = 1, STATEMENTS do
      con:query(string.format(
         "INSERT INTO sbtest%d (k, c, pad) VALUES (%d, '%s', '%s')",
         sysbench.rand.uniform(1, sysbench.opt.tables),
         sysbench.rand.default(1, sysbench.opt.table_size),
         get_c_value(),
         get_pad_value()))
   end
   commit()
end
