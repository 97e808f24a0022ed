//! Good files become what they say; bad files (`tests/bad/*.toml`) give exactly the message beside them (`*.txt`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use expect_test::{expect, expect_file};
use proptest::prelude::*;

use super::*;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const GOOD: &str = include_str!("../../tests/good.toml");

fn known() -> Known {
    Known::names(&["curp", "multipaxos"]).placing(&["carousel-fast"])
}

/// Reads parameters of every kind, as a protocol does.
fn read(keyspace: &Keyspace) -> Result<(), ConfigErrors> {
    let mut parameters = keyspace.parameters.read();
    parameters.boolean("thrifty", false);
    parameters.integer("window", 64, 1, 1024);
    let (lease, day) = (Span::from_millis(500), Span::from_secs(86_400));
    parameters.span("lease", lease, Span::from_millis(1), day);
    parameters.bytes("batch", 1 << 20, 1, 1 << 30);
    parameters.choice("reads", 0, &[("log", 0), ("lease", 1)]);
    if parameters.text("name", "") == "forbidden" {
        parameters.reject("name", "is not what it should be", "use another");
    }
    parameters.finish()
}

/// Parses a text whose paths are relative to `tests/bad`.
fn parse(text: &str, file: &str) -> Result<Deployment, ConfigErrors> {
    Deployment::parse(text, file, &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad"), &known())
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    files.sort();
    files
}

#[test]
fn every_bad_file_gets_its_message() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad");
    let files = files(&folder, "toml");
    assert!(files.len() >= 10);
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let errors = match parse(&std::fs::read_to_string(&path).unwrap(), name) {
            Ok(_) => panic!("{name} was accepted"),
            Err(errors) => errors.to_string().replace(&format!("{}/", folder.display()), ""),
        };
        expect_file![path.with_extension("txt")].assert_eq(&format!("{errors}\n"));
    }
}

#[test]
fn a_good_file_becomes_what_it_says() {
    let deployment = parse(GOOD, "good.toml").unwrap();
    assert_eq!(deployment.cluster(), "shop");
    let names: Vec<&str> = deployment.regions().iter().map(|region| region.name.as_str()).collect();
    assert_eq!(names, ["Euro", "US East", "Asia"]);
    // The matrix follows the order of the file, not its own.
    let (euro, asia) = (RegionId(0), RegionId(2));
    assert_eq!(deployment.matrix().rtt(euro, asia), Span::from_millis(235));
    let node = deployment.node_named("va2").unwrap();
    assert_eq!((node.id, node.region), (NodeId(2), RegionId(1)));
    assert_eq!(node.redis.as_ref().unwrap().to_string(), "127.0.0.1:6302");
    assert_eq!(node.grpc.as_ref().unwrap().to_string(), "127.0.0.1:7402");
    assert_eq!(node.idle_poll, Span::from_micros(200));
    assert_eq!(deployment.node(NodeId(0)).idle_poll, Span::ZERO);
    assert_eq!(deployment.one_way(NodeId(0), NodeId(0)), Span::ZERO);
    assert_eq!(deployment.one_way(NodeId(0), NodeId(3)), Span::from_micros(117_500));
    // The diagonal of this matrix is given, and is zero.
    assert_eq!(deployment.one_way(NodeId(1), NodeId(2)), Span::ZERO);
    assert_eq!(deployment.lan_rtt(), Span::from_micros(250));
    assert_eq!(deployment.network().jitter, Span::from_micros(1_500));
    assert_eq!(deployment.network().loss_per_million, 1_000);
    assert!(!deployment.fsync());
    assert_eq!(deployment.limits().get(Limit::Bulk), 1 << 20);
    assert_eq!(deployment.limits().span(Limit::LoginTime), Span::from_secs(5));
    assert_eq!(deployment.limits().get(Limit::Elements), 1_000_000);

    let [sessions, bank] = deployment.keyspaces() else { panic!("two keyspaces") };
    assert_eq!((sessions.id, sessions.index, sessions.partitions), (KeyspaceId(1), 0, 1));
    assert_eq!(sessions.replicas, [NodeId(0), NodeId(1), NodeId(3)]);
    assert_eq!(sessions.leader, Some(NodeId(1)));
    assert_eq!(sessions.crashes_max(), 1);
    assert_eq!((bank.id, bank.index, bank.partitions), (KeyspaceId(2), 7, 5));
    assert_eq!(bank.replicas, [NodeId(0), NodeId(1), NodeId(2)]);
    assert_eq!(bank.redis_port, Some(6400));
    let mut parameters = sessions.parameters.read();
    assert!(parameters.boolean("thrifty", false));
    assert_eq!(parameters.integer("window", 64, 1, 1024), 16);
    assert_eq!(parameters.span("lease", Span::ZERO, Span::ZERO, Span::MAX), Span::from_millis(250));
    assert_eq!(parameters.bytes("batch", 0, 0, u64::MAX), 65_536);
    assert_eq!(parameters.choice("reads", 0, &[("log", 0), ("lease", 1)]), 1);
    assert_eq!(parameters.text("name", ""), "x");
    parameters.finish().unwrap();

    let security = deployment.security();
    let peer = security.peer.as_ref().unwrap().of(node);
    assert!(peer.cert.ends_with("certs/va2.pem"), "{peer:?}");
    let audit = security.audit.as_ref().unwrap().of(node);
    assert!(audit.ends_with("log/va2-audit.jsonl"), "{audit:?}");
    assert_eq!(deployment.clone().on_one_machine().security().audit, None);
    assert!(!format!("{:?}", security.users).contains("argon2id"), "a hash must not reach a log");
}

#[test]
fn a_key_that_a_keyspace_does_not_have_may_be_a_parameter() {
    let refused = |key: &str| five(&format!("protocol = \"multipaxos\"\n{key}")).unwrap_err().to_string();
    let why = refused("route = \"redirect\"");
    assert!(why.contains("keyspace \"bank\": unknown key \"route\"\n  use "), "{why}");
    assert!(
        why.ends_with("\"parameters\"; a parameter of the protocol goes under [keyspace.parameters]"),
        "{why}"
    );
    assert!(!refused("replicaton = 3").contains("[keyspace.parameters]"));
}

#[test]
fn all_mistakes_in_parameters_are_told_to_the_protocol_that_reads_them() {
    let wrong = r#"thrifty = "yes", windw = 5, lease = "1h30m", batch = "3GiB", reads = "leader", name = "forbidden""#;
    let deployment = five(&format!("protocol = \"multipaxos\"\nparameters = {{ {wrong} }}")).unwrap();
    expect![[r#"
        five.toml:29: keyspace "bank": parameter thrifty = "yes" is not a yes or no
          write true or false
        five.toml:29: keyspace "bank": parameter lease = "1h30m" has the unit "h30m", which is none of ns, us, ms, s, m or h
          write a number and its unit in quotes, such as "30s", "1.5ms" or "250us"
        five.toml:29: keyspace "bank": parameter batch = "3GiB" is out of range
          use "1B" to "1GiB"
        five.toml:29: keyspace "bank": parameter reads = "leader" is not a choice
          use "log" or "lease"
        five.toml:29: keyspace "bank": parameter name = "forbidden" is not what it should be
          use another
        five.toml:29: keyspace "bank": unknown parameter "windw"
          did you mean "window"?"#]]
    .assert_eq(&read(&deployment.keyspaces()[0]).unwrap_err().to_string());
    assert_eq!(read(&parse(GOOD, "good.toml").unwrap().keyspaces()[0]), Ok(()));
}

#[test]
fn every_ready_made_deployment_is_good_and_every_topology_has_one() {
    let ready = files(&Path::new(ROOT).join("deployments"), "toml");
    let known = Known::names(&["multipaxos"]).placing(&["carousel-fast"]);
    let stem = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    for path in &ready {
        let deployment = Deployment::load(path, &known).unwrap_or_else(|errors| panic!("{errors}"));
        assert!(deployment.given_matrix().is_ok());
        assert_eq!(deployment.cluster(), stem(path));
        assert_eq!(deployment.keyspaces()[0].name, "main");
    }
    let ready: BTreeSet<String> = ready.iter().map(stem).collect();
    let topologies = files(&Path::new(ROOT).join("reference/rtt"), "csv");
    for name in topologies.iter().map(stem).filter(|name| !name.ends_with("-stdev")) {
        assert!(ready.contains(&name), "deployments/{name}.toml is missing");
    }
}

#[test]
fn the_built_in_deployment_has_five_replicas() {
    let deployment = Deployment::five_regions();
    assert_eq!(deployment.keyspaces()[0].replicas.len(), 5);
    assert_eq!(deployment.regions().len(), 5);
    // FNV-1a of the name, computed elsewhere: a data directory of an older version must stay its own.
    assert_eq!(deployment.cluster_id(), CLUSTER_ID);
}

const CLUSTER_ID: u64 = 0x2d60_0500_fbed_d15d;

#[test]
fn a_deployment_of_a_matrix_has_a_node_in_each_region() {
    let matrix = Matrix::from_fn(&["A", "B b", "C"], |_, _| Span::from_millis(5));
    let deployment = Deployment::of_matrix(matrix, "multipaxos", &[RegionId(0), RegionId(2), RegionId(1)]);
    assert_eq!(deployment.nodes()[1].name, "b-b");
    assert_eq!(deployment.keyspaces()[0].replicas, [NodeId(0), NodeId(2), NodeId(1)]);
}

#[test]
fn a_command_line_may_choose_leader_protocol_and_keyspace() {
    let deployment = parse(GOOD, "good.toml").unwrap();
    let id = deployment.choose_keyspace(Some("bank")).unwrap();
    let deployment = deployment.with_leader(id, "Euro").unwrap();
    assert_eq!(deployment.keyspace(id).leader, Some(NodeId(0)));
    let deployment = deployment.with_protocol(id, "curp", &known()).unwrap();
    assert_eq!(deployment.keyspace(id).protocol, "curp");
    let message = |result: Result<Deployment, ConfigErrors>| result.err().unwrap().to_string();
    assert_eq!(
        message(deployment.clone().with_leader(id, "Asia")),
        "--leader: keyspace \"bank\" has no replica at \"Asia\"\n  use \"Euro\", \"US East\" or \"US East\""
    );
    assert_eq!(
        message(deployment.clone().with_protocol(id, "multi-paxos", &known())),
        "--protocol: there is no protocol \"multi-paxos\"\n  did you mean \"multipaxos\"?"
    );
    assert_eq!(
        deployment.choose_keyspace(Some("main")).err().unwrap().to_string(),
        "--keyspace: good.toml has no keyspace \"main\"\n  use \"sessions\" or \"bank\""
    );
}

/// Five nodes in five regions, and a keyspace of these lines.
fn five(keyspace: &str) -> Result<Deployment, ConfigErrors> {
    let names = ["us-west", "us-east", "euro", "asia", "australia"];
    let sections = |kind: &str, line: fn(&str) -> String| {
        names.iter().map(|name| format!("[[{kind}]]\nname = \"{name}\"\n{}", line(name))).collect::<String>()
    };
    let regions = sections("region", |_| String::new());
    let nodes = sections("node", |name| format!("region = \"{name}\"\n"));
    parse(&format!("{regions}{nodes}[[keyspace]]\nname = \"bank\"\n{keyspace}\n"), "five.toml")
}

#[test]
fn redis_clients_begin_in_the_keyspace_of_index_0_or_else_in_the_first() {
    let begins = |first: u16, second: u16| {
        let keyspace = |index: u16| format!("protocol = \"multipaxos\"\nreplication = 1\nindex = {index}\n");
        let other = format!("[[keyspace]]\nname = \"other\"\n{}", keyspace(second));
        let deployment = five(&(keyspace(first) + &other)).unwrap();
        deployment.keyspace(deployment.redis_keyspace()).name.clone()
    };
    assert_eq!([begins(0, 3), begins(3, 0), begins(3, 4)], ["bank", "other", "bank"]);
}

#[test]
fn events_of_keys_are_told_as_the_file_says() {
    let rest = "[[region]]\nname = \"R\"\n[[node]]\nname = \"n\"\nregion = \"R\"\n[[keyspace]]\nname = \"k\"\n\
                protocol = \"multipaxos\"\nreplication = 1\n";
    let told = |line: &str| {
        let deployment = parse(&format!("{line}\n{rest}"), "file.toml");
        deployment
            .map(|found| found.notify_keyspace_events().to_string())
            .map_err(|errors| errors.to_string())
    };
    assert_eq!(told(""), Ok(String::new()));
    assert_eq!(told("notify_keyspace_events = \"KEA\""), Ok("AKE".to_owned()));
    let wrong = told("notify_keyspace_events = \"Eq\"").unwrap_err();
    let text = "file.toml:1: notify_keyspace_events = \"Eq\" has a letter that is no class of events";
    assert!(wrong.contains(text) && wrong.contains("such as"), "{wrong}");
}

fn numbers(groups: &[Vec<NodeId>]) -> Vec<Vec<u16>> {
    groups.iter().map(|group| group.iter().map(|node| node.0).collect()).collect()
}

#[test]
fn placed_partitions_stand_where_the_file_says() {
    let deployment = five(
        "protocol = \"carousel-fast\"\nplacement = [[\"euro\", \"asia\", \"australia\"], [\"us-west\"]]",
    );
    let deployment = deployment.unwrap();
    let keyspace = &deployment.keyspaces()[0];
    assert_eq!(numbers(&keyspace.groups()), [vec![2, 3, 4], vec![0]]);
    assert_eq!((keyspace.partitions, keyspace.crashes_max()), (2, 0));
    assert_eq!(keyspace.replicas, [0, 2, 3, 4].map(NodeId));
    let id = keyspace.id;
    let message = |result: Result<Deployment, ConfigErrors>| result.err().unwrap().to_string();
    assert_eq!(
        message(deployment.clone().with_protocol(id, "curp", &known())),
        "--protocol: keyspace \"bank\" places its partitions one by one, and curp has all on all replicas\n  \
         use \"carousel-fast\""
    );
    assert_eq!(
        message(deployment.clone().with_partitions(id, 3)),
        "--partitions: keyspace \"bank\" places 2 partitions one by one\n  \
         use 2, or give replication in the place of placement"
    );
    assert_eq!(
        message(deployment.with_leader(id, "euro")),
        "--leader: keyspace \"bank\" places its partitions one by one\n  \
         name the first leader of each partition first in its placement"
    );
}

/// Whatever majority is left, the data of `curp` are with its master and `f` copies.
#[test]
fn survive_is_refused_above_the_copies_of_curp() {
    let curp = |survive: u8, parameters: &str| {
        let lines = format!("protocol = \"curp\"\nreplication = 5\nsurvive = {survive}\n{parameters}");
        five(&lines).map(|deployment| deployment.keyspaces()[0].survive).map_err(|errors| errors.to_string())
    };
    assert_eq!(curp(2, ""), Ok(Some(2)), "two copies are the default");
    assert_eq!(curp(2, "parameters = { f = 3 }"), Ok(Some(2)));
    assert_eq!(curp(1, "parameters = { f = 1 }"), Ok(Some(1)));
    let refused = |survive: u8, f: u8, lost: u8| -> Result<Option<u8>, String> {
        Err(format!(
            "five.toml:30: keyspace \"bank\": survive = {survive}, but with f = {f} of its protocol the loss of {lost} may take the \
             master and all copies\n  use parameters = {{ f = {survive} }}, or survive = {f}"
        ))
    };
    assert_eq!(curp(2, "parameters = { f = 1 }"), refused(2, 1, 2));
    assert_eq!(curp(1, "parameters = { f = 0 }"), refused(1, 0, 1));
    // A value that is none is for the protocol to refuse, which says what is wrong with it.
    let seven: String = (0..7)
        .map(|at| format!("[[region]]\nname = \"R{at}\"\n[[node]]\nname = \"n{at}\"\nregion = \"R{at}\"\n"))
        .collect();
    for f in ["7", "\"x\""] {
        let keyspace = "[[keyspace]]\nname = \"main\"\nprotocol = \"curp\"\nreplication = 7\nsurvive = 3\n";
        let text = format!("{seven}{keyspace}parameters = {{ f = {f} }}\n");
        assert!(parse(&text, "x.toml").is_ok(), "{f}");
    }
    let other = five("protocol = \"multipaxos\"\nreplication = 5\nsurvive = 2").unwrap();
    assert_eq!(other.keyspaces()[0].survive, Some(2));
}

/// What the command line puts in the place of the file's is held to what the file demands, when all of it is said.
#[test]
fn survive_is_refused_above_what_a_command_line_leaves() {
    let written = five("protocol = \"multipaxos\"\nreplication = 5\nsurvive = 2").unwrap();
    let (id, line) = (written.keyspaces()[0].id, written.keyspaces()[0].line);
    let curp = |f: Option<&str>| {
        let settings: Vec<_> = f.iter().map(|f| ("f".to_owned(), (*f).to_owned())).collect();
        let curp = written.clone().with_protocol(id, "curp", &known()).unwrap();
        let given = curp.with_parameters(id, &settings).unwrap().survives_as_demanded(id);
        given.map_err(|errors| errors.to_string())
    };
    assert_eq!(written.survives_as_demanded(id), Ok(()));
    assert_eq!((curp(None), curp(Some("3"))), (Ok(()), Ok(())));
    assert_eq!(
        curp(Some("1")),
        Err(format!(
            "five.toml:{line}: keyspace \"bank\": survive = 2, but with f = 1 of its protocol the loss of 2 may take the master and \
             all copies\n  use parameters = {{ f = 2 }}, or survive = 1"
        ))
    );
}

#[test]
fn a_number_of_replicas_spreads_partitions_over_a_ring() {
    let ring = five("protocol = \"carousel-fast\"\nreplication = 3\npartitions = 5\nsurvive = 1").unwrap();
    let keyspace = &ring.keyspaces()[0];
    assert_eq!(numbers(&keyspace.groups()), [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 0], [4, 0, 1]]);
    assert_eq!((keyspace.replicas.len(), keyspace.crashes_max()), (5, 1));
    let id = keyspace.id;
    let led = ring.clone().with_partitions(id, 2).unwrap().with_leader(id, "asia").unwrap();
    assert_eq!(numbers(&led.keyspace(id).groups()), [[3, 4, 0], [4, 0, 1]]);
    // Under a protocol that has all partitions on all replicas, these are the first three; and the other way round.
    let other = ring.with_protocol(id, "curp", &known()).unwrap();
    assert_eq!(numbers(&other.keyspace(id).groups())[1], [1, 2, 0]);
    assert_eq!(other.keyspace(id).replicas.len(), 3);
    let again = other.with_protocol(id, "carousel-fast", &known()).unwrap();
    assert_eq!(numbers(&again.keyspace(id).groups())[1], [1, 2, 3]);
    // Where all nodes are replicas, and where the file names them, partitions are on all, and leaders take turns.
    for lines in
        ["replication = 5\npartitions = 2", "replicas = [\"asia\", \"euro\", \"us-west\"]\npartitions = 2"]
    {
        let together = five(&format!("protocol = \"carousel-fast\"\n{lines}")).unwrap();
        let keyspace = &together.keyspaces()[0];
        assert!(keyspace.placement.is_empty());
        assert_eq!(keyspace.groups()[1][0], keyspace.replicas[1]);
    }
}

#[test]
fn a_missing_file_says_so() {
    let errors = Deployment::load(Path::new("no-such.toml"), &known()).err().unwrap().to_string();
    assert!(errors.starts_with("no-such.toml: cannot read it: "), "{errors}");
}

/// In a file of 1 MiB there may be hundreds of thousands; what is said of each names up to 256 nodes.
#[test]
fn no_more_mistakes_are_told_than_anybody_reads() {
    let node = |number: usize| format!("[[node]]\nname = \"n{number:063}\"\nregion = \"R\"\n");
    let nodes: String = (0..256).map(node).collect();
    let told = |keyspace: &str| {
        let text = format!("[[region]]\nname = \"R\"\n{nodes}[[keyspace]]\nname = \"main\"\n{keyspace}\n");
        let errors = parse(&text, "x.toml").err().unwrap();
        (errors.iter().count(), errors.to_string())
    };
    let unknown = |count| format!("[{}]", "\"x\",".repeat(count));
    let placement = |groups: &str| format!("protocol = \"carousel-fast\"\nplacement = [{groups}]");
    let (count, text) = told(&format!("protocol = \"multipaxos\"\nreplicas = {}", unknown(200_000)));
    assert_eq!(count, 1, "{text}");
    assert!(text.contains("replicas names 200000 nodes, "), "{text}");
    let (count, text) = told(&placement(&unknown(257)));
    assert_eq!(count, 1, "{text}");
    assert!(text.contains("placement of partition 0 names 257 nodes, "), "{text}");
    let (count, text) = told(&placement(&vec![unknown(256); 10].join(", ")));
    assert_eq!(count, 100);
    assert!(text.ends_with("\nand 2460 more"), "{}", text.lines().last().unwrap());
}

#[test]
fn without_round_trips_only_a_live_cluster_can_run() {
    let text = GOOD.replace("rtt = \"../../../../reference/rtt/carousel-ec2.csv\"\n", "");
    let deployment = parse(&text, "good.toml").unwrap();
    assert!(!deployment.network().given);
    let message = deployment.given_matrix().err().unwrap().to_string();
    assert!(message.contains("add rtt = \"matrix.csv\" under [network]"), "{message}");
}

#[test]
fn the_documentation_names_every_limit_and_its_default() {
    let text = std::fs::read_to_string(Path::new(ROOT).join("docs/deployment.md")).unwrap();
    for rule in LIMITS {
        let [default, least, most] = [rule.default, rule.least, rule.most].map(|value| rule.unit.show(value));
        let row = format!("| `{}` | {default} | {least} to {most} |", rule.name);
        assert!(text.contains(&row), "docs/deployment.md lacks: {row}");
    }
}

#[test]
fn limits_stand_in_the_order_of_their_enum() {
    for (index, rule) in LIMITS.iter().enumerate() {
        assert_eq!(rule.limit as usize, index);
        assert!((rule.least..=rule.most).contains(&rule.default), "{}", rule.name);
    }
}

/// A command of the longest argument must reach the other nodes.
#[test]
fn a_frame_has_room_for_the_longest_argument() {
    let with = |limits: &str| parse(&GOOD.replace("bulk = \"1MiB\"\n", limits), "good.toml");
    let frame = |limits: &str| with(limits).unwrap().limits().get(Limit::PeerFrame) >> 20;
    assert_eq!(frame("bulk = \"64MiB\"\n"), 128);
    assert_eq!(frame("bulk = \"100MiB\"\n"), 164);
    assert_eq!(frame("bulk = \"100MiB\"\npeer_frame = \"200MiB\"\n"), 200);
    let refused = with("bulk = \"100MiB\"\npeer_frame = \"163MiB\"\n").err().unwrap().to_string();
    let expected = "[limits]: peer_frame = \"163MiB\" has no room for bulk, and 64MiB beside it\n  use \"164MiB\" or more";
    assert!(refused.contains(expected), "{refused}");
}

#[test]
fn a_limit_of_memory_is_a_size_or_none() {
    let with = |limits: &str| parse(&GOOD.replace("bulk = \"1MiB\"\n", limits), "good.toml");
    for (limits, memory) in [
        ("", None),
        ("memory = 0\n", Some(0)),
        ("memory = \"0B\"\n", Some(0)),
        ("memory = \"16MiB\"\n", Some(16 << 20)),
        ("memory = \"6GiB\"\n", Some(6 << 30)),
    ] {
        assert_eq!(with(limits).unwrap().limits().memory(), memory, "{limits}");
    }
    let range = "use \"16MiB\" to \"16384GiB\", or 0 for none";
    for (limits, wrong) in [
        ("memory = \"1MiB\"\n", format!("memory = \"1MiB\" is out of range\n  {range}")),
        ("memory = \"16385GiB\"\n", format!("memory = \"16385GiB\" is out of range\n  {range}")),
        ("memory = 6\n", format!("memory = 6 is not a size\n  {range}")),
        ("memory = \"6\"\n", "memory = \"6\" has no unit".to_owned()),
    ] {
        let refused = with(limits).err().unwrap().to_string();
        assert!(refused.contains(&format!("[limits]: {wrong}")), "{refused}");
    }
}

#[test]
fn numbers_are_read_exactly() {
    let span = |text: &str| parse_span(text).map(Span::as_nanos);
    assert_eq!(span("1.5ms"), Ok(1_500_000));
    assert_eq!(span("250us"), Ok(250_000));
    assert_eq!(span("250 µs"), Ok(250_000));
    assert_eq!(span("0.1h"), Ok(360_000_000_000));
    assert_eq!(span("18446744073709551615ns"), Ok(u64::MAX));
    assert_eq!(span("18446744073709551616ns"), Err("is too large".to_owned()));
    assert_eq!(span("0.5ns"), Err("has more decimals than can be kept exactly".to_owned()));
    assert_eq!(span("5"), Err("has no unit (ns, us, ms, s, m or h)".to_owned()));
    assert_eq!(span("-5s"), Err("is negative".to_owned()));
    assert_eq!(span("1e3s"), Err("has the unit \"e3s\", which is none of ns, us, ms, s, m or h".to_owned()));
    for bad in ["", "s", ".5s", "5.s", "1.2.3s", "+5s", "5\u{0}s"] {
        assert!(span(bad).is_err(), "{bad:?}");
    }
    assert_eq!(parse_bytes("1.5KiB"), Ok(1_536));
    assert_eq!(parse_bytes("64MiB"), Ok(64 << 20));
    assert!(parse_bytes("64MB").is_err());
    for nanos in [0, 1, 999, 1_000, 1_500_000, 30_000_000_000, u64::MAX] {
        assert_eq!(span(&values::show_span(Span::from_nanos(nanos))), Ok(nanos));
        assert_eq!(parse_bytes(&values::show_bytes(nanos)), Ok(nanos));
    }
}

#[test]
fn addresses_are_read_and_loopback_is_known() {
    for text in ["127.0.0.1:7000", "localhost:7000", "[::1]:7000"] {
        assert!(Address::parse(text).unwrap().is_loopback(), "{text}");
        assert_eq!(Address::parse(text).unwrap().to_string(), text);
    }
    for text in ["10.0.0.1:7000", "0.0.0.0:1", "[::]:1", "va1.example.com:7000"] {
        assert!(!Address::parse(text).unwrap().is_loopback(), "{text}");
    }
    for text in
        ["", "host", ":1", "host:", "host:0", "host:65536", "::1:7", "[::1:7", "[x]:7", "a b:7", "a:b:7"]
    {
        assert!(Address::parse(text).is_err(), "{text}");
    }
}

/// Each machine has a loopback of its own, and whoever asks there asks the node on that machine.
#[test]
fn nodes_of_different_machines_may_listen_on_the_same_port_of_loopback() {
    let file = |second: &str| {
        let node = |name: &str, host: &str| {
            format!(
                "[[node]]\nname = \"{name}\"\nregion = \"R\"\nlisten = \"{host}:7400\"\nhttp = \"127.0.0.1:9000\"\n"
            )
        };
        let text = "cluster = \"c\"\n[security]\ninsecure = true\n[[region]]\nname = \"R\"\n".to_owned();
        let keyspace = "[[keyspace]]\nname = \"main\"\nprotocol = \"multipaxos\"\nreplicas = [\"R\"]\n";
        text + &node("a", "10.0.0.1") + &node("b", second) + keyspace
    };
    let wrong = |host| parse(&file(host), "x.toml").map(drop).map_err(|errors| errors.to_string());
    let same = wrong("10.0.0.1").unwrap_err();
    assert!(same.contains("http = \"127.0.0.1:9000\" is already http of node \"a\""), "{same}");
    let other = wrong("10.0.0.2").err().unwrap_or_default();
    assert!(!other.contains("already"), "{other}");
}

#[test]
fn near_names_are_found_and_far_ones_are_not() {
    let names = ["multipaxos", "mencius", "epaxos"];
    assert_eq!(values::nearest("multi-paxos", names), Some("multipaxos"));
    assert_eq!(values::nearest("Mencuis", names), Some("mencius"));
    assert_eq!(values::nearest("raft", names), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the text, an answer comes: a deployment, or errors that each say what is wrong and what would be right.
    #[test]
    fn any_text_is_answered(edits in prop::collection::vec((any::<prop::sample::Index>(), edit()), 1..6)) {
        let mut text: Vec<char> = GOOD.chars().collect();
        for (at, edit) in edits {
            let at = at.index(text.len().max(1));
            match edit {
                Edit::Insert(piece) => { text.splice(at..at, piece.chars()); }
                Edit::Remove(count) => { text.drain(at..(at + count).min(text.len())); }
                Edit::Copy(count) => {
                    let piece = text[at..(at + count).min(text.len())].to_vec();
                    text.splice(at..at, piece);
                }
            }
        }
        answered(&text.into_iter().collect::<String>());
    }

    /// The same for a text that was never a deployment.
    #[test]
    fn any_noise_is_answered(text in "(\\PC|[\\n\\[\\]={}\",#.]){0,200}") {
        answered(&text);
        let cells = [crate::topology::Cells::RoundTrip, crate::topology::Cells::OneWay];
        for cells in cells {
            let _ = Matrix::parse(&text, "m.csv", cells, Span::ZERO);
            let _ = Matrix::parse(&format!("region,A,B\n{text}"), "m.csv", cells, Span::ZERO);
        }
    }
}

#[derive(Clone, Debug)]
enum Edit {
    Insert(String),
    Remove(usize),
    Copy(usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let words = [
        "[[node]]\n",
        "[[keyspace]]\n",
        "name = \"x\"\n",
        "= 3",
        "-",
        "\"",
        "[",
        "{ a = 1 }",
        "9999999999999",
        "\n",
    ];
    prop_oneof![
        prop::sample::select(words.to_vec()).prop_map(|word| Edit::Insert(word.to_owned())),
        "\\PC{1,4}".prop_map(Edit::Insert),
        (1..80_usize).prop_map(Edit::Remove),
        (1..200_usize).prop_map(Edit::Copy),
    ]
}

fn answered(text: &str) {
    let carousel = |_: &Path| Ok(include_str!("../../../../reference/rtt/carousel-ec2.csv").to_owned());
    let deployment = Deployment::parse_with(text, "fuzz.toml", Path::new(""), &known(), &carousel);
    let read_all = |deployment: Deployment| deployment.keyspaces().iter().try_for_each(read);
    if let Err(errors) = deployment.and_then(read_all) {
        assert!(errors.iter().count() > 0);
        assert!(errors.iter().all(|error| !error.wrong.is_empty() && !error.right.is_empty()), "{errors}");
    }
}
