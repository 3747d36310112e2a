import java.util.*;

/** Short-lived strings and a map whose entries live for a while: a heap that its collector goes through again and again. */
public class Heap {
    static long state = 7;

    static int pick(int n) {
        state = state * 6364136223846793005L + 1442695040888963407L;
        return (int) ((state >>> 33) % n);
    }

    public static void main(String[] args) {
        Map<Integer, List<String>> map = new HashMap<>();
        long sum = 0;
        for (int i = 0; i < 2_000_000; i++) {
            List<String> list = map.computeIfAbsent(pick(60_000), k -> new ArrayList<>());
            list.add("value " + i + " of " + pick(1_000_000));
            if (list.size() > 12)
                map.remove(pick(60_000));
            sum += list.get(pick(list.size())).length();
        }
        System.out.println(sum + " " + map.size());
    }
}
