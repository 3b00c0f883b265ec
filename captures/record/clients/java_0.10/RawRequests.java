import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ProtoUtils;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractRequestResponse;
import org.apache.kafka.common.requests.CreateTopicsRequest;
import org.apache.kafka.common.requests.CreateTopicsResponse;
import org.apache.kafka.common.requests.DeleteTopicsRequest;
import org.apache.kafka.common.requests.DeleteTopicsResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.ResponseHeader;

/** Topics made and deleted with the request classes of 0.10.2, which has them, but no client that sends them. */
final class RawRequests implements AutoCloseable {
    private static final int TIMEOUT_MS = 10_000;

    private final Socket socket;
    private final DataInputStream in;
    private final DataOutputStream out;
    private int correlationId;

    RawRequests(String bootstrap) throws Exception {
        socket = new Socket(bootstrap.split(":")[0], Integer.parseInt(bootstrap.split(":")[1]));
        in = new DataInputStream(socket.getInputStream());
        out = new DataOutputStream(socket.getOutputStream());
    }

    /** Returns the broker's code; a topic that was made is told. */
    short createTopic(String name, Map<Integer, List<Integer>> replicas, boolean validateOnly) throws Exception {
        var details = new CreateTopicsRequest.TopicDetails(replicas, Map.of("retention.ms", "3600000"));
        var request = new CreateTopicsRequest.Builder(Map.of(name, details), TIMEOUT_MS, validateOnly).build();
        var error = new CreateTopicsResponse(ask(ApiKeys.CREATE_TOPICS, request)).errors().get(name).error();
        if (error.code() == 0 && !validateOnly) {
            // The request names the replicas of each partition instead of their numbers.
            Told.line("created", "topic", name, "partitions", -1, "replicas", replicas);
        }
        return error.code();
    }

    /** Returns the broker's code; a topic that was deleted is told. */
    short deleteTopic(String name) throws Exception {
        var request = new DeleteTopicsRequest.Builder(Set.of(name), TIMEOUT_MS).build();
        var error = new DeleteTopicsResponse(ask(ApiKeys.DELETE_TOPICS, request)).errors().get(name);
        if (error.code() == 0) {
            Told.line("deleted", "topic", name);
        }
        return error.code();
    }

    private Struct ask(ApiKeys api, AbstractRequest request) throws Exception {
        var header = new RequestHeader(api.id, request.version(), "raw-admin", ++correlationId);
        ByteBuffer message = AbstractRequestResponse.serialize(header, request);
        byte[] bytes = new byte[message.remaining()];
        message.get(bytes);
        ByteBuffer framed = ByteBuffer.allocate(4 + bytes.length).putInt(bytes.length).put(bytes);
        out.write(framed.array());
        byte[] answer = new byte[in.readInt()];
        in.readFully(answer);
        ByteBuffer buffer = ByteBuffer.wrap(answer);
        if (ResponseHeader.parse(buffer).correlationId() != correlationId) {
            throw new IllegalStateException("an answer to another request");
        }
        return ProtoUtils.responseSchema(api.id, request.version()).read(buffer);
    }

    @Override
    public void close() throws Exception {
        socket.close();
    }
}
