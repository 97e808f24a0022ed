use super::*;
use expect_test::expect;
use isochrone_workload::Workload;
use isochrone_workload::trial::Terms;
use std::io::Cursor;

/// What comes of these answers, and what was shown.
fn asked(lines: &str, terminal: bool) -> (anyhow::Result<Answers>, String) {
    let mut shown = Vec::new();
    let answers = Questions::new(&mut Cursor::new(lines.as_bytes()), &mut shown, terminal).ask();
    (answers, String::from_utf8(shown).unwrap())
}

fn answers(lines: &str) -> Answers {
    asked(lines, false).0.unwrap_or_else(|error| panic!("{lines:?}: {error}"))
}

fn refusal(lines: &str) -> String {
    match asked(lines, false).0 {
        Ok(_) => panic!("{lines:?} was taken"),
        Err(error) => {
            assert!(error.is::<Usage>(), "{error}");
            error.to_string()
        }
    }
}

#[test]
fn nothing_said_is_what_stands_in_brackets() {
    let (answers, shown) = asked("", false);
    let answers = answers.unwrap();
    assert_eq!((answers.users.as_slice(), answers.sites.len()), (&[1, 1, 1, 1, 1][..], 5));
    assert_eq!((answers.lost, answers.touched, answers.aim), (1, Touched::Keys(0.0), Aim::Mean));
    expect![[r#"
        1 of 5  Where are your users? Regions of one map, with shares where they differ: US East=70, Euro=30
          the world, EC2:           US West, US East, Euro, Asia, Australia
          the north, EC2:           CA, OR, OH, IRE, SEL
          the world, Azure:         VA, WA, PR, NSW, SG, HK
          North America, Azure:     VA, TX, CA, IA, WA, WY, IL, QC, TRT
          three close pairs, Azure: East US, East US 2, South East Asia, East Asia, France Central, West EU
          [US West, US East, Euro, Asia, Australia] US West, US East, Euro, Asia, Australia
        2 of 5  In which of its regions may data lie, and machines stand? `any`, or a list
          [any] any
        3 of 5  How many of these regions may be lost at once, without loss of data or service? 0 to 2: n take 2n + 1 replicas
          [1] 1
        4 of 5  What does a request touch? `transactions`: keys of several partitions, all or nothing. Else keys of one: how many in a hundred change what another one is changing?
          [0] 0
        5 of 5  What is to be short? `mean` over all users, `worst`: that of the region that waits longest, or the name of the region that matters
          [mean] mean
    "#]].assert_eq(&shown);
}

#[test]
fn answers_are_by_name_in_any_case_and_place_the_map() {
    let found = answers("hk=3, VA\nva,wa,PR , HK\n1\n2.5 %\nhk\n");
    assert_eq!((found.map.name, found.users.as_slice()), ("domino-globe", &[1, 0, 0, 0, 0, 3][..]));
    assert_eq!(found.sites, [0, 1, 2, 5].map(RegionId));
    assert_eq!((found.touched, found.aim), (Touched::Keys(2.5), Aim::Region(RegionId(5))));
    assert_eq!(found.demand().clients, [0, 0, 0, 0, 0, 1]);
    // Of two maps with a region of the name the first counts.
    assert_eq!(answers("CA\n").map.name, "sdpaxos-ec2");
    assert_eq!(answers("CA, TX\n").map.name, "domino-na");
    assert_eq!(answers("\n\n0\nTransactions\nWORST\n").touched, Touched::Partitions);
}

#[test]
fn a_wrong_answer_says_what_would_be_right() {
    let cases = [
        ("Mars, Euro\n", "1", "no map has \"Mars\", \"Euro\"; name regions that stand in one line above"),
        ("Euro=0\n", "1", "\"Euro=0\": N of NAME=N is a whole number from 1 to 1000000"),
        ("Euro,euro\n", "1", "\"euro\" is named twice; name each region once"),
        (
            "\nEuro,Mars\n",
            "2",
            "\"Mars\" is no region of the map; there are US West, US East, Euro, Asia, Australia",
        ),
        ("\n\n3\n", "3", "\"3\" is no number from 0 to 2; for more, data must be allowed in more regions"),
        ("\n\n\n101\n", "4", "\"101\" is neither `transactions` nor a share from 0 to 100"),
        ("\n\n\nNaN\n", "4", "\"NaN\" is neither `transactions` nor a share from 0 to 100"),
        ("Euro\n\n\n\nAsia\n", "5", "\"Asia\" is neither `mean` nor `worst` nor a region with users: Euro"),
        ("\u{1b}[2J\n", "1", "no map has \"\\u{1b}[2J\"; name regions that stand in one line above"),
    ];
    for (lines, question, why) in cases {
        assert_eq!(refusal(lines), format!("question {question} of `plan --ask`: {why}"));
    }
    assert!(refusal(&"x".repeat(10_000)).contains("longer than 4096 bytes"));
}

#[test]
fn a_terminal_is_asked_three_times() {
    let (given_up, shown) = asked("Mars\nVenus\nPluto\n", true);
    assert!(given_up.is_err_and(|error| error.to_string().contains("\"Pluto\"")));
    assert_eq!(shown.matches("1 of 5  ").count(), 3, "{shown}");
    let (corrected, shown) = asked("Mars\nEuro\n\n9\n0\n\n\n", true);
    assert_eq!(corrected.unwrap().lost, 0);
    assert_eq!(shown.matches("3 of 5  ").count(), 2, "{shown}");
    let (ended, _) = asked("Euro\n", true);
    assert!(
        ended
            .is_err_and(|error| error.to_string().contains("question 2 of `plan --ask`: there is no answer"))
    );
}

/// What is written is read again, and is what the plan recommends.
#[test]
fn every_answer_becomes_a_deployment_that_is_the_best_by_its_plan() {
    let users =
        ["", "US East=70, Euro=30", "Australia", "CA, TX=5, QC", "HK, VA", "East US, West EU=9", "SEL, IRE"];
    for users in users {
        for lost in [0, 1, 2] {
            for touched in ["0", "20", "transactions"] {
                for aim in ["mean", "worst"] {
                    let lines = format!("{users}\n\n{lost}\n{touched}\n{aim}\n");
                    let answers = answers(&lines);
                    let choice = choose(&answers).unwrap();
                    let text = written::text(&answers, &choice).unwrap();
                    let read = |_: &Path| Ok(answers.map.csv.to_owned());
                    let deployment =
                        Deployment::parse_with(&text, "x.toml", Path::new(""), &protocols::known(), &read)
                            .unwrap_or_else(|errors| panic!("{lines:?}: {errors}\n{text}"));
                    protocols::check(&deployment).unwrap();
                    let keyspace = deployment.keyspace(MAIN);
                    assert_eq!(keyspace.survive, Some(lost), "{text}");
                    assert_eq!(keyspace.crashes_max(), usize::from(lost), "{text}");
                    if touched == "transactions" || aim != "mean" {
                        continue;
                    }
                    let demand = Demand { conflict: touched.parse().unwrap(), ..Demand::of(&deployment) };
                    let plan = isochrone_plan::plan(&deployment, MAIN, &demand).unwrap();
                    // A plan has it with a parameter that is not written.
                    let passed_over = |protocol: &str| protocol == "sdpaxos" && !answers.one_region_writes();
                    let mut rows = plan.protocols.iter().filter(|row| {
                        row.ranked && row.guarantee == Guarantee::Linearizable && !passed_over(&row.protocol)
                    });
                    let best = rows.next().unwrap();
                    assert_eq!(best.protocol, keyspace.protocol, "{lines:?}\n{plan}");
                    assert_eq!(best.mean_ms, choice.reached_ms, "{lines:?}\n{plan}");
                    assert_eq!(best.leader, plan.configured.leader, "{lines:?}\n{plan}");
                    let better = plan.placement.as_ref();
                    assert!(better.is_none_or(|better| passed_over(&better.protocol)), "{lines:?}\n{plan}");
                }
            }
        }
    }
}

#[test]
fn the_worst_region_waits_less_where_that_is_aimed_at() {
    let worst = |aim: &str| {
        let answers = answers(&format!("US East=90, Euro=7, Australia=3\n\n1\n0\n{aim}\n"));
        let choice = choose(&answers).unwrap();
        let body = written::body(&answers, &choice);
        let deployment = written::deployment(&answers, &body).unwrap();
        let plan = isochrone_plan::plan(&deployment, MAIN, &Demand::of(&deployment)).unwrap();
        let row = plan.protocols.iter().find(|row| {
            row.ranked && row.protocol == choice.protocol && row.leader == plan.configured.leader
        });
        let waits = row.unwrap().regions.iter().zip(&plan.clients).filter(|(_, (_, clients))| *clients > 0);
        let worst = waits.map(|(region, _)| region.commit_ms).fold(0.0, f64::max);
        (worst, choice.reached_ms)
    };
    let (of_worst, reached) = worst("worst");
    assert_eq!(of_worst, reached);
    assert!(worst("mean").0 > of_worst, "{of_worst}");
}

#[test]
fn what_survives_the_loss_of_three_regions_is_chosen_where_that_is_asked_for() {
    let written = |lines: &str| {
        let answers = answers(lines);
        let choice = choose(&answers).unwrap();
        let text = written::text(&answers, &choice).unwrap();
        let deployment = written::deployment(&answers, &text).unwrap();
        let plan = isochrone_plan::plan(&deployment, MAIN, &Demand::of(&deployment)).unwrap();
        assert_eq!((plan.replicas.len(), plan.crashes), (7, 3), "{lines:?}");
        assert!(choice.reached_ms >= plan.floor_mean_ms, "{lines:?}: {}\n{plan}", choice.reached_ms);
        let copies = deployment.keyspace(MAIN).parameters.read().integer("f", 0, 0, 6);
        assert!(choice.protocol != "curp" || copies == 3, "{text}");
        choice.protocol
    };
    for users in ["VA, TX", "CA, TX=5, QC", "IL", "VA, TX, CA, IA, WA, WY, IL, QC, TRT"] {
        for touched in ["0", "20"] {
            for aim in ["mean", "worst"] {
                written(&format!("{users}\n\n3\n{touched}\n{aim}\n"));
            }
        }
    }
    // With IL as the master, and with VA, TX and IA: 31 ms from VA and 30 from TX, or 26 + 30 and 30 + 30.
    assert_eq!(written("VA, TX\n\n3\n20\nworst\n"), "curp");
}

/// The highest mean of a region with users, where the deployment is as written: milliseconds.
fn simulated(answers: &Answers, text: &str, conflict: u8) -> f64 {
    let deployment = written::deployment(answers, text).unwrap();
    let Some(protocols::Runs::Commands { trial, .. }) =
        protocols::of(&deployment, MAIN).map(|entry| &entry.runs)
    else {
        panic!("a protocol of commands: {text}")
    };
    let mut workload = Workload::named("set").unwrap();
    workload.conflict = conflict;
    let outcome = trial(&deployment, MAIN, &Terms::quiet(workload, Span::from_secs(10)), 1).unwrap();
    let users = deployment.regions().iter().filter(|region| region.clients > 0);
    let figures = users.map(|region| outcome.figures.region(usize::from(region.id.0), None).unwrap());
    figures.map(|figures| figures.mean_ms).fold(0.0, f64::max)
}

#[test]
fn the_worst_region_waits_no_longer_than_the_file_says() {
    let reached = |users: &str, lost: u8, conflict: u8| {
        let answers = answers(&format!("{users}\n\n{lost}\n{conflict}\nworst\n"));
        let choice = choose(&answers).unwrap();
        let text = written::text(&answers, &choice).unwrap();
        let simulated = simulated(&answers, &text, conflict);
        let reached = choice.reached_ms;
        assert!(simulated <= reached * 1.01, "{simulated} and {reached} ms:\n{text}");
        let bound = choice.bound.as_ref().map_or_else(String::new, |bound| format!("{bound} "));
        assert!(text.contains(&format!("# {bound}{reached:.1} ms for a write")), "{text}");
        reached
    };
    assert_eq!(reached("", 2, 0), 166.0);
    // Where all commands interfere EPaxos takes a second round trip, and SDPaxos waits for other regions' writes.
    assert!(reached("", 2, 100) > 250.0);
    assert!(reached("VA, TX", 3, 50) > reached("VA, TX", 3, 5));
}

/// Its figures are those of a client alone, and so are its users.
#[test]
fn sdpaxos_is_compared_where_one_region_writes() {
    assert!(answers("Euro\n").one_region_writes());
    assert!(!answers("Euro, Asia\n\n\n\nEuro\n").one_region_writes());
    for lines in ["\n\n2\n20\nmean\n", "\n\n2\n100\nworst\n", "US East=70, Euro=30\n\n1\n0\nmean\n"] {
        let answers = answers(lines);
        let choice = choose(&answers).unwrap();
        let text = written::text(&answers, &choice).unwrap();
        let why = text.split("# The mean over the users").next().unwrap();
        assert!(!why.contains("sdpaxos"), "{lines:?}\n{text}");
        // What a plan names is the best in the mean.
        assert!(answers.aim == Aim::Mean || !text.contains("sdpaxos"), "{lines:?}\n{text}");
    }
}

#[test]
fn a_figure_that_is_a_bound_is_told_as_one() {
    let answers = answers("VA, TX\n\n1\n0\nmean\n");
    let mut choice = choose(&answers).unwrap();
    choice.bound = Some("at most".to_owned());
    choice.next = Some(("mencius".to_owned(), 99.0, choice.bound.clone()));
    let text = written::text(&answers, &choice).unwrap();
    assert!(text.contains(&format!("# at most {:.1} ms for a write", choice.reached_ms)), "{text}");
    assert!(text.contains("# mencius comes next, at most 99.0 ms."), "{text}");
}

/// Five in a hundred commands that wait for another cost less than what EPaxos is ahead.
#[test]
fn a_little_interference_leaves_epaxos_the_best() {
    let protocol = |touched: &str| choose(&answers(&format!("\n\n2\n{touched}\nmean\n"))).unwrap().protocol;
    assert_eq!(["0", "1", "5", "20"].map(protocol), ["epaxos", "epaxos", "epaxos", "curp-consensus"]);
}

#[test]
fn partitions_are_led_where_users_are() {
    let found = answers("US East, Euro=3\nUS East, Asia, Australia\n1\ntransactions\nEuro\n");
    let choice = choose(&found).unwrap();
    // Euro may have no data. Asia is nearer to US East than Australia: 172 ms, and 205.
    assert_eq!(choice.groups, [[1, 3, 4].map(RegionId)]);
    let nobody = answers("Euro\nAsia, Australia, US West\n1\ntransactions\n\n");
    // 166 ms from Euro to US West, and from there 102 to Asia.
    assert_eq!(choose(&nobody).unwrap().groups, [[0, 3, 4].map(RegionId)]);
}

#[test]
fn the_files() {
    let written = |lines: &str| {
        let answers = answers(lines);
        written::text(&answers, &choose(&answers).unwrap()).unwrap()
    };
    expect![[r##"
        # Written by `isochrone plan --ask` from these answers:
        #   users             US East 70, Euro 30
        #   data may lie in   US West, US East, Euro, Asia, Australia
        #   may be lost       1 region at once, so there are 3 replicas
        #   requests touch    keys of one partition; 5 % of the commands interfere
        #   to be short       the mean over the users
        #
        # Why epaxos: of all places for 3 replicas, protocols and leaders it has the lowest figure,
        # at most 81.9 ms for a write without load.
        # curp-consensus comes next, 91.1 ms.
        # The mean over the users that no protocol can be below with these replicas is 77.5 ms.
        # `plan` names sdpaxos, mean 77.5 ms: so soon it answers SET and MSET alone, and with reply = "commit" only; all
        # else waits for what other regions write.
        #
        # It runs on one machine as it is:
        #   isochrone plan FILE    all choices, region by region
        #   isochrone sim FILE     in virtual time; with --faults all, checked
        #   isochrone up FILE      all nodes, with the distances of the map emulated
        # For machines of your own change every line with CHANGE, make certificates (isochrone cert FILE --out certs), and
        # start each node: isochrone node FILE --name NAME --data DIR. Then: isochrone plan FILE --live

        cluster = "asked"     # CHANGE: a name of its own; nodes refuse peers of another

        [[region]]
        name = "US West"
        clients = 0

        [[region]]
        name = "US East"
        clients = 70

        [[region]]
        name = "Euro"
        clients = 30

        [[node]]
        name = "us-west"
        region = "US West"
        listen = "127.0.0.1:7101"     # CHANGE: where the other nodes reach it, such as "10.0.0.1:7000"
        redis = "127.0.0.1:7201"      # CHANGE: where clients reach it, such as "10.0.0.1:6379"
        http = "127.0.0.1:7301"       # CHANGE: metrics and health, such as "10.0.0.1:9000"; for your own network only

        [[node]]
        name = "us-east"
        region = "US East"
        listen = "127.0.0.1:7102"     # CHANGE: where the other nodes reach it, such as "10.0.0.1:7000"
        redis = "127.0.0.1:7202"      # CHANGE: where clients reach it, such as "10.0.0.1:6379"
        http = "127.0.0.1:7302"       # CHANGE: metrics and health, such as "10.0.0.1:9000"; for your own network only

        [[node]]
        name = "euro"
        region = "Euro"
        listen = "127.0.0.1:7103"     # CHANGE: where the other nodes reach it, such as "10.0.0.1:7000"
        redis = "127.0.0.1:7203"      # CHANGE: where clients reach it, such as "10.0.0.1:6379"
        http = "127.0.0.1:7303"       # CHANGE: metrics and health, such as "10.0.0.1:9000"; for your own network only

        [network]
        rtt = "carousel-ec2.csv"     # CHANGE: round trips between your own regions; plan --live says what nodes measure

        [[keyspace]]
        name = "main"
        protocol = "epaxos"
        replicas = ["us-west", "us-east", "euro"]
        survive = 1
    "##]].assert_eq(&written("US East=70, Euro=30\n\n1\n5\nmean\n"));
    expect![[r##"
        # Written by `isochrone plan --ask` from these answers:
        #   users             US East 1, Euro 1
        #   data may lie in   US West, US East, Euro, Asia, Australia
        #   may be lost       1 region at once, so there are 3 replicas
        #   requests touch    keys of several partitions, atomically
        #   to be short       the latency of the region that waits longest
        #
        # Why carousel-fast: each region with users leads a partition, whose other replicas are those nearest to it; of the
        # strictly serializable protocols it has the lowest figure,
        # 153.5 ms for a transaction of `retwis`, in the mean without load.
        # carousel-basic comes next, 166.2 ms.
        #
        # It runs on one machine as it is:
        #   isochrone plan FILE    all choices, region by region
        #   isochrone sim FILE     in virtual time; with --faults all, checked
        #   isochrone up FILE      all nodes, with the distances of the map emulated
        # For machines of your own change every line with CHANGE, make certificates (isochrone cert FILE --out certs), and
        # start each node: isochrone node FILE --name NAME --data DIR. Then: isochrone plan FILE --live

        cluster = "asked"     # CHANGE: a name of its own; nodes refuse peers of another

        [[region]]
        name = "US West"
        clients = 0

        [[region]]
        name = "US East"
        clients = 1

        [[region]]
        name = "Euro"
        clients = 1

        [[node]]
        name = "us-west"
        region = "US West"
        listen = "127.0.0.1:7101"     # CHANGE: where the other nodes reach it, such as "10.0.0.1:7000"
        redis = "127.0.0.1:7201"      # CHANGE: where clients reach it, such as "10.0.0.1:6379"
        http = "127.0.0.1:7301"       # CHANGE: metrics and health, such as "10.0.0.1:9000"; for your own network only

        [[node]]
        name = "us-east"
        region = "US East"
        listen = "127.0.0.1:7102"     # CHANGE: where the other nodes reach it, such as "10.0.0.1:7000"
        redis = "127.0.0.1:7202"      # CHANGE: where clients reach it, such as "10.0.0.1:6379"
        http = "127.0.0.1:7302"       # CHANGE: metrics and health, such as "10.0.0.1:9000"; for your own network only

        [[node]]
        name = "euro"
        region = "Euro"
        listen = "127.0.0.1:7103"     # CHANGE: where the other nodes reach it, such as "10.0.0.1:7000"
        redis = "127.0.0.1:7203"      # CHANGE: where clients reach it, such as "10.0.0.1:6379"
        http = "127.0.0.1:7303"       # CHANGE: metrics and health, such as "10.0.0.1:9000"; for your own network only

        [network]
        rtt = "carousel-ec2.csv"     # CHANGE: round trips between your own regions; plan --live says what nodes measure

        [[keyspace]]
        name = "main"
        protocol = "carousel-fast"
        placement = [     # partition by partition, its first leader first
          ["us-east", "us-west", "euro"],
          ["euro", "us-east", "us-west"],
        ]
        survive = 1
    "##]].assert_eq(&written("US East, Euro\n\n1\ntransactions\nworst\n"));
}

#[test]
fn what_is_there_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rtt.csv");
    keep(&path, "a").unwrap();
    keep(&path, "a").unwrap();
    let error = keep(&path, "b").unwrap_err();
    assert!(error.is::<Usage>() && error.to_string().contains("something else is"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "a");
    let error = create(&path, "b").unwrap_err().to_string();
    assert!(error.contains("it is there already"), "{error}");
    let error = folder_of(&folder.path().join("none/x.toml")).unwrap_err().to_string();
    assert!(error.contains("No such file"), "{error}");
    folder_of(Path::new("x.toml")).unwrap();
}
