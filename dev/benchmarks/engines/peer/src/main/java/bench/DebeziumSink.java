package bench;

import io.debezium.connector.jdbc.JdbcSinkConnectorTask;
import io.debezium.time.MicroTimestamp;
import java.io.BufferedReader;
import java.io.IOException;
import java.math.BigDecimal;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * Gives events to the task of Debezium's JDBC sink connector as Kafka Connect does, without a Kafka: {@code put} after {@code put}.
 *
 * <p>Usage: {@code DebeziumSink PROPERTIES POLL WARM EVENTS}. POLL is {@code max.poll.records}; the files have an event in each line. Those of WARM go into
 * a table of their own and do not count. Records are made some at a time, in pauses of the clock: nobody is charged for them. The last line of stdout is a JSON object.
 */
public final class DebeziumSink {

    private static final int MADE_AT_ONCE = 50_000;
    private static final Schema KEY = SchemaBuilder.struct().name("bench.Key").field("id", Schema.INT64_SCHEMA).build();
    private static final Schema ROW = SchemaBuilder.struct().name("bench.Value").optional()
            .field("id", Schema.INT64_SCHEMA)
            .field("name", Schema.OPTIONAL_STRING_SCHEMA)
            .field("amount", Decimal.builder(2).parameter("connect.decimal.precision", "12").optional().build())
            .field("created", MicroTimestamp.builder().optional().build())
            .field("qty", Schema.OPTIONAL_INT32_SCHEMA)
            .field("score", Schema.OPTIONAL_FLOAT64_SCHEMA)
            .field("note", Schema.OPTIONAL_STRING_SCHEMA)
            .field("flag", Schema.OPTIONAL_INT16_SCHEMA)
            .build();
    private static final Schema SOURCE = SchemaBuilder.struct().name("bench.Source")
            .field("db", Schema.STRING_SCHEMA).field("table", Schema.STRING_SCHEMA).field("ts_ms", Schema.INT64_SCHEMA).build();
    private static final Schema ENVELOPE = SchemaBuilder.struct().name("bench.Envelope")
            .field("before", ROW).field("after", ROW).field("source", SOURCE)
            .field("op", Schema.STRING_SCHEMA).field("ts_ms", Schema.OPTIONAL_INT64_SCHEMA).build();

    private final JdbcSinkConnectorTask task = new JdbcSinkConnectorTask();
    private final int poll;
    private long events;
    private long nanos;
    private long cpu;

    private DebeziumSink(int poll) {
        this.poll = poll;
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> given = new HashMap<>();
        Program.properties(args[0]).forEach((name, value) -> given.put((String) name, (String) value));
        DebeziumSink sink = new DebeziumSink(Integer.parseInt(args[1]));
        sink.task.start(given);
        sink.apply(Path.of(args[2]), "bench.warm");
        sink.events = sink.nanos = sink.cpu = 0;
        sink.apply(Path.of(args[3]), "bench.stream");
        System.out.printf(Locale.ROOT,
                "{\"events\":%d,\"seconds\":%.3f,\"cpu_s\":%.3f,\"cpu_s_total\":%.3f,\"peak_rss_mb\":%.1f}%n",
                sink.events, sink.nanos / 1e9, sink.cpu / 1e9, Program.cpuNanos() / 1e9, Program.peakResidentMegabytes());
        sink.task.stop();
        System.exit(0);
    }

    private void apply(Path file, String topic) throws IOException {
        TopicPartition partition = new TopicPartition(topic, 0);
        task.open(List.of(partition));
        Struct source = new Struct(SOURCE).put("db", "bench").put("table", topic).put("ts_ms", System.currentTimeMillis());
        try (BufferedReader lines = Files.newBufferedReader(file)) {
            long offset = 0;
            List<SinkRecord> made = new ArrayList<>(MADE_AT_ONCE);
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                made.add(record(line.split("\t", -1), topic, source, offset++));
                if (made.size() == MADE_AT_ONCE) {
                    give(made);
                    made.clear();
                }
            }
            give(made);
            task.preCommit(new HashMap<>(Map.of(partition, new OffsetAndMetadata(offset))));
            task.close(List.of(partition));
        }
    }

    private void give(List<SinkRecord> made) {
        long began = System.nanoTime();
        long used = Program.cpuNanos();
        for (int at = 0; at < made.size(); at += poll) {
            task.put(made.subList(at, Math.min(at + poll, made.size())));
            if (task.getLastProcessingException() != null) {
                throw new IllegalStateException(task.getLastProcessingException());
            }
        }
        nanos += System.nanoTime() - began;
        cpu += Program.cpuNanos() - used;
        events += made.size();
        System.out.println("progress " + events);
    }

    /** An event of a line: op, then the columns, of which {@code \N} is NULL. */
    private static SinkRecord record(String[] parts, String topic, Struct source, long offset) {
        long id = Long.parseLong(parts[1]);
        long now = System.currentTimeMillis();
        Struct row = new Struct(ROW)
                .put("id", id)
                .put("name", parts[2])
                .put("amount", new BigDecimal(parts[3]))
                .put("created", Long.parseLong(parts[4]))
                .put("qty", parts[5].equals("\\N") ? null : Integer.valueOf(parts[5]))
                .put("score", Double.parseDouble(parts[6]))
                .put("note", parts[7])
                .put("flag", Short.parseShort(parts[8]));
        Struct value = new Struct(ENVELOPE).put("source", source).put("op", parts[0]).put("ts_ms", now);
        value.put(parts[0].equals("d") ? "before" : "after", row);
        return new SinkRecord(topic, 0, KEY, new Struct(KEY).put("id", id), ENVELOPE, value, offset, now, TimestampType.CREATE_TIME);
    }
}
