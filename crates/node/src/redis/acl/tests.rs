//! Rules, what they allow, and what is said of them. Lines marked with Redis' words were compared with Redis.

use super::super::tests::{World, play, talk};
use super::Users;
use crate::gateway::Login;
use expect_test::{Expect, expect};
use isochrone_core::KeyspaceId;
use std::fs;

#[track_caller]
fn check(script: &str, expected: Expect) {
    expected.assert_eq(&talk(Login::Open, script));
}

#[test]
fn users_are_made_listed_and_deleted() {
    check(
        "> ACL LIST
         > ACL SETUSER alice
         > ACL GETUSER alice
         > ACL SETUSER alice on >secret ~a* %R~r:* %W~w &ch* +get +@read -@dangerous +config|get
         > ACL LIST
         > ACL USERS ; ACL WHOAMI
         > ACL SETUSER alice +@all -set ; ACL GETUSER alice
         > ACL SETUSER alice +config|get +config|set -config ; ACL GETUSER alice
         > ACL SETUSER alice reset ; ACL GETUSER alice ; ACL GETUSER nobody
         > ACL DELUSER alice nobody ; ACL DELUSER default
         > ACL LIST",
        expect![[r#"
            > ACL LIST
              *1·$51·user default on nopass sanitize-payload ~* &* +@all·
            > ACL SETUSER alice
              +OK·
            > ACL GETUSER alice
              *12·$5·flags·*2·$3·off·$16·sanitize-payload·$9·passwords·*0·$8·commands·$5·-@all·$4·keys·$0··$8·channels·$0··$9·selectors·*0·
            > ACL SETUSER alice on >secret ~a* %R~r:* %W~w &ch* +get +@read -@dangerous +config|get
              +OK·
            > ACL LIST
              *2·$173·user alice on sanitize-payload #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b ~a* %R~r:* %W~w resetchannels &ch* -@all +get +@read -@dangerous +config|get·$51·user default on nopass sanitize-payload ~* &* +@all·
            > ACL USERS ; ACL WHOAMI
              *2·$5·alice·$7·default·$7·default·
            > ACL SETUSER alice +@all -set ; ACL GETUSER alice
              +OK·*12·$5·flags·*2·$2·on·$16·sanitize-payload·$9·passwords·*1·$64·2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b·$8·commands·$10·+@all -set·$4·keys·$15·~a* %R~r:* %W~w·$8·channels·$4·&ch*·$9·selectors·*0·
            > ACL SETUSER alice +config|get +config|set -config ; ACL GETUSER alice
              +OK·*12·$5·flags·*2·$2·on·$16·sanitize-payload·$9·passwords·*1·$64·2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b·$8·commands·$18·+@all -set -config·$4·keys·$15·~a* %R~r:* %W~w·$8·channels·$4·&ch*·$9·selectors·*0·
            > ACL SETUSER alice reset ; ACL GETUSER alice ; ACL GETUSER nobody
              +OK·*12·$5·flags·*2·$3·off·$16·sanitize-payload·$9·passwords·*0·$8·commands·$5·-@all·$4·keys·$0··$8·channels·$0··$9·selectors·*0·$-1·
            > ACL DELUSER alice nobody ; ACL DELUSER default
              :1·-ERR The 'default' user cannot be removed·
            > ACL LIST
              *1·$51·user default on nopass sanitize-payload ~* &* +@all·
        "#]],
    );
}

#[test]
fn rules_that_are_none_are_refused_in_redis_words() {
    check(
        "> ACL SETUSER x +nosuch
         > ACL SETUSER x +@nosuch
         > ACL SETUSER x #12
         > ACL SETUSER x <nopw
         > ACL SETUSER x foo
         > ACL SETUSER x %Z~x
         > ACL SETUSER x ~* ~x
         > ACL SETUSER x &* &x
         > ACL SETUSER x +config|nosuch
         > ACL SETUSER x +sort +xgroup +debug ; ACL DELUSER x
         > ACL GETUSER x
         > ACL GENPASS 0
         > ACL GENPASS x
         > ACL CAT nosuch
         > ACL DRYRUN nosuch GET a
         > ACL DRYRUN default NOSUCH
         > ACL DRYRUN default GET
         > ACL LOG x
         > ACL SAVE
         > ACL LOAD",
        expect![[r#"
            > ACL SETUSER x +nosuch
              -ERR Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL·
            > ACL SETUSER x +@nosuch
              -ERR Error in ACL SETUSER modifier '+@nosuch': Unknown command or category name in ACL·
            > ACL SETUSER x #12
              -ERR Error in ACL SETUSER modifier '#12': The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters·
            > ACL SETUSER x <nopw
              -ERR Error in ACL SETUSER modifier '<nopw': The password you are trying to remove from the user does not exist·
            > ACL SETUSER x foo
              -ERR Error in ACL SETUSER modifier 'foo': Syntax error·
            > ACL SETUSER x %Z~x
              -ERR Error in ACL SETUSER modifier '%Z~x': Syntax error·
            > ACL SETUSER x ~* ~x
              -ERR Error in ACL SETUSER modifier '~x': Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns·
            > ACL SETUSER x &* &x
              -ERR Error in ACL SETUSER modifier '&x': Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels·
            > ACL SETUSER x +config|nosuch
              -ERR Error in ACL SETUSER modifier '+config|nosuch': Unknown command or category name in ACL·
            > ACL SETUSER x +sort +xgroup +debug ; ACL DELUSER x
              +OK·:1·
            > ACL GETUSER x
              $-1·
            > ACL GENPASS 0
              -ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096·
            > ACL GENPASS x
              -ERR value is not an integer or out of range·
            > ACL CAT nosuch
              -ERR Unknown category 'nosuch'·
            > ACL DRYRUN nosuch GET a
              -ERR User 'nosuch' not found·
            > ACL DRYRUN default NOSUCH
              -ERR Command 'NOSUCH' not found·
            > ACL DRYRUN default GET
              -ERR wrong number of arguments for 'get' command·
            > ACL LOG x
              -ERR value is not an integer or out of range·
            > ACL SAVE
              -ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration.·
            > ACL LOAD
              -ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration.·
        "#]],
    );
}

#[test]
fn what_is_not_allowed_is_denied_and_logged() {
    check(
        "> ACL SETUSER eve on nopass ~mine:* %R~shared %W~drop &news +@all -@admin -flushall +acl|whoami +acl|log
         > AUTH eve x
         > ACL WHOAMI
         > GET mine:1 ; GET shared ; SET drop x
         < 0 nil
         < 1 nil
         < 2 ok
         > SET shared x ; GET drop ; GET other
         > SET drop x GET ; STRLEN drop ; EXISTS shared drop
         < 3 int 0
         < 4 int 2
         > MGET mine:1 other ; COPY shared mine:2 ; COPY mine:2 shared
         < 5 int 0
         > FLUSHALL ; CONFIG GET save ; ACL LIST
         > PUBLISH news a ; PUBLISH other a ; SUBSCRIBE news ; UNSUBSCRIBE news ; PSUBSCRIBE n* ; PSUBSCRIBE news
         > PUNSUBSCRIBE
         > MULTI ; SET other 1 ; EXEC
         > EVALSHA x 1 other
         > ZUNIONSTORE mine:z 2 shared other
         > SET drop get ; SET drop x EX 9 get
         < 7 ok
         > AUTH nobody x
         < 8 denied
         > ACL LOG 2
         > ACL LOG RESET ; ACL LOG",
        expect![[r#"
            > ACL SETUSER eve on nopass ~mine:* %R~shared %W~drop &news +@all -@admin -flushall +acl|whoami +acl|log
              +OK·
            > AUTH eve x
              +OK·
            > ACL WHOAMI
              $3·eve·
            > GET mine:1 ; GET shared ; SET drop x
              ask 0 k1 Get { key: "mine:1" }
              ask 1 k1 Get { key: "shared" }
              ask 2 k1 Set { key: "drop", value: "x", condition: Always, expiry: Clear, get: false } in order
            < 0 nil
              $-1·
            < 1 nil
              $-1·
            < 2 ok
              +OK·
            > SET shared x ; GET drop ; GET other
              -NOPERM No permissions to access a key·-NOPERM No permissions to access a key·-NOPERM No permissions to access a key·
            > SET drop x GET ; STRLEN drop ; EXISTS shared drop
              ask 3 k1 StrLen { key: "drop" }
              ask 4 k1 Exists { keys: ["shared", "drop"] }
              -NOPERM No permissions to access a key·
            < 3 int 0
              :0·
            < 4 int 2
              :2·
            > MGET mine:1 other ; COPY shared mine:2 ; COPY mine:2 shared
              ask 5 k1 Copy { key: "shared", target: "mine:2", replace: false }
              -NOPERM No permissions to access a key·
            < 5 int 0
              :0·-NOPERM No permissions to access a key·
            > FLUSHALL ; CONFIG GET save ; ACL LIST
              -NOPERM User eve has no permissions to run the 'flushall' command·-NOPERM User eve has no permissions to run the 'config|get' command·-NOPERM User eve has no permissions to run the 'acl|list' command·
            > PUBLISH news a ; PUBLISH other a ; SUBSCRIBE news ; UNSUBSCRIBE news ; PSUBSCRIBE n* ; PSUBSCRIBE news
              :0·-NOPERM No permissions to access a channel·*3·$9·subscribe·$4·news·:1·*3·$11·unsubscribe·$4·news·:0·-NOPERM No permissions to access a channel·*3·$10·psubscribe·$4·news·:1·
            > PUNSUBSCRIBE
              *3·$12·punsubscribe·$4·news·:0·
            > MULTI ; SET other 1 ; EXEC
              +OK·-NOPERM No permissions to access a key·-EXECABORT Transaction discarded because of previous errors.·
            > EVALSHA x 1 other
              -NOPERM No permissions to access a key·
            > ZUNIONSTORE mine:z 2 shared other
              -NOPERM No permissions to access a key·
            > SET drop get ; SET drop x EX 9 get
              ask 7 k1 Set { key: "drop", value: "get", condition: Always, expiry: Clear, get: false }
            < 7 ok
              +OK·-NOPERM No permissions to access a key·
            > AUTH nobody x
              -WRONGPASS invalid username-password pair or user is disabled.·
            < 8 denied
            > ACL LOG 2
              *2·*20·$5·count·:1·$6·reason·$4·auth·$7·context·$8·toplevel·$6·object·$4·AUTH·$8·username·$6·nobody·$11·age-seconds·$1·0·$11·client-info·$296·id=7 addr=127.0.0.1:50000 laddr=127.0.0.1:7001 fd=-1 name= age=100 idle=100 flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 watch=0 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd=set user=eve redir=-1 resp=2 lib-name= lib-ver= tot-net-in=0 tot-net-out=0·$8·entry-id·:9·$17·timestamp-created·:1700000000000·$22·timestamp-last-updated·:1700000000000·*20·$5·count·:3·$6·reason·$3·key·$7·context·$8·toplevel·$6·object·$4·drop·$8·username·$3·eve·$11·age-seconds·$1·0·$11·client-info·$304·id=7 addr=127.0.0.1:50000 laddr=127.0.0.1:7001 fd=-1 name= age=100 idle=100 flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 watch=0 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd=zunionstore user=eve redir=-1 resp=2 lib-name= lib-ver= tot-net-in=0 tot-net-out=0·$8·entry-id·:1·$17·timestamp-created·:1700000000000·$22·timestamp-last-updated·:1700000000000·
            > ACL LOG RESET ; ACL LOG
              +OK·*0·
        "#]],
    );
}

#[test]
fn a_dry_run_says_what_would_be_denied() {
    check(
        "> ACL SETUSER bob ~a %r~r &c +get +set +publish
         > ACL DRYRUN bob GET a ; ACL DRYRUN bob GET b ; ACL DRYRUN bob SET r 1 ; ACL DRYRUN bob DEL a
         > ACL DRYRUN bob PUBLISH c x ; ACL DRYRUN bob PUBLISH d x ; ACL DRYRUN bob AUTH x
         > ACL SETUSER eve %RR~a ; ACL SETUSER eve %X~a ; ACL SETUSER eve %~a ; ACL SETUSER eve %R %wR~a ; ACL LIST",
        expect![[r#"
            > ACL SETUSER bob ~a %r~r &c +get +set +publish
              +OK·
            > ACL DRYRUN bob GET a ; ACL DRYRUN bob GET b ; ACL DRYRUN bob SET r 1 ; ACL DRYRUN bob DEL a
              +OK·$49·User bob has no permissions to access the 'b' key·$49·User bob has no permissions to access the 'r' key·$52·User bob has no permissions to run the 'del' command·
            > ACL DRYRUN bob PUBLISH c x ; ACL DRYRUN bob PUBLISH d x ; ACL DRYRUN bob AUTH x
              +OK·$53·User bob has no permissions to access the 'd' channel·+OK·
            > ACL SETUSER eve %RR~a ; ACL SETUSER eve %X~a ; ACL SETUSER eve %~a ; ACL SETUSER eve %R %wR~a ; ACL LIST
              -ERR Error in ACL SETUSER modifier '%RR~a': Syntax error·-ERR Error in ACL SETUSER modifier '%X~a': Syntax error·-ERR Error in ACL SETUSER modifier '%~a': Syntax error·+OK·*3·$79·user bob off sanitize-payload ~a %R~r resetchannels &c -@all +get +set +publish·$51·user default on nopass sanitize-payload ~* &* +@all·$56·user eve off sanitize-payload %R~ ~a resetchannels -@all·
        "#]],
    );
}

#[test]
fn a_script_does_nothing_that_its_user_may_not() {
    let release = "c3f8721cbb97f72bc19e972846bd7aaf91901658 1 lock me";
    let text =
        "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
    check(
        &format!(
            "> ACL SETUSER u on nopass ~lock* +auth +eval +evalsha +get +multi +exec +pexpire +acl|log
             > ACL SETUSER v on nopass ~lock* +auth +evalsha +get +del
             > AUTH u x ; EVALSHA {release} ; EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 1 lock me 5000
             < 0 int 1
             | *5\\r\\n$4\\r\\nEVAL\\r\\n${}\\r\\n{text}\\r\\n$1\\r\\n1\\r\\n$4\\r\\nlock\\r\\n$2\\r\\nme\\r\\n
             > EVALSHA x 1 lock me ; EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 x lock me
             > MULTI ; EVALSHA {release} ; EXEC
             > ACL LOG 1
             > AUTH v x ; EVALSHA {release}",
            text.len()
        ),
        expect![[r#"
            > ACL SETUSER u on nopass ~lock* +auth +eval +evalsha +get +multi +exec +pexpire +acl|log
              +OK·
            > ACL SETUSER v on nopass ~lock* +auth +evalsha +get +del
              +OK·
            > AUTH u x ; EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 lock me ; EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 1 lock me 5000
              ask 0 k1 ExpireIf { key: "lock", value: "me", deadline: To(1700000005000.000ms) }
              +OK·-ERR ACL failure in script: User u has no permissions to run the 'del' command·
            < 0 int 1
              :1·
            | *5\r\n$4\r\nEVAL\r\n$95\r\nif redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end\r\n$1\r\n1\r\n$4\r\nlock\r\n$2\r\nme\r\n
              -ERR ACL failure in script: User u has no permissions to run the 'del' command·
            > EVALSHA x 1 lock me ; EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 x lock me
              -NOSCRIPT No matching script. Please use EVAL.·-ERR value is not an integer or out of range·
            > MULTI ; EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 lock me ; EXEC
              +OK·+QUEUED·*1·-ERR ACL failure in script: User u has no permissions to run the 'del' command·
            > ACL LOG 1
              *1·*20·$5·count·:3·$6·reason·$7·command·$7·context·$3·lua·$6·object·$3·del·$8·username·$1·u·$11·age-seconds·$1·0·$11·client-info·$298·id=7 addr=127.0.0.1:50000 laddr=127.0.0.1:7001 fd=-1 name= age=100 idle=100 flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 watch=0 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd=evalsha user=u redir=-1 resp=2 lib-name= lib-ver= tot-net-in=0 tot-net-out=0·$8·entry-id·:0·$17·timestamp-created·:1700000000000·$22·timestamp-last-updated·:1700000000000·
            > AUTH v x ; EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 lock me
              ask 1 k1 DelIf { key: "lock", value: "me" }
              +OK·
        "#]],
    );
}

#[test]
fn a_transaction_is_denied_what_was_taken_away_since_it_was_queued() {
    let mut world = World::new(Login::Open);
    let mut text = play(&mut world, "> MULTI ; GET a ; SET b 1");
    let mut default = super::rules::User::root(true, true);
    default.apply(b"-set").unwrap();
    world.hub.users.users.insert("default".to_owned(), default);
    world.hub.users.settle();
    text += &play(&mut world, "> EXEC");
    expect![[r#"
        > MULTI ; GET a ; SET b 1
          +OK·+QUEUED·+QUEUED·
        > EXEC
          ask 0 k1 Transaction { watched: [], operations: [Get { key: "a" }] }
    "#]]
    .assert_eq(&text);
}

#[test]
fn who_is_logged_in_as_nobody_is_cut_off() {
    let mut world = World::new(Login::Open);
    play(&mut world, "> ACL SETUSER eve on nopass +@all allkeys &a ; AUTH eve x ; SUBSCRIBE a");
    let users = &mut world.hub.users;
    let mut eve = users.users["eve"].clone();
    eve.apply(b"resetchannels").unwrap();
    users.users.insert("eve".to_owned(), eve);
    let said = play(&mut world, "> RESET ; ACL SETUSER other on");
    assert!(!said.contains("closes"), "RESET has left eve and the channel: {said}");
    world.clients.get_mut(&9).unwrap().user = "other".to_owned();
    let said = play(&mut world, "> ACL SETUSER eve allchannels ; AUTH eve x ; ACL DELUSER eve other ; GET a");
    assert!(said.ends_with("  +OK·+OK·:2·\n  closes\n"), "its own reply is the last it is told: {said}");
    assert!(world.hub.is_killed(9) && !world.hub.is_killed(7), "others are ended at once");
}

#[test]
fn rules_for_channels_are_for_shard_channels_too() {
    check(
        "> ACL SETUSER eve on nopass +@all allkeys &a
         > ACL DRYRUN eve SPUBLISH a x ; ACL DRYRUN eve SPUBLISH b x
         > ACL DRYRUN eve SSUBSCRIBE a ; ACL DRYRUN eve SSUBSCRIBE a b ; ACL DRYRUN eve SUNSUBSCRIBE b
         > ACL SETUSER bob on nopass +@all allchannels ; ACL DRYRUN bob SSUBSCRIBE a",
        expect![[r#"
            > ACL SETUSER eve on nopass +@all allkeys &a
              +OK·
            > ACL DRYRUN eve SPUBLISH a x ; ACL DRYRUN eve SPUBLISH b x
              +OK·$53·User eve has no permissions to access the 'b' channel·
            > ACL DRYRUN eve SSUBSCRIBE a ; ACL DRYRUN eve SSUBSCRIBE a b ; ACL DRYRUN eve SUNSUBSCRIBE b
              +OK·$53·User eve has no permissions to access the 'b' channel·+OK·
            > ACL SETUSER bob on nopass +@all allchannels ; ACL DRYRUN bob SSUBSCRIBE a
              +OK·+OK·
        "#]],
    );
    let mut world = World::new(Login::Open);
    play(&mut world, "> ACL SETUSER eve on nopass +@all allkeys &a ; HELLO 3 ; AUTH eve x ; SSUBSCRIBE a");
    let said = play(&mut world, "> ACL SETUSER eve resetchannels");
    assert!(said.ends_with("  +OK·\n  closes\n"), "{said}");
}

#[test]
fn the_file_is_that_of_redis() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users.acl");
    let missing = Users::of([], Some(path.clone())).err().map(|error| error.to_string());
    assert!(missing.is_some_and(|text| text.ends_with("; an empty file will do")));
    let hash = crate::redis::digest::sha256(b"secret");
    fs::write(&path, format!("user default off\n\nuser app on #{hash} ~app:* +@all -@dangerous\n")).unwrap();
    let users = Users::of(["root".to_owned()], Some(path.clone())).unwrap();
    assert_eq!(users.login(), Login::Required);
    users.save().unwrap();
    let saved = fs::read_to_string(&path).unwrap();
    expect![[r#"
        user app on sanitize-payload #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b ~app:* resetchannels +@all -@dangerous
        user default off sanitize-payload resetchannels -@all
        user root on sanitize-payload ~* &* +@all
    "#]].assert_eq(&saved);
    let again = Users::of([], Some(path.clone())).unwrap();
    again.save().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), saved);

    fs::write(&path, "foo\nuser a +nosuch\nuser b\nuser b\n").unwrap();
    let error = Users::of([], Some(path.clone())).unwrap_err().to_string();
    let error = error.replace(path.to_str().unwrap(), "FILE");
    expect!["FILE:1 should start with user keyword followed by the username. FILE:2: Unknown command or category name in ACL. FILE:4: Duplicate user found. A user can only be defined once in config files (as on line 3). "].assert_eq(&error);
}

#[test]
fn a_user_of_the_deployment_is_checked_beside_the_shard() {
    let users = Users::of(["app".to_owned()], None).unwrap();
    assert_eq!(users.login(), Login::Required);
    assert_eq!(users.judge("app", b"x"), super::Verdict::Ask);
    assert_eq!(users.judge("default", b"x"), super::Verdict::Wrong);
    assert_eq!(users.judge("nobody", b"x"), super::Verdict::Wrong);
    let admitted = |name| users.admits(name, false);
    assert!(admitted("app") && !admitted("default") && !admitted("nobody"));
    assert!(!users.admits("default", true) && !users.admits("nobody", true));
}

#[test]
fn a_glob_built_to_explode_denies_in_time() {
    let mut world = World::new(Login::Open);
    let pattern = "a*".repeat(500) + "b";
    play(&mut world, &format!("> ACL SETUSER eve on nopass +@all ~{pattern} ; AUTH eve x"));
    let started = std::time::Instant::now();
    let denied = play(&mut world, &format!("> GET {}", "a".repeat(60_000)));
    assert!(denied.contains("-NOPERM No permissions to access a key"));
    assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
}

/// As Redis, which carries the command out anew when its key is given something.
#[test]
fn who_may_not_any_more_is_given_nothing() {
    for (rules, end) in [
        ("-blpop", "NOPERM User default has no permissions to run the 'blpop' command"),
        ("resetkeys", "NOPERM No permissions to access a key"),
    ] {
        let mut world = World::new(Login::Open);
        play(&mut world, "> BLPOP a 0\n< 0 nilarray");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, format!("user default on nopass ~* &* +@all {rules}")).unwrap();
        world.hub.users = Users::of([], Some(file.path().to_owned())).unwrap();
        assert_eq!(play(&mut world, "+ 0"), "+ 0\n  reads no further\n", "{rules}: until then it waits");
        world.hub.wait(8, KeyspaceId(1), &["a".into()]);
        let told = play(&mut world, "! fill a");
        assert_eq!(told, format!("! fill a\n  -{end}·\n"));
        assert!(world.hub.is_told(8), "it is for who is behind");
        // So it is with what that one has taken.
        let mut world = World::new(Login::Open);
        play(&mut world, "> BLPOP a 0\n< 0 nilarray");
        world.hub.users = Users::of([], Some(file.path().to_owned())).unwrap();
        world.another_tries(8);
        world.another_takes(8, "popped bulk a, bulk x");
        assert_eq!(play(&mut world, "+ 0"), format!("+ 0\n  -{end}·\n"));
        assert!(world.hub.is_given(8));
    }
}
