package io.rstore.compat5;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * {@code Keys5 CLASS…}: what each class of settings lets a file set: {@code KEY}, whether anything can ask for it
 * ({@code read} or {@code deaf}), and its default, by tabs. A class that is not there is passed over.
 */
public final class Keys5 {
    private Keys5() {
    }

    public static void main(String[] names) throws Exception {
        for (String name : names) {
            Class<?> type;
            try {
                type = Class.forName(name);
            } catch (ClassNotFoundException e) {
                continue;
            }
            Object settings = type.getDeclaredConstructor().newInstance();
            Map<String, Method> getters = new TreeMap<>();
            Set<String> keys = new TreeSet<>();
            for (Method method : type.getMethods()) {
                String word = method.getName();
                if (word.startsWith("set") && word.length() > 3 && method.getParameterCount() == 1) {
                    keys.add(word.substring(3));
                } else if (method.getParameterCount() == 0) {
                    getters.put(word, method);
                }
            }
            for (String key : keys) {
                Method getter = getters.getOrDefault("get" + key, getters.get("is" + key));
                String own = key.substring(0, 1).toLowerCase() + key.substring(1);
                Object value = getter == null ? field(settings, own) : getter.invoke(settings);
                System.out.println("key\t" + own + "\t" + (getter == null ? "deaf" : "read") + "\t" + value);
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static Object field(Object settings, String name) throws IllegalAccessException {
        for (Field field : settings.getClass().getDeclaredFields()) {
            if (field.getName().equals(name)) {
                field.setAccessible(true);
                return field.get(settings);
            }
        }
        return null;
    }
}
