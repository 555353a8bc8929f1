import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileWriter;
import java.io.PrintWriter;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;

/**
 * Runs Debezium's engine and dies at once after so many records, behind those that it has noted as
 * sent: what the next run says again is in transactions_restarted_*.txt, one record a line, with
 * "--- run" before each run. Arguments: a file of engine properties, the file to write, how many
 * records.
 *
 * <p>Run by hand, with the settings of regenerate.py, provide.transaction.metadata, and a
 * max.batch.size of 4 (late: 13, 12, 12 records and the rest) or 2 (early: 2, 6, 9, 7 and the rest),
 * over tables a and b (id integer PRIMARY KEY, n integer) and three transactions of three inserts
 * into a, three into b, and an update of a key of a. A transaction of three inserts, which was begun
 * before them, is committed behind the second one.
 */
public final class RestartedEngine {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(arguments[0]))) {
            settings.load(reader);
        }
        int most = Integer.parseInt(arguments[2]);
        int[] count = {0};
        PrintWriter lines = new PrintWriter(new FileWriter(arguments[1], true), true);
        lines.println("--- run");
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(settings)
            .notifying(event -> {
                lines.println(event.destination() + "\t" + event.value());
                if (++count[0] >= most) {
                    Runtime.getRuntime().halt(9);
                }
            })
            .build();
        engine.run();
    }
}
