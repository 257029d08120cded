package bench;

import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import io.debezium.engine.format.KeyValueChangeEventFormat;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Runs one connector in Debezium's embedded engine, as JSON, until nothing has come for some seconds, a minute at first, and writes what it
 * delivers to a file: for each record three lines, its topic, key and value.
 *
 * <p>Usage: {@code DebeziumRecords PROPERTIES FILE IDLE_SECONDS}.
 */
public final class DebeziumRecords {

    private static final double START_SECONDS = 60;

    private final CountDownLatch finished = new CountDownLatch(1);
    private final BufferedWriter writer;
    private volatile boolean some;
    private volatile long lastSign = System.nanoTime();
    private volatile Throwable failure;

    private DebeziumRecords(BufferedWriter writer) {
        this.writer = writer;
    }

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(args[0]))) {
            properties.load(reader);
        }
        try (BufferedWriter writer = Files.newBufferedWriter(Path.of(args[1]))) {
            System.exit(new DebeziumRecords(writer).run(properties, Double.parseDouble(args[2])));
        }
    }

    private int run(Properties properties, double idleSeconds) throws Exception {
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
        while (!finished.await(100, TimeUnit.MILLISECONDS)
                && (System.nanoTime() - lastSign) / 1e9 < (some ? idleSeconds : START_SECONDS)) {
        }
        finished.countDown();
        try {
            engine.close();
        }
        catch (IllegalStateException alreadyStopped) {
            // the completion callback has told why
        }
        pool.shutdown();
        pool.awaitTermination(30, TimeUnit.SECONDS);
        writer.flush();
        if (failure != null) {
            failure.printStackTrace();
            return 1;
        }
        return 0;
    }

    private void take(List<ChangeEvent<String, String>> events,
            DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer) throws InterruptedException {
        for (ChangeEvent<String, String> event : events) {
            try {
                for (String line : new String[] { event.destination(), event.key(), event.value() }) {
                    writer.write(line == null ? "null" : line);
                    writer.newLine();
                }
            }
            catch (IOException e) {
                throw new IllegalStateException(e);
            }
            committer.markProcessed(event);
        }
        committer.markBatchFinished();
        some = true;
        lastSign = System.nanoTime();
    }
}
