package bench;

import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import java.io.IOException;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Properties;

/**
 * Runs one connector in Debezium's embedded engine, as JSON, until standard input is closed. Events are counted and dropped.
 *
 * <p>Usage: {@code DebeziumStream PROPERTIES TABLE_TOPIC PROBE_TOPIC}. What it prints is described in dev/benchmarks/engines/streaming.py. The end
 * of an incremental snapshot is told by the notification in the sink's topic, which comes in the order of the events.
 */
public final class DebeziumStream {

    private static final String AT = "\"at_us\":";

    private final String table;
    private final String probe;
    private final String notifications;
    private final StringBuilder probes = new StringBuilder();
    private long reads;
    private long events;
    private Engine engine;

    private DebeziumStream(String table, String probe, String notifications) {
        this.table = table;
        this.probe = probe;
        this.notifications = notifications;
    }

    public static void main(String[] args) throws Exception {
        Properties properties = Program.properties(args[0]);
        String notifications = properties.getProperty("notification.sink.topic.name");
        System.exit(new DebeziumStream(args[1], args[2], notifications).run(properties));
    }

    private int run(Properties properties) throws Exception {
        engine = new Engine(properties, this::take);
        engine.start();
        Thread waiting = new Thread(this::untilClosed);
        waiting.setDaemon(true);
        waiting.start();
        engine.await();
        int status = engine.stop();
        if (status != 0) {
            return status;
        }
        System.out.println("{\"reads\":" + reads + ",\"events\":" + events + ",\"probes\":[" + probes + "]}");
        return 0;
    }

    private void untilClosed() {
        try {
            while (System.in.read() >= 0) {
                // nothing is said
            }
        }
        catch (IOException closed) {
            // as well
        }
        engine.finish();
    }

    private void take(List<ChangeEvent<String, String>> given,
            DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer) throws InterruptedException {
        long now = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
        for (ChangeEvent<String, String> event : given) {
            String value = event.value(), topic = event.destination();
            if (value != null) {
                take(topic, value, now);
            }
            committer.markProcessed(event);
        }
        committer.markBatchFinished();
    }

    private void take(String topic, String value, long now) {
        if (topic.equals(table)) {
            events++;
            int op = value.lastIndexOf("\"op\":\"");
            if (op >= 0 && value.charAt(op + 6) == 'r') {
                reads++;
            }
        }
        else if (topic.equals(probe)) {
            events++;
            int from = value.lastIndexOf(AT) + AT.length(), to = from;
            while (Character.isDigit(value.charAt(to))) {
                to++;
            }
            System.out.print(probes.length() == 0 ? "streaming\n" : "");
            System.out.flush();
            probes.append(probes.length() == 0 ? "[" : ",[").append(value, from, to).append(',').append(now).append(",null]");
        }
        else if (topic.equals(notifications) && value.contains("\"Incremental Snapshot\"")) {
            if (value.contains("\"type\":\"COMPLETED\"")) {
                System.out.println("completed " + now);
            }
            else if (value.contains("\"type\":\"ABORTED\"") || value.contains("\"SQL_EXCEPTION\"")) {
                System.out.println("failed " + value);
            }
        }
    }
}
