package io.rstore.bench;

import java.io.PrintStream;
import java.util.Arrays;
import java.util.Locale;
import java.util.StringJoiner;
import org.apache.rocketmq.logging.inner.SysLogger;

/**
 * {@code Bench JOB name=value…}: one job on the store at {@code root}, and a line of JSON with what it took. The time is
 * that of the store's own method: neither the JVM's start nor the making of the store object is in it.
 */
public final class Bench {
    private Bench() {
    }

    public static void main(String[] words) {
        PrintStream answers = System.out;
        System.setOut(System.err); // what Apache's logs say there is no answer
        SysLogger.setQuietMode(true);
        int exit = 0;
        try {
            Clock clock = new Clock();
            Done done = run(words[0], new Options(Arrays.copyOfRange(words, 1, words.length)), clock);
            answers.println(answer(done, clock));
        } catch (Exception e) {
            System.err.println(e);
            exit = 1;
        }
        answers.flush();
        Runtime.getRuntime().halt(exit); // what runs beside the store is not waited for
    }

    private static Done run(String job, Options options, Clock clock) throws Exception {
        switch (job) {
            case "load":
                return load(options, clock);
            case "open":
                return open(options, clock);
            case "fill":
                return new Fill(BenchStore.opened(options), options, clock).run();
            case "put-one":
                return new Puts(BenchStore.opened(options), options, clock).one();
            case "put-batch":
                return new Puts(BenchStore.opened(options), options, clock).batches();
            case "put-callers":
                return new Puts(BenchStore.opened(options), options, clock).byCallers();
            case "get-raw":
                return new Gets(BenchStore.opened(options), options, clock).sequential(false);
            case "get-decoded":
                return new Gets(BenchStore.opened(options), options, clock).sequential(true);
            case "query":
                return new Gets(BenchStore.opened(options), options, clock).query();
            case "get-by-time":
                return new Gets(BenchStore.opened(options), options, clock).byTime();
            case "serve-send":
                return new Served(options, clock).send();
            case "serve-pull":
                return new Served(options, clock).pull();
            case "serve-push":
                return new Served(options, clock).push();
            case "serve-wake":
                return new Served(options, clock).wake();
            default:
                throw new IllegalArgumentException("no such job: " + job);
        }
    }

    private static Done load(Options options, Clock clock) throws Exception {
        BenchStore store = BenchStore.of(options);
        clock.start();
        store.demandLoad();
        clock.stop();
        return new Done(options.big("messages"), store.getMaxPhyOffset() - store.getMinPhyOffset());
    }

    private static Done open(Options options, Clock clock) throws Exception {
        BenchStore store = BenchStore.of(options);
        clock.start();
        store.demandLoad();
        double loaded = clock.sofar();
        store.start();
        clock.stop();
        return new Done(options.big("messages"), 0).with("loadSeconds", loaded);
    }

    private static String answer(Done done, Clock clock) {
        StringJoiner more = new StringJoiner(", ", "{", "}");
        done.more.forEach((name, value) -> more.add(String.format(Locale.ROOT, "\"%s\": %.6f", name, value)));
        return String.format(Locale.ROOT, "{\"seconds\": %.6f, \"cpu\": %.6f, \"messages\": %d, \"bytes\": %d, \"more\": %s}",
            clock.seconds(), clock.processorSeconds(), done.messages, done.bytes, more);
    }
}
