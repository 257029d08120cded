import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.bson.BsonBinaryReader;
import org.bson.BsonDocument;
import org.bson.BsonValue;
import org.bson.codecs.BsonDocumentCodec;
import org.bson.codecs.DecoderContext;
import org.bson.json.JsonMode;
import org.bson.json.JsonWriterSettings;

/** Reads documents of BSON, each with a field "v"; writes each in strict mode, the key that "v" would be, and the document in extended mode: three lines. */
public class Texts {
    /** Debezium's settings (io.debezium.connector.mongodb.JsonSerialization). */
    private static JsonWriterSettings settings(JsonMode mode) {
        return JsonWriterSettings.builder().outputMode(mode).indent(true).indentCharacters("").newLineCharacters("").build();
    }

    public static void main(String[] args) throws Exception {
        if (args.length > 0) {
            characters();
            return;
        }
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        while (true) {
            byte[] head = new byte[4];
            try {
                in.readFully(head);
            } catch (EOFException e) {
                break;
            }
            ByteBuffer document = ByteBuffer.allocate(ByteBuffer.wrap(head).order(ByteOrder.LITTLE_ENDIAN).getInt());
            document.put(head);
            in.readFully(document.array(), 4, document.capacity() - 4);
            document.rewind();
            BsonDocument read = new BsonDocumentCodec().decode(new BsonBinaryReader(document), DecoderContext.builder().build());
            BsonValue v = read.get("v");
            String key = new BsonDocument("_", v).toJson(settings(JsonMode.RELAXED));
            out.print(read.toJson(settings(JsonMode.STRICT)) + "\n" + key.substring(6, key.length() - 1) + "\n" + read.toJson(settings(JsonMode.EXTENDED)) + "\n");
        }
        out.flush();
    }

    /** The type of each character of the Basic Multilingual Plane, a byte each. */
    private static void characters() {
        byte[] types = new byte[65536];
        for (int c = 0; c < types.length; c++) {
            types[c] = (byte) Character.getType((char) c);
        }
        System.out.write(types, 0, types.length);
        System.out.flush();
    }
}
