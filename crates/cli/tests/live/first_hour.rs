//! The README's first hour: its ten commands as they stand there, and what each shows.

use crate::processes::{Process, TOKEN, client, isochrone, outcome, until};
use crate::resp::Reply;
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
const FIVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/five-regions.toml");
/// The port of the first region in the README; the others follow.
const PORT: u16 = 7001;
/// What a write of US West takes at first: to the leader in US East and from there to Euro, 73 and 88 ms.
const LED: Duration = Duration::from_millis(161);
/// What no linearizable write of it takes less than: to the nearest majority, with Asia.
const FLOOR: Duration = Duration::from_millis(102);

/// A command of the README, and what the lines below it show.
struct Step {
    command: String,
    shown: Vec<String>,
}

/// The commands of a section: what stands behind `$ ` in its blocks, also over several lines.
fn steps(readme: &str, heading: &str) -> Vec<Step> {
    let (_, section) = readme.split_once(&format!("\n## {heading}\n")).expect("the section is there");
    let section = section.split("\n## ").next().unwrap_or_default().replace("\\\n", "");
    let mut steps: Vec<Step> = Vec::new();
    let blocks = section.split("```").skip(1).step_by(2);
    // Behind the mark of a block stands what it is written in.
    for line in blocks.flat_map(|block| block.lines().skip(1)) {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), shown: Vec::new() });
        } else if let Some(step) = steps.last_mut() {
            step.shown.push(line.to_owned());
        }
    }
    steps
}

impl Step {
    fn words(&self) -> Vec<&str> {
        self.command.split_whitespace().collect()
    }

    /// The verb, which has to be this one, and what follows it.
    fn verb(&self, verb: &str) -> Vec<&str> {
        let words = self.words();
        let (["cargo", "run", "--release", "--", rest @ ..] | ["isochrone", rest @ ..]) = &words[..] else {
            panic!("README: `{}` does not run isochrone", self.command)
        };
        assert_eq!(rest.first(), Some(&verb), "README: {}", self.command);
        rest.to_vec()
    }

    /// What the README shows below the command is what it prints; `...` stands there for what is left out.
    fn prints(&self, out: &str) {
        let shown: Vec<_> = self.shown.iter().filter(|line| !line.is_empty() && *line != "...").collect();
        assert!(!shown.is_empty(), "README: {}: nothing is shown", self.command);
        for line in shown {
            let printed = out.lines().any(|printed| printed.starts_with(line.as_str()));
            assert!(printed, "README: {}: it prints no {line:?}\n{out}", self.command);
        }
    }
}

/// Runs it to its end in a folder: what it prints.
fn run<S: AsRef<std::ffi::OsStr>>(folder: &Path, words: impl IntoIterator<Item = S>) -> String {
    let done = isochrone(words).current_dir(folder).output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let (out, err) = (text(done.stdout), text(done.stderr));
    assert!(done.status.success(), "{}\n{out}\n{err}", done.status);
    out
}

/// The cluster of the first terminal.
struct Up {
    process: Process,
    redis: Vec<SocketAddr>,
    http: Vec<String>,
}

impl Up {
    /// As the README starts it, with ports of its own and lines in the place of the table.
    fn start(step: &Step) -> Up {
        let mut command = isochrone(step.verb("up"));
        command.args(["--plain", "--format", "json", "--port", "0"]).env("ISOCHRONE_ADMIN_TOKEN", TOKEN);
        let process = Process::start(command);
        let ready: Value = serde_json::from_str(&process.line().expect("a line")).expect("JSON");
        let of = |what: &str| -> Vec<String> {
            let regions = ready["regions"].as_array().expect("a list");
            regions.iter().map(|region| region[what].as_str().unwrap().to_owned()).collect()
        };
        let redis: Vec<SocketAddr> = of("redis").iter().map(|address| address.parse().unwrap()).collect();
        Up { redis, http: of("http"), process }
    }

    /// Where the region listens that has this port in the README.
    fn moved(&self, port: &str) -> Option<SocketAddr> {
        let region = port.parse::<u16>().ok()?.checked_sub(PORT)?;
        self.redis.get(usize::from(region)).copied()
    }

    /// `--http` for so many of its nodes: the README's are where they are looked for anyway.
    fn http(&self, count: usize) -> Vec<&str> {
        self.http.iter().take(count).flat_map(|http| ["--http", http.as_str()]).collect()
    }

    /// Has this node lead, as it does at first: an election on a busy machine may have found another, and nothing else brings it
    /// back.
    fn is_led_from(&self, node: &str) {
        let mut command = isochrone([vec!["move-leader", "--to", node], self.http(1)].concat());
        // Where it fails, who asks for what needs it asks again.
        command.env("ISOCHRONE_ADMIN_TOKEN", TOKEN).output().expect("the program starts");
    }

    /// As `q` in the table does.
    fn quit(mut self) {
        self.process.signal("TERM");
        assert_eq!(self.process.end(), Some(0));
    }
}

/// Whether there is a `redis-cli`; says so where there is none.
fn there_is_redis_cli() -> bool {
    let found = Command::new("redis-cli").arg("--version").output().is_ok();
    if !found {
        println!("there is no redis-cli on the path: the tests' own client asks in its place");
    }
    found
}

/// Writes as the README does: how long that took.
fn write(step: &Step, up: &Up, with_redis_cli: bool) -> Duration {
    let words = step.words();
    let ["time", "redis-cli", "-p", port, words @ ..] = &words[..] else {
        panic!("README: `{}` is no timed write", step.command)
    };
    assert_eq!(step.shown.first().map(String::as_str), Some("OK"), "README: {}", step.command);
    let address = up.moved(port).expect("the port of a region");
    if !with_redis_cli {
        let mut client = client(address);
        let start = Instant::now();
        assert_eq!(client.ask(words).unwrap(), Reply::Text("OK".to_owned()));
        return start.elapsed();
    }
    let start = Instant::now();
    let mut command = Command::new("redis-cli");
    command.arg("-p").arg(address.port().to_string()).args(words);
    command.env_remove("REDISCLI_AUTH").stdin(Stdio::null());
    let mut asking = Process::start(command);
    let (line, took) = (asking.line(), start.elapsed());
    assert_eq!(line.as_deref(), Some("OK"), "{}", step.command);
    assert_eq!(asking.end(), Some(0));
    took
}

/// The delays that are emulated are kept to within so much.
const EARLY: Duration = Duration::from_millis(1);

/// About as long as is expected. With a leader in Asia a write of US West takes 1.35 times as long as with that in US East.
fn about(expected: Duration) -> Range<Duration> {
    expected - EARLY..expected.mul_f64(1.3)
}

/// Writes until one takes about as long as is expected: a machine that is busy with other tests adds to some.
fn takes(expected: Duration, write: impl Fn() -> Duration) -> Duration {
    until(&format!("a write in about {expected:?}"), || {
        let took = write();
        assert!(took + EARLY >= FLOOR, "{took:?} is less than the floor");
        about(expected).contains(&took).then_some(took)
    })
}

/// The number in front of these words.
fn number<T: std::str::FromStr>(text: &str, words: &str) -> Option<T> {
    text.split_once(words)?.0.split_whitespace().next_back()?.parse().ok()
}

#[test]
fn the_first_hour_goes_as_the_readme_says() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let readme = fs::read_to_string(README).unwrap();
    let steps = steps(&readme, "The first hour");
    let [start, set, status, plan, restart, set_again, cut, bench, check, sim] = &steps[..] else {
        panic!("README: ten commands, not {}", steps.len())
    };
    let redis_cli = there_is_redis_cli();

    let up = Up::start(start);
    let before = takes(LED, || {
        let took = write(set, &up, redis_cli);
        if !about(LED).contains(&took) {
            up.is_led_from("us-east");
        }
        took
    });
    until("status shows what a write takes", || {
        let (code, out, _) = outcome([status.verb("status"), up.http(up.http.len())].concat());
        let row = out.lines().find(|line| line.starts_with("  us-west "))?;
        // Behind it stand the bound and the ratio.
        let took = row.split_whitespace().rev().nth(2)?.parse::<f64>().ok();
        if took.is_none() {
            // Figures are of the last seconds.
            write(set, &up, redis_cli);
        }
        let healthy = out.starts_with("five-regions: 5 of 5 nodes answer, all are ready\n");
        (code == 0 && healthy && took? + 1.0 >= LED.as_secs_f64() * 1e3).then_some(())
    });

    let planned = run(here, plan.verb("plan"));
    plan.prints(&planned);
    let recommended = planned.lines().find_map(|line| line.strip_prefix("recommended: ")).expect("a line");
    let better = recommended.split(',').next().unwrap_or_default();
    let slower = number::<f64>(&planned, " ms slower\n").expect("how much slower the configured one is");
    assert!(slower > 0.0, "{planned}");
    up.quit();

    // The advice is taken.
    assert_eq!(restart.verb("up"), ["up", "--protocol", better]);
    assert_eq!(set_again.command, set.command);
    let up = Up::start(restart);
    let after = takes(FLOOR, || write(set_again, &up, redis_cli));
    assert!(after < before, "{after:?} in the place of {before:?}");

    cut.prints(&run(here, [cut.verb("net"), up.http(1)].concat()));

    // Writes go on at two others. The README's minute is for 100,000 operations; here seconds do, and nothing else differs but
    // the ports.
    let mut words = Vec::new();
    let mut asked = Vec::new();
    for word in bench.verb("bench") {
        let moved = word.rsplit_once(':').and_then(|(_, port)| up.moved(port)).map(|to| to.to_string());
        asked.extend(moved.clone());
        words.push(moved.unwrap_or_else(|| word.to_owned()));
    }
    let duration = words.iter().position(|word| word == "--duration").expect("it has a duration") + 1;
    words[duration] = "3s".to_owned();
    let out = run(here, words);
    assert!(out.contains(" 0 errors, 0 unknown\n"), "{out}");
    let measured: u64 = number(&out, " operations,").expect("how many");
    assert!(measured > 100, "{out}");
    assert_eq!(asked.len(), 2, "{}", bench.command);
    for endpoint in asked {
        assert!(out.lines().any(|line| line.starts_with(&format!("{endpoint} "))), "{endpoint}\n{out}");
    }

    let out = run(here, check.verb("check"));
    let shown = check.shown.first().expect("a verdict is shown");
    assert!(out.starts_with("linearizable: ") && shown.starts_with("linearizable: "), "{shown}\n{out}");
    // All that was measured, and what was asked before and after.
    assert!(number::<u64>(&out, " operations on ").expect("how many") >= measured, "{out}");
    up.quit();

    let out = run(here, sim.verb("sim"));
    sim.prints(&out);
    let last = out.lines().rfind(|line| !line.is_empty());
    assert!(last.is_some_and(|last| last.starts_with("0 violations, 0 undecided, ")), "{out}");
}

#[test]
fn without_a_file_what_up_runs_is_simulated_and_replayed() {
    let json = |words: &[&str], more: &[&str], status: i32| -> Value {
        let (found, out, err) = outcome([&["sim"][..], words, more, &["--format", "json"]].concat());
        assert_eq!(found, status, "{out}\n{err}");
        serde_json::from_str(&out).expect("one object")
    };
    let faults = ["--seed", "7", "--faults", "all"];
    assert_eq!(json(&[], &faults, 0)["hash"], json(&[FIVE], &faults, 0)["hash"]);

    let planted = json(&[], &["--seeds", "30", "--faults", "all", "--plant", "apply-gap"], 1);
    let found = &planted["violations"][0];
    let replay = found["replay"].as_str().expect("a command").strip_prefix("isochrone sim ");
    let again: Vec<&str> = replay.expect("a command").split(' ').collect();
    assert_eq!(again[0], "--seed", "{again:?}");
    assert_eq!(json(&[], &again, 1)["violations"][0]["text"], found["text"]);
}
