package bench;

import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;

/**
 * Runs one connector in Debezium's embedded engine, as JSON, until nothing has come for some seconds, a minute at first, and writes what it
 * delivers to a file: for each record three lines, its topic, key and value.
 *
 * <p>Usage: {@code DebeziumRecords PROPERTIES FILE IDLE_SECONDS}.
 */
public final class DebeziumRecords {

    private static final double START_SECONDS = 60;

    private final BufferedWriter writer;
    private volatile boolean some;
    private volatile long lastSign = System.nanoTime();

    private DebeziumRecords(BufferedWriter writer) {
        this.writer = writer;
    }

    public static void main(String[] args) throws Exception {
        Properties properties = Program.properties(args[0]);
        try (BufferedWriter writer = Files.newBufferedWriter(Path.of(args[1]))) {
            System.exit(new DebeziumRecords(writer).run(properties, Double.parseDouble(args[2])));
        }
    }

    private int run(Properties properties, double idleSeconds) throws Exception {
        Engine engine = new Engine(properties, this::take);
        engine.start();
        while (!engine.await(100)
                && (System.nanoTime() - lastSign) / 1e9 < (some ? idleSeconds : START_SECONDS)) {
        }
        int status = engine.stop();
        writer.flush();
        return status;
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
