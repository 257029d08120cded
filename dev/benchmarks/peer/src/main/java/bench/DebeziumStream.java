package bench;

import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import io.debezium.engine.format.KeyValueChangeEventFormat;
import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Runs one connector in Debezium's embedded engine, as JSON, until standard input is closed. Events are counted and dropped.
 *
 * <p>Usage: {@code DebeziumStream PROPERTIES TABLE_TOPIC PROBE_TOPIC}. What it prints is described in dev/benchmarks/streaming.py. The end
 * of an incremental snapshot is told by the notification in the sink's topic, which comes in the order of the events.
 */
public final class DebeziumStream {

    private static final String AT = "\"at_us\":";

    private final String table;
    private final String probe;
    private final String notifications;
    private final StringBuilder probes = new StringBuilder();
    private final CountDownLatch finished = new CountDownLatch(1);
    private long reads;
    private long events;
    private volatile Throwable failure;

    private DebeziumStream(String table, String probe, String notifications) {
        this.table = table;
        this.probe = probe;
        this.notifications = notifications;
    }

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(args[0]))) {
            properties.load(reader);
        }
        String notifications = properties.getProperty("notification.sink.topic.name");
        System.exit(new DebeziumStream(args[1], args[2], notifications).run(properties));
    }

    private int run(Properties properties) throws Exception {
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine
                .create(KeyValueChangeEventFormat.of(Json.class, Json.class))
                .using(properties)
                .using((success, message, error) -> {
                    if (!success && finished.getCount() > 0) {
                        failure = error != null ? error : new IllegalStateException(message);
                    }
                    finished.countDown();
                })
                .notifying(this::take)
                .build();
        ExecutorService pool = Executors.newSingleThreadExecutor();
        pool.execute(engine);
        Thread waiting = new Thread(this::untilClosed);
        waiting.setDaemon(true);
        waiting.start();
        finished.await();
        try {
            engine.close();
        }
        catch (IllegalStateException alreadyStopped) {
            // the completion callback has told why
        }
        pool.shutdown();
        pool.awaitTermination(30, TimeUnit.SECONDS);
        if (failure != null) {
            failure.printStackTrace();
            return 1;
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
        finished.countDown();
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
