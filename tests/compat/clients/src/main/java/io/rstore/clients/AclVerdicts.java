package io.rstore.clients;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.acl.plain.PlainAccessValidator;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * What Apache's own PlainAccessValidator makes of requests: a file with a JSON array of {address, code, ext, body};
 * its verdicts as a JSON array on stdout, null for "may". The accounts are those of conf/ in rocketmq.home.dir.
 */
public final class AclVerdicts {
    private AclVerdicts() {
    }

    /** REQUESTS. */
    public static void main(String[] args) throws Exception {
        PlainAccessValidator validator = new PlainAccessValidator();
        JSONArray requests = JSON.parseArray(Files.readString(Path.of(args[0])));
        List<String> verdicts = new ArrayList<>();
        for (int i = 0; i < requests.size(); i++) {
            verdicts.add(verdict(validator, requests.getJSONObject(i)));
        }
        System.out.println(JSON.toJSONString(verdicts));
        System.exit(0);
    }

    private static String verdict(PlainAccessValidator validator, JSONObject said) {
        RemotingCommand request = RemotingCommand.createRequestCommand(said.getIntValue("code"), null);
        JSONObject ext = said.getJSONObject("ext");
        if (ext != null) {
            Map<String, String> fields = new HashMap<>();
            ext.forEach((name, value) -> fields.put(name, (String) value));
            request.setExtFields(new HashMap<>(fields));
        }
        String body = said.getString("body");
        if (!body.isEmpty()) {
            request.setBody(body.getBytes(StandardCharsets.UTF_8));
        }
        try {
            validator.validate(validator.parse(request, said.getString("address") + ":4711"));
            return null;
        } catch (Exception e) {
            return String.valueOf(e.getMessage());
        }
    }
}
