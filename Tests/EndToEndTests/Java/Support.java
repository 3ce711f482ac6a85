import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.Callable;

/** The shared parts of the programs: checks, scenarios, and the report of a run. */
final class Support {
    private Support() {}

    /** A part of a program; it may throw anything. */
    interface Scenario {
        void run() throws Exception;
    }

    private static int checked;
    private static int problems;
    private static final Random random = new Random();

    static String environment(String name) {
        return Objects.requireNonNull(System.getenv(name), name + " is not set");
    }

    /** A difference is a line on standard error, and the exit status 1. */
    static synchronized void check(String what, Object got, Object wanted) {
        checked += 1;
        if (Objects.equals(got, wanted)) return;
        problems += 1;
        System.err.println(what + ": got " + got + ", wanted " + wanted);
    }

    /** A call that must fail with an error of that class; the error, if it did. */
    static <Fault extends Throwable> Fault refused(String what, Class<Fault> kind, Scenario call) {
        Throwable got = null;
        try {
            call.run();
        } catch (Throwable error) {
            for (got = error; got != null && !kind.isInstance(got);) got = got.getCause();
            if (got == null) got = error;
        }
        check(what + ": its error", got == null ? null : got.getClass().getName(), kind.getName());
        return kind.isInstance(got) ? kind.cast(got) : null;
    }

    /** An object that must be stored once; "*" is an id that only the service knows. */
    static synchronized void sent(String type, String id) {
        System.out.println("sent " + type + " " + id);
    }

    /** The token of a device that must get one silent push. */
    static synchronized void told(String token) {
        System.out.println("told " + token);
    }

    /** Expects a device to have got just these notifications, by their texts, in any order. */
    static synchronized void heard(String token, String... texts) {
        List<String> words = new ArrayList<>(List.of("heard", token));
        for (String text : texts) words.add(Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8)));
        System.out.println(String.join(" ", words));
    }

    /** Returns this many random hexadecimal digits. */
    static synchronized String digits(int count) {
        StringBuilder text = new StringBuilder();
        while (text.length() < count) text.append(Character.forDigit(random.nextInt(16), 16));
        return text.toString();
    }

    /** Polls until the answer is yes, for at most a minute. */
    static void until(String what, Callable<Boolean> ask) throws Exception {
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (!ask.call()) {
            if (System.nanoTime() > deadline) throw new IllegalStateException("not within a minute: " + what);
            Thread.sleep(20);
        }
    }

    /** Runs the scenario that the command line names, or all of them in their order. */
    static void main(String[] arguments, Map<String, Scenario> scenarios) {
        for (Map.Entry<String, Scenario> one : scenarios.entrySet()) {
            if (arguments.length > 0 && !List.of(arguments).contains(one.getKey())) continue;
            try {
                one.getValue().run();
            } catch (Throwable error) {
                problems += 1;
                System.err.print(one.getKey() + " ended early: ");
                error.printStackTrace();
            }
        }
        System.out.println("{\"checked\":" + checked + ",\"problems\":" + problems + "}");
        System.out.flush();
        // The packages may keep threads.
        System.exit(problems > 0 ? 1 : 0);
    }
}
