package bench;

import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import io.debezium.engine.format.KeyValueChangeEventFormat;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** One connector in Debezium's embedded engine, as JSON, in a thread of its own; it works until it is told to end, or fails. */
final class Engine {

    private final CountDownLatch finished = new CountDownLatch(1);
    private final ExecutorService pool = Executors.newSingleThreadExecutor();
    private final DebeziumEngine<ChangeEvent<String, String>> engine;
    private volatile Throwable failure;

    Engine(Properties properties, DebeziumEngine.ChangeConsumer<ChangeEvent<String, String>> consumer) {
        engine = DebeziumEngine
                .create(KeyValueChangeEventFormat.of(Json.class, Json.class))
                .using(properties)
                .using((success, message, error) -> {
                    if (!success && finished.getCount() > 0) {
                        failure = error != null ? error : new IllegalStateException(message);
                    }
                    finished.countDown();
                })
                .notifying(consumer)
                .build();
    }

    void start() {
        pool.execute(engine);
    }

    /** It is to end: {@link #await} returns. */
    void finish() {
        finished.countDown();
    }

    void await() throws InterruptedException {
        finished.await();
    }

    /** Returns whether it is to end, or has failed. */
    boolean await(long milliseconds) throws InterruptedException {
        return finished.await(milliseconds, TimeUnit.MILLISECONDS);
    }

    /** Ends it; returns the status for the process: 1 if it has failed, which is printed. */
    int stop() throws Exception {
        finish();
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
        return 0;
    }
}
