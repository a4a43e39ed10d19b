package io.rstore.compat;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.logging.inner.SysLogger;

/**
 * {@code Batch FILE [--at-once N] [--timeout SECONDS]}: runs many of the other programs in one process, each on a store
 * of its own. A line of FILE is {@code {"main": NAME, "args": [WORD…], "out": FILE}}; a {@code ran} line is printed for
 * each with its number in FILE and its exit, null when it did not end in time (it goes on in the background then).
 */
public final class Batch {
    private static final Map<String, Exit.Body> MAINS = Map.of(
        "Read", Read::run, "Holds", Holds::run, "Append", Append::run, "Outcome", Outcome::run);

    private final Queue<Job> jobs;
    private final long timeoutMillis;
    private final Lines out;

    private Batch(List<Job> jobs, long timeoutMillis, Lines out) {
        this.jobs = new ConcurrentLinkedQueue<>(jobs);
        this.timeoutMillis = timeoutMillis;
        this.out = out;
    }

    public static void main(String[] argv) {
        SysLogger.setQuietMode(true);
        Exit.with(argv, Batch::run);
    }

    /** One run: its number, what to run with what, and the file that takes its lines. */
    private record Job(int number, Exit.Body body, String[] args, Path out) {
        static Job of(int number, String line) {
            JSONObject job = JSON.parseObject(line);
            Exit.Body body = MAINS.get(job.getString("main"));
            if (body == null) {
                throw new IllegalArgumentException("not one for a batch: " + job.getString("main"));
            }
            String[] args = job.getJSONArray("args").toArray(new String[0]);
            return new Job(number, body, args, Path.of(job.getString("out")));
        }

        int run() {
            try (Lines lines = new Lines(Files.newOutputStream(out))) {
                return Exit.run(args, body, lines);
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
    }

    private static int run(Args args, Lines out) throws Exception {
        List<Job> jobs = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(args.word(0, "FILE")))) {
            jobs.add(Job.of(jobs.size(), line));
        }
        Batch batch = new Batch(jobs, Long.parseLong(args.option("timeout", "60")) * 1000, out);
        List<Thread> runners = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(args.option("at-once", "4")); i++) {
            runners.add(new Thread(batch::runAll, "runner-" + i));
        }
        runners.forEach(Thread::start);
        for (Thread runner : runners) {
            runner.join();
        }
        return Exit.OPENED;
    }

    private void runAll() {
        for (Job job = jobs.poll(); job != null; job = jobs.poll()) {
            Integer exit = runOne(job);
            synchronized (out) {
                out.print("ran", "number", job.number(), "exit", exit);
                out.flush();
            }
        }
    }

    /** The job's exit; null when it hangs. */
    private Integer runOne(Job job) {
        Integer[] exit = new Integer[1];
        Thread thread = new Thread(() -> exit[0] = job.run(), "job-" + job.number());
        thread.setDaemon(true);
        thread.start();
        try {
            thread.join(timeoutMillis);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        return thread.isAlive() ? null : exit[0];
    }
}
