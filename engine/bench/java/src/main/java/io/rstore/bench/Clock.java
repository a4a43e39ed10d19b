package io.rstore.bench;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;

/** Wall and processor time (all threads) from {@link #start} to {@link #stop}. */
final class Clock {
    private final OperatingSystemMXBean system =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private long wall;
    private long processor;
    private double seconds;
    private double processorSeconds;

    void start() {
        processor = system.getProcessCpuTime();
        wall = System.nanoTime();
    }

    void stop() {
        seconds = (System.nanoTime() - wall) / 1e9;
        processorSeconds = (system.getProcessCpuTime() - processor) / 1e9;
    }

    /** Seconds since the start. */
    double sofar() {
        return (System.nanoTime() - wall) / 1e9;
    }

    double seconds() {
        return seconds;
    }

    double processorSeconds() {
        return processorSeconds;
    }
}
