import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.cql.BoundStatementBuilder;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.LongAdder;

/**
 * What YCSB's binding for Cassandra does for an operation: a thread executes a prepared statement with the Java driver and
 * waits for it; fields are text of random characters, made six from a random number, and read as bytes.
 */
public final class Client {
  private static final int FIELDS = 10;
  private static final LongAdder DONE = new LongAdder();

  public static void main(String[] arguments) throws Exception {
    String host = arguments[0];
    int port = Integer.parseInt(arguments[1]);
    String kind = arguments[4];
    int threads = Integer.parseInt(arguments[5]);
    double seconds = Double.parseDouble(arguments[6]);
    int rows = Integer.parseInt(arguments[7]);
    int fieldBytes = Integer.parseInt(arguments[8]);
    DriverConfigLoader options =
        DriverConfigLoader.programmaticBuilder()
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(20))
            .build();
    try (CqlSession session =
        CqlSession.builder()
            .addContactPoint(new InetSocketAddress(host, port))
            .withLocalDatacenter(arguments[9])
            .withAuthCredentials(arguments[2], arguments[3])
            .withConfigLoader(options)
            .build()) {
      Statements statements = prepared(session);
      run(session, statements, kind, threads, seconds / 3, rows, fieldBytes);
      long before = DONE.sum();
      double used = used();
      long begun = System.nanoTime();
      run(session, statements, kind, threads, seconds, rows, fieldBytes);
      double elapsed = (System.nanoTime() - begun) / 1e9;
      long count = DONE.sum() - before;
      System.out.printf(
          "{\"operations\": %d, \"seconds\": %.2f, \"cpu_s\": %.2f}%n",
          count, elapsed, used() - used);
    }
  }

  private record Statements(PreparedStatement read, PreparedStatement insert) {}

  private static Statements prepared(CqlSession session) {
    session.execute(
        "CREATE KEYSPACE IF NOT EXISTS ycsb WITH replication = "
            + "{'class': 'SimpleStrategy', 'replication_factor': 1}");
    StringBuilder columns = new StringBuilder();
    StringBuilder names = new StringBuilder("y_id");
    StringBuilder marks = new StringBuilder("?");
    for (int field = 0; field < FIELDS; field++) {
      columns.append(", field").append(field).append(" varchar");
      names.append(", field").append(field);
      marks.append(", ?");
    }
    session.execute(
        "CREATE TABLE IF NOT EXISTS ycsb.usertable (y_id varchar PRIMARY KEY" + columns + ")");
    return new Statements(
        session.prepare("SELECT * FROM ycsb.usertable WHERE y_id = ?"),
        session.prepare("INSERT INTO ycsb.usertable (" + names + ") VALUES (" + marks + ")"));
  }

  private static void run(
      CqlSession session, Statements statements, String kind, int threads, double seconds, int rows, int fieldBytes)
      throws InterruptedException {
    long end = System.nanoTime() + (long) (seconds * 1e9);
    Thread[] all = new Thread[threads];
    for (int number = 0; number < threads; number++) {
      all[number] =
          new Thread(
              () -> {
                while (System.nanoTime() < end) {
                  String key = "user" + scattered(ThreadLocalRandom.current().nextInt(rows));
                  if (kind.equals("read")) {
                    read(session, statements.read, key);
                  } else {
                    insert(session, statements.insert, key, fieldBytes);
                  }
                  DONE.increment();
                }
              });
      all[number].start();
    }
    for (Thread thread : all) {
      thread.join();
    }
  }

  private static void read(CqlSession session, PreparedStatement statement, String key) {
    Row row = session.execute(statement.boundStatementBuilder().setString(0, key).build()).one();
    if (row == null) {
      return;
    }
    Map<String, byte[]> values = new HashMap<>();
    for (int field = 0; field <= FIELDS; field++) {
      ByteBuffer buffer = row.getBytesUnsafe(field);
      byte[] bytes = new byte[buffer.remaining()];
      buffer.get(bytes);
      values.put(row.getColumnDefinitions().get(field).getName().asInternal(), bytes);
    }
  }

  private static void insert(CqlSession session, PreparedStatement statement, String key, int fieldBytes) {
    BoundStatementBuilder bound = statement.boundStatementBuilder().setString(0, key);
    for (int field = 0; field < FIELDS; field++) {
      bound = bound.setString(field + 1, random(fieldBytes));
    }
    session.execute(bound.build());
  }

  private static String random(int length) {
    StringBuilder text = new StringBuilder(length);
    ThreadLocalRandom random = ThreadLocalRandom.current();
    while (text.length() < length) {
      int bits = random.nextInt();
      for (int part = 0; part < 6 && text.length() < length; part++) {
        text.append((char) (((bits >> (5 * part)) & 31) + ' '));
      }
    }
    return text.toString();
  }

  /** FNV-1a of 64 bits, as YCSB scatters keys. */
  private static long scattered(long value) {
    long hash = 0xCBF29CE484222325L;
    for (int part = 0; part < 8; part++) {
      hash = (hash ^ (value & 0xff)) * 1099511628211L;
      value >>= 8;
    }
    return Math.abs(hash);
  }

  private static double used() {
    var system =
        (com.sun.management.OperatingSystemMXBean)
            java.lang.management.ManagementFactory.getOperatingSystemMXBean();
    return system.getProcessCpuTime() / 1e9;
  }
}
