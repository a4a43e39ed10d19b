package io.rstore.compat;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/** JSON lines, on standard output or into a file. */
final class Lines implements AutoCloseable {
    private final OutputStream out;

    Lines() {
        this(new FileOutputStream(FileDescriptor.out));
    }

    Lines(OutputStream out) {
        this.out = new BufferedOutputStream(out, 1 << 16);
    }

    /** An ordered map of the given names and values, in turn. */
    static Map<String, Object> of(Object... namesAndValues) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            map.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return map;
    }

    /** Prints one line: its type, then the given names and values, in turn. */
    void print(String type, Object... namesAndValues) {
        Map<String, Object> line = of("type", type);
        line.putAll(of(namesAndValues));
        print(line);
    }

    void print(Map<String, Object> line) {
        String text = JSON.toJSONString(line, SerializerFeature.WriteMapNullValue,
            SerializerFeature.DisableCircularReferenceDetect);
        try {
            out.write(text.getBytes(StandardCharsets.UTF_8));
            out.write('\n');
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Hands on what was printed: a reader sees it even if this process hangs later. */
    void flush() {
        try {
            out.flush();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public void close() {
        try {
            out.close();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
