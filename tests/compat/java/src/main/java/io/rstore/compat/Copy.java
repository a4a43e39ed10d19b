package io.rstore.compat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;

/** A copy of a store directory in a temporary place, holes kept; gone when closed. */
final class Copy implements AutoCloseable {
    private final Path parent;
    private final Path path;

    Copy(Path store) throws IOException, InterruptedException {
        parent = Files.createTempDirectory("rstore-compat");
        path = parent.resolve("store");
        int code = new ProcessBuilder(List.of("cp", "-a", "--sparse=always", "--", store.toString(), path.toString()))
            .inheritIO().start().waitFor();
        if (code != 0) {
            throw new IOException("can't copy " + store);
        }
    }

    Path path() {
        return path;
    }

    @Override
    public void close() throws IOException {
        try (Stream<Path> walk = Files.walk(parent)) {
            for (Path file : (Iterable<Path>) walk.sorted(Comparator.reverseOrder())::iterator) {
                Files.delete(file);
            }
        }
    }
}
