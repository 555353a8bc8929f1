import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.Header;
import io.debezium.engine.format.Json;
import io.debezium.engine.format.KeyValueHeaderChangeEventFormat;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/**
 * Runs Debezium's engine until a record of the marker table comes, and writes every record before
 * it as one line of JSON. Arguments: a file of engine properties, the file to write, the topic of
 * the marker table.
 */
public final class GoldenEngine {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(arguments[0]))) {
            settings.load(reader);
        }
        String marker = arguments[2];
        CountDownLatch ended = new CountDownLatch(1);
        AtomicReference<String> failure = new AtomicReference<>();
        ExecutorService thread = Executors.newSingleThreadExecutor();
        try (BufferedWriter lines = Files.newBufferedWriter(Path.of(arguments[1]))) {
            DebeziumEngine<ChangeEvent<String, String>> engine =
                DebeziumEngine.create(KeyValueHeaderChangeEventFormat.of(Json.class, Json.class, Json.class))
                    .using(settings)
                    .using((success, message, error) -> {
                        if (!success) {
                            failure.compareAndSet(null, message + ": " + error);
                        }
                        ended.countDown();
                    })
                    .notifying(event -> {
                        if (ended.getCount() == 0) {
                            return;
                        }
                        if (marker.equals(event.destination())) {
                            ended.countDown();
                            return;
                        }
                        try {
                            lines.write(line(event));
                            lines.newLine();
                        } catch (IOException error) {
                            failure.compareAndSet(null, error.toString());
                            ended.countDown();
                        }
                    })
                    .build();
            thread.execute(engine);
            if (!ended.await(120, TimeUnit.SECONDS)) {
                failure.compareAndSet(null, "the marker did not come within 120 seconds");
            }
            engine.close();
        }
        thread.shutdownNow();
        if (failure.get() != null) {
            System.err.println(failure.get());
            System.exit(1);
        }
        System.exit(0);
    }

    private static String line(ChangeEvent<String, String> event) throws IOException {
        ObjectNode line = JSON.createObjectNode();
        line.put("topic", event.destination());
        line.set("key", parsed(event.key()));
        line.set("value", parsed(event.value()));
        ObjectNode headers = line.putObject("headers");
        for (Header<?> header : event.headers()) {
            Object value = header.getValue();
            headers.set(header.getKey(), parsed(value == null ? null : value.toString()));
        }
        return JSON.writeValueAsString(line);
    }

    /** Numbers keep all their digits: what Jackson reads as a double, it would round. */
    private static JsonNode parsed(String text) throws IOException {
        return text == null
            ? null
            : JSON.reader()
                .with(com.fasterxml.jackson.databind.DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
                .readTree(text);
    }
}
