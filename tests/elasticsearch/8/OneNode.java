import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import org.elasticsearch.common.logging.LogConfigurator;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.env.Environment;
import org.elasticsearch.node.InternalSettingsPreparer;
import org.elasticsearch.node.Node;
import org.elasticsearch.plugins.PluginsLoader;

/** Runs a node. The server's own main class needs jars that are not published. */
public class OneNode {
    public static void main(String[] arguments) throws Exception {
        Path home = Path.of(System.getProperty("es.path.home"));
        Path configuration = Path.of(System.getProperty("es.path.conf"));
        Settings settings = Settings.builder().put("path.home", home).build();
        LogConfigurator.registerErrorListener();
        Environment environment =
            InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), configuration, () -> "");
        LogConfigurator.setNodeName(Node.NODE_NAME_SETTING.get(environment.settings()));
        LogConfigurator.configure(environment, true);
        PluginsLoader modules =
            PluginsLoader.createPluginsLoader(
                PluginsLoader.loadModulesBundles(environment.modulesDir()),
                Set.of(),
                Map.of(),
                false);
        Node node = new Node(environment, modules);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> close(node)));
        node.start();
        new CountDownLatch(1).await();
    }

    private static void close(Node node) {
        try {
            node.close();
        } catch (java.io.IOException error) {
            error.printStackTrace();
        }
    }
}
