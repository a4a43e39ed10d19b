package io.rstore.clients;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Many commands of mqadmin in one process: one a line on stdin; after each, what it printed ends with a line "== done". */
public final class Admin {
    private Admin() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = System.out;
        System.setErr(out);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            MQAdminStartup.main0(line.trim().split(" "), null);
            out.println();
            out.println("== done");
        }
        System.exit(0);
    }
}
