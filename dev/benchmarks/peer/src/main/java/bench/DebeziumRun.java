package bench;

import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import io.debezium.engine.format.KeyValueChangeEventFormat;
import java.io.IOException;
import java.io.Reader;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Runs one connector in Debezium's embedded engine, as JSON, until it has delivered a number of row events, or with 0 until
 * nothing has come for some seconds. Events are counted and dropped.
 *
 * <p>Usage: {@code DebeziumRun PROPERTIES EVENTS IDLE_SECONDS}. The last line of stdout is a JSON object. The rate is taken from
 * the first row event to the last; CPU is that of the whole process, once for this span and once since the start.
 */
public final class DebeziumRun {

    private static final com.sun.management.OperatingSystemMXBean SYSTEM =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final String prefix;
    private final long wanted;
    private final CountDownLatch finished = new CountDownLatch(1);
    private volatile long lastSign = System.nanoTime();
    private volatile long rows;
    private long firstAt;
    private long lastAt;
    private long cpuAtFirst;
    private long cpuAtLast;
    private volatile Throwable failure;

    private DebeziumRun(String prefix, long wanted) {
        this.prefix = prefix;
        this.wanted = wanted;
    }

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(args[0]))) {
            properties.load(reader);
        }
        DebeziumRun run = new DebeziumRun(properties.getProperty("topic.prefix"), Long.parseLong(args[1]));
        System.exit(run.measure(properties, Double.parseDouble(args[2])));
    }

    private int measure(Properties properties, double idleSeconds) throws Exception {
        long started = System.nanoTime();
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
        long shown = started;
        while (!finished.await(200, TimeUnit.MILLISECONDS)) {
            long now = System.nanoTime();
            if (now - shown > 2_000_000_000L) {
                shown = now;
                System.out.println("progress " + rows);
            }
            if ((now - lastSign) / 1e9 > idleSeconds) {
                break;
            }
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
        if (failure != null) {
            failure.printStackTrace();
            return 1;
        }
        double span = (lastAt - firstAt) / 1e9;
        System.out.printf(Locale.ROOT,
                "{\"events\":%d,\"seconds\":%.3f,\"cpu_s\":%.3f,\"cpu_s_total\":%.3f,\"start_s\":%.3f,\"peak_rss_mb\":%.1f}%n",
                rows, span, (cpuAtLast - cpuAtFirst) / 1e9, SYSTEM.getProcessCpuTime() / 1e9,
                firstAt == 0 ? 0 : (firstAt - started) / 1e9, peakResidentMegabytes());
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
            cpuAtLast = SYSTEM.getProcessCpuTime();
        }
        committer.markBatchFinished();
        lastSign = System.nanoTime();
        if (wanted > 0 && rows >= wanted) {
            finished.countDown();
        }
    }

    private void count() {
        lastAt = System.nanoTime();
        if (firstAt == 0) {
            firstAt = lastAt;
            cpuAtFirst = SYSTEM.getProcessCpuTime();
        }
        rows++;
    }

    private static double peakResidentMegabytes() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM:")) {
                return Long.parseLong(line.replaceAll("\\D", "")) / 1024.0;
            }
        }
        return -1;
    }
}
