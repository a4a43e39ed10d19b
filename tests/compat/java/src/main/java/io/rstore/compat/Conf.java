package io.rstore.compat;

import java.io.BufferedInputStream;
import java.io.InputStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Calendar;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TimeZone;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.remoting.common.RemotingUtil;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * {@code Conf keys}: prints every key that a broker's settings have: whose, of which types, and its default.
 * {@code Conf DIRECTORY}: for each file in it, what is in force once a broker has read it, as BrokerStartup does it:
 * what differs from the defaults, by class and key; the hours of deleteWhen; whether the name servers can be read.
 */
public final class Conf {
    private static final int HOURS = 24;

    private Conf() {
    }

    public static void main(String[] argv) {
        Exit.with(argv, Conf::run);
    }

    private static int run(Args args, Lines out) throws Exception {
        List<Object> defaults = fresh();
        String directory = args.word(0, "DIRECTORY or keys");
        if (directory.equals("keys")) {
            out.print("processors", "count", Runtime.getRuntime().availableProcessors());
            for (Object object : defaults) {
                printKeys(object, out);
            }
            return Exit.OPENED;
        }
        List<Map<String, Object>> before = told(defaults);
        try (var files = Files.list(Path.of(directory))) {
            for (Path file : files.sorted().toList()) {
                printInForce(file, before, out);
            }
        }
        return Exit.OPENED;
    }

    private static List<Object> fresh() {
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(10911);  // as BrokerStartup
        return List.of(new BrokerConfig(), server, new NettyClientConfig(), new MessageStoreConfig());
    }

    private static void printKeys(Object object, Lines out) throws Exception {
        Map<String, TreeSet<String>> types = new TreeMap<>();
        for (Method method : object.getClass().getMethods()) {
            if (method.getName().startsWith("set") && method.getParameterCount() == 1) {
                types.computeIfAbsent(key(method), k -> new TreeSet<>())
                    .add(method.getParameterTypes()[0].getSimpleName());
            }
        }
        for (Map.Entry<String, TreeSet<String>> found : types.entrySet()) {
            out.print("key", "class", object.getClass().getSimpleName(), "key", found.getKey(), "types",
                new ArrayList<>(found.getValue()), "default", value(object, found.getKey()));
        }
    }

    private static void printInForce(Path file, List<Map<String, Object>> before, Lines out) throws Exception {
        Properties properties = new Properties();
        try (InputStream in = new BufferedInputStream(Files.newInputStream(file))) {
            properties.load(in);
        } catch (IllegalArgumentException e) {
            out.print("conf", "file", file.getFileName().toString(), "error", e.getMessage());
            return;
        }
        List<Object> objects = fresh();
        Map<String, Object> changed = new TreeMap<>();
        for (int i = 0; i < objects.size(); i++) {
            Object object = objects.get(i);
            MixAll.properties2Object(properties, object);
            Map<String, Object> different = new TreeMap<>(told(object));
            different.entrySet().removeAll(before.get(i).entrySet());
            changed.put(object.getClass().getSimpleName(), different);
        }
        out.print("conf", "file", file.getFileName().toString(), "properties", new TreeMap<>(properties), "inForce",
            changed, "hours", hours(((MessageStoreConfig) objects.get(3)).getDeleteWhen()), "nameServers",
            canRead(((BrokerConfig) objects.get(0)).getNamesrvAddr()));
    }

    /** Each hour of the day: T, retention finds that it is time; F, it does not; X, it throws. */
    private static String hours(String when) {
        TimeZone own = TimeZone.getDefault();
        char[] found = new char[HOURS];
        try {
            for (int shift = 0; shift < HOURS; shift++) {
                TimeZone.setDefault(TimeZone.getTimeZone(String.format("GMT+%02d:00", shift)));
                int hour = Calendar.getInstance().get(Calendar.HOUR_OF_DAY);
                char said = 'X';
                try {
                    said = UtilAll.isItTimeToDo(when) ? 'T' : 'F';
                } catch (NumberFormatException e) {
                    said = 'X';
                }
                if (Calendar.getInstance().get(Calendar.HOUR_OF_DAY) != hour) {
                    shift--;  // the hour has struck meanwhile
                    continue;
                }
                found[hour] = said;
            }
        } finally {
            TimeZone.setDefault(own);
        }
        return new String(found);
    }

    private static boolean canRead(String nameServers) {
        try {
            if (nameServers != null) {
                for (String one : nameServers.split(";")) {
                    RemotingUtil.string2SocketAddress(one);
                }
            }
            return true;
        } catch (RuntimeException e) {
            return false;
        }
    }

    private static List<Map<String, Object>> told(List<Object> objects) throws Exception {
        List<Map<String, Object>> found = new ArrayList<>();
        for (Object object : objects) {
            found.add(told(object));
        }
        return found;
    }

    private static Map<String, Object> told(Object object) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (Method method : object.getClass().getMethods()) {
            if (method.getName().startsWith("set")) {
                found.put(key(method), value(object, key(method)));
            }
        }
        return found;
    }

    private static String key(Method setter) {
        String name = setter.getName();
        return name.substring(3, 4).toLowerCase() + name.substring(4);
    }

    /** What the getter says, which is what the broker goes by, or without one the field. */
    private static Object value(Object object, String key) throws Exception {
        for (String prefix : List.of("get", "is")) {
            for (Method method : object.getClass().getMethods()) {
                boolean fits = method.getName().equalsIgnoreCase(prefix + key) && method.getParameterCount() == 0;
                if (fits) {
                    return plain(method.invoke(object));
                }
            }
        }
        Field field = object.getClass().getDeclaredField(key);
        field.setAccessible(true);
        return plain(field.get(object));
    }

    private static Object plain(Object value) {
        return value instanceof Enum<?> one ? one.name() : value;
    }
}
