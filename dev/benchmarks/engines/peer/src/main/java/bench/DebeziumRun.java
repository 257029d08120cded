package bench;

import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import java.util.List;
import java.util.Locale;
import java.util.Properties;

/**
 * Runs one connector in Debezium's embedded engine, as JSON, until it has delivered a number of row events, or with 0 until
 * nothing has come for some seconds. Events are counted and dropped.
 *
 * <p>Usage: {@code DebeziumRun PROPERTIES EVENTS IDLE_SECONDS}. The last line of stdout is a JSON object. The rate is taken from
 * the first row event to the last; CPU is that of the whole process, once for this span and once since the start.
 */
public final class DebeziumRun {

    private final String prefix;
    private final long wanted;
    private volatile long lastSign = System.nanoTime();
    private volatile long rows;
    private long firstAt;
    private long lastAt;
    private long cpuAtFirst;
    private long cpuAtLast;
    private Engine engine;

    private DebeziumRun(String prefix, long wanted) {
        this.prefix = prefix;
        this.wanted = wanted;
    }

    public static void main(String[] args) throws Exception {
        Properties properties = Program.properties(args[0]);
        DebeziumRun run = new DebeziumRun(properties.getProperty("topic.prefix"), Long.parseLong(args[1]));
        System.exit(run.measure(properties, Double.parseDouble(args[2])));
    }

    private int measure(Properties properties, double idleSeconds) throws Exception {
        long started = System.nanoTime();
        engine = new Engine(properties, this::take);
        engine.start();
        long shown = started;
        while (!engine.await(200)) {
            long now = System.nanoTime();
            if (now - shown > 2_000_000_000L) {
                shown = now;
                System.out.println("progress " + rows);
            }
            if ((now - lastSign) / 1e9 > idleSeconds) {
                break;
            }
        }
        int status = engine.stop();
        if (status != 0) {
            return status;
        }
        double span = (lastAt - firstAt) / 1e9;
        System.out.printf(Locale.ROOT,
                "{\"events\":%d,\"seconds\":%.3f,\"cpu_s\":%.3f,\"cpu_s_total\":%.3f,\"start_s\":%.3f,\"peak_rss_mb\":%.1f}%n",
                rows, span, (cpuAtLast - cpuAtFirst) / 1e9, Program.cpuNanos() / 1e9,
                firstAt == 0 ? 0 : (firstAt - started) / 1e9, Program.peakResidentMegabytes());
        return 0;
    }

    private void take(List<ChangeEvent<String, String>> events,
            DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer) throws InterruptedException {
        lastSign = System.nanoTime();
        for (ChangeEvent<String, String> event : events) {
            // neither tombstones nor schema changes nor transaction markers are row events
            if (event.value() != null && event.destination().startsWith(prefix + ".")) {
                count();
            }
            committer.markProcessed(event);
        }
        if (rows > 0) {
            cpuAtLast = Program.cpuNanos();
        }
        committer.markBatchFinished();
        lastSign = System.nanoTime();
        if (wanted > 0 && rows >= wanted) {
            engine.finish();
        }
    }

    private void count() {
        lastAt = System.nanoTime();
        if (firstAt == 0) {
            firstAt = lastAt;
            cpuAtFirst = Program.cpuNanos();
        }
        rows++;
    }
}
