/** What the clients' programs share. */
final class Shared {
    /** Deletes a lock if it is its holder's: the script of the page on distributed locks. */
    static final String RELEASE =
            "if redis.call(\"get\",KEYS[1]) == ARGV[1] then\n    return redis.call(\"del\",KEYS[1])\nelse\n    return 0\nend";

    private Shared() {}

    static void same(String what, Object found, Object expected) {
        if (!expected.equals(found)) {
            throw new AssertionError(what + ": expected " + expected + ", found " + found);
        }
    }
}
