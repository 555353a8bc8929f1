import java.util.Collection;
import java.util.List;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.elasticsearch.Build;
import org.elasticsearch.client.internal.node.NodeClient;
import org.elasticsearch.cluster.metadata.IndexNameExpressionResolver;
import org.elasticsearch.cluster.node.DiscoveryNodes;
import org.elasticsearch.common.io.stream.NamedWriteableRegistry;
import org.elasticsearch.common.settings.ClusterSettings;
import org.elasticsearch.common.settings.IndexScopedSettings;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.common.settings.SettingsFilter;
import org.elasticsearch.features.NodeFeature;
import org.elasticsearch.plugins.ActionPlugin;
import org.elasticsearch.plugins.Plugin;
import org.elasticsearch.rest.BaseRestHandler;
import org.elasticsearch.rest.RestController;
import org.elasticsearch.rest.RestHandler;
import org.elasticsearch.rest.RestRequest;
import org.elasticsearch.rest.RestResponse;
import org.elasticsearch.rest.RestStatus;

/** Answers `GET /` with the server's version. The module that does so is not published. */
public class RestRoot extends Plugin implements ActionPlugin {
    @Override
    public Collection<RestHandler> getRestHandlers(
            Settings settings,
            NamedWriteableRegistry writeables,
            RestController controller,
            ClusterSettings ofCluster,
            IndexScopedSettings ofIndexes,
            SettingsFilter filter,
            IndexNameExpressionResolver names,
            Supplier<DiscoveryNodes> nodes,
            Predicate<NodeFeature> features) {
        return List.of(new Root());
    }

    private static class Root extends BaseRestHandler {
        @Override
        public List<Route> routes() {
            return List.of(new Route(RestRequest.Method.GET, "/"));
        }

        @Override
        public String getName() {
            return "root";
        }

        @Override
        protected RestChannelConsumer prepareRequest(RestRequest request, NodeClient client) {
            String text = "{\"version\":{\"number\":\"" + Build.current().version() + "\"}}";
            return channel ->
                channel.sendResponse(new RestResponse(RestStatus.OK, "application/json", text));
        }
    }
}
