package io.rstore.compat;

import java.io.DataInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/** What lies in a store directory, looked at without Apache's code. */
final class Disk {
    private static final int INDEX_HEADER = 40;

    private final Path root;

    Disk(Path root) {
        this.root = root;
    }

    boolean abort() {
        return Files.exists(root.resolve("abort"));
    }

    long abortSize() throws IOException {
        return abort() ? Files.size(root.resolve("abort")) : -1;
    }

    /** The checkpoint file, or null. */
    Map<String, Object> checkpoint() throws IOException {
        Path file = root.resolve("checkpoint");
        if (!Files.exists(file)) {
            return null;
        }
        ByteBuffer head = head(file, 24);
        return Lines.of("size", Files.size(file), "physicMsgTimestamp", head.getLong(0), "logicsMsgTimestamp",
            head.getLong(8), "indexMsgTimestamp", head.getLong(16));
    }

    /** Every file and its size, by path; none when there is no store yet. */
    List<Map<String, Object>> files() throws IOException {
        List<Map<String, Object>> all = new ArrayList<>();
        if (!Files.exists(root)) {
            return all;
        }
        try (Stream<Path> walk = Files.walk(root)) {
            for (Path file : (Iterable<Path>) walk.filter(Files::isRegularFile).sorted()::iterator) {
                String path = root.relativize(file).toString().replace('\\', '/');
                all.add(Lines.of("path", path, "size", Files.size(file)));
            }
        }
        return all;
    }

    /** The header of every index file, by name. */
    List<Map<String, Object>> indexHeaders() throws IOException {
        List<Map<String, Object>> all = new ArrayList<>();
        for (Path file : list(root.resolve("index"))) {
            ByteBuffer head = head(file, INDEX_HEADER);
            all.add(Lines.of("name", file.getFileName().toString(), "beginTimestamp", head.getLong(0), "endTimestamp",
                head.getLong(8), "beginPhyOffset", head.getLong(16), "endPhyOffset", head.getLong(24),
                "hashSlotCount", head.getInt(32), "indexCount", head.getInt(36)));
        }
        return all;
    }

    /** The files in a directory, by name; none when it is not there. */
    static List<Path> list(Path directory) throws IOException {
        if (!Files.isDirectory(directory)) {
            return List.of();
        }
        try (Stream<Path> files = Files.list(directory)) {
            return files.filter(Files::isRegularFile).sorted().toList();
        }
    }

    private static ByteBuffer head(Path file, int length) throws IOException {
        byte[] bytes = new byte[length];
        try (DataInputStream in = new DataInputStream(Files.newInputStream(file))) {
            in.readNBytes(bytes, 0, length);
        }
        return ByteBuffer.wrap(bytes);
    }
}
