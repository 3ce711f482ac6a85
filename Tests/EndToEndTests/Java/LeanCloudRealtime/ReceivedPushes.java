package cn.leancloud.push;

import java.util.ArrayList;
import java.util.List;

/** Pushes as the SDK hands them to an app. Only its own package may extend the manager. */
public final class ReceivedPushes extends AVNotificationManager {
    private final List<String> data = new ArrayList<>();
    private final List<String> ids = new ArrayList<>();

    public ReceivedPushes() {
        AVPushMessageListener.getInstance().setNotificationManager(this);
    }

    @Override
    public synchronized void processPushMessage(String message, String id) {
        data.add(message);
        ids.add(id);
    }

    public synchronized List<String> data() {
        return new ArrayList<>(data);
    }

    public synchronized List<String> ids() {
        return new ArrayList<>(ids);
    }

    @Override
    String getApplicationName() {
        return "test";
    }

    @Override
    void sendNotification(String from, String message) {}

    @Override
    void sendBroadcast(String channel, String message, String action) {}
}
