package io.rstore.bench;

import java.util.LinkedHashMap;
import java.util.Map;

/** What a job did: messages, bytes of records, and what else is worth telling. */
final class Done {
    final long messages;
    final long bytes;
    final Map<String, Double> more = new LinkedHashMap<>();

    Done(long messages, long bytes) {
        this.messages = messages;
        this.bytes = bytes;
    }

    Done with(String name, double value) {
        more.put(name, value);
        return this;
    }
}
