use super::arguments::Node;
use super::format::{Counts, Header, Next, NextPart, Reader, Writer};
use super::parts::{self, Part, Type, What};
use super::restore::{Limits, Restoring};
use super::{Patience, date, place, save, shown};
use isochrone_core::deployment::Address;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// When the made-up node is asked, milliseconds since 1970.
const NOW_MS: u64 = 1_700_000_000_000;

fn header() -> Header {
    Header {
        cluster: "made-up".to_owned(),
        keyspace: "main".to_owned(),
        protocol: "multipaxos".to_owned(),
        node: "n0".to_owned(),
        version: "0.1.0".to_owned(),
        begun_ms: NOW_MS,
        one_moment: false,
    }
}

/// A file of these keys, deadlines and values.
fn file(records: &[(&[u8], Option<u64>, &[u8])]) -> Vec<u8> {
    let mut writer = Writer::begin(Vec::new(), &header()).unwrap();
    for (key, deadline, value) in records {
        writer.key(key, *deadline, value.len() as u64).unwrap();
        // In two pieces, as it may come.
        let (first, rest) = value.split_at(value.len() / 2);
        writer.value(first).unwrap();
        writer.value(rest).unwrap();
        writer.end().unwrap();
    }
    writer.finish(NOW_MS + 1).unwrap().0
}

/// A part of these words.
fn part(what: What, words: &[&str]) -> Part {
    Part { what, words: words.iter().map(|word| word.as_bytes().to_vec()).collect() }
}

/// A file of one key whose value is in parts.
fn file_in_parts(kind: &str, deadline: Option<u64>, parts: &[Part], elements: u64, whole: bool) -> Vec<u8> {
    let mut writer = Writer::begin(Vec::new(), &header()).unwrap();
    writer.begin_parts(b"long", deadline, Type::named(kind).unwrap()).unwrap();
    parts.iter().for_each(|part| writer.part(part).unwrap());
    writer.end_parts(elements, whole).unwrap();
    writer.finish(NOW_MS + 1).unwrap().0
}

type Record = (Vec<u8>, Option<u64>, Vec<u8>);

/// What is in a file.
fn read(bytes: &[u8]) -> Result<Vec<Record>, String> {
    let (mut reader, found) = Reader::open(bytes).map_err(|fault| fault.to_string())?;
    assert_eq!(found, header());
    let mut records = Vec::new();
    loop {
        match reader.entry().map_err(|fault| fault.to_string())? {
            Next::End(footer) => {
                assert_eq!(footer.counts.keys, records.len() as u64);
                return Ok(records);
            }
            // The words of all parts, one behind the other.
            Next::InParts(entry) => {
                let mut value = Vec::new();
                while let NextPart::Part(part) = reader.part().map_err(|fault| fault.to_string())? {
                    value.extend(part.words.concat());
                }
                records.push((entry.key, entry.deadline, value));
            }
            Next::Entry(entry) => {
                let mut value = Vec::new();
                let read = reader.value(&entry, |piece| {
                    value.extend_from_slice(piece);
                    Ok(())
                });
                read.map_err(|error| error.to_string())?;
                records.push((entry.key, entry.deadline, value));
            }
        }
    }
}

/// Larger than what is read at once.
fn large() -> Vec<u8> {
    (0..200_000u32).map(|number| (number % 251) as u8).collect()
}

#[test]
fn what_is_written_is_read() {
    let large = large();
    let records: [(&[u8], Option<u64>, &[u8]); 3] =
        [(b"a", Some(5), b"\0hello"), (b"\xff\r\n", None, &large), (b"", None, b"\x04")];
    let found = read(&file(&records)).unwrap();
    let expected = records.map(|(key, deadline, value)| (key.to_vec(), deadline, value.to_vec()));
    assert_eq!(found, expected);
    assert!(read(&file(&[])).unwrap().is_empty());
}

#[test]
fn a_file_that_was_cut_short_or_changed_is_found_wherever_that_is() {
    let parts = [part(What::List, &["a", "b"]), part(What::List, &["c"])];
    for whole in [
        file(&[(b"a", Some(5), b"\0hello"), (b"b", None, b"\x01more")]),
        file_in_parts("list", Some(5), &parts, 3, true),
    ] {
        for end in 0..whole.len() {
            let error = read(&whole[..end]).unwrap_err();
            let told =
                if end < 19 { "this is no backup".to_owned() } else { format!("stops at byte {end},") };
            assert!(error.contains(&told), "{end}: {error}");
        }
        for place in 0..whole.len() {
            for bit in [1, 0x80] {
                let mut changed = whole.clone();
                changed[place] ^= bit;
                assert!(read(&changed).is_err(), "byte {place}");
            }
        }
        let longer = [&whole[..], b"x"].concat();
        assert!(read(&longer).unwrap_err().contains("something follows the end"));
    }

    // The place is that of the record.
    let one = file(&[(b"a", Some(5), b"\0hello")]);
    let begin = one.windows(7).position(|bytes| bytes == b"a\0hello").unwrap() - 21;
    let mut changed = one;
    changed[begin + 25] ^= 1;
    let expected = format!("damaged at or behind byte {begin}: its checksum is another");
    assert_eq!(read(&changed).unwrap_err(), expected);
}

#[test]
fn other_files_and_later_forms_are_told_apart() {
    for (bytes, told) in [
        (&b""[..], "this is no backup"),
        (b"REDIS0011 and so on, of a snapshot file", "this is no backup"),
        (
            b"isochrone-backup 3\nand what is not known yet",
            "a backup of a later form; this program reads forms 1 and 2",
        ),
    ] {
        let error = read(bytes).unwrap_err();
        assert!(error.starts_with(told), "{error}");
    }
}

#[test]
fn a_file_of_the_earlier_form_is_read_and_has_no_parts() {
    use xxhash_rust::xxh3::xxh3_64;
    let sealed = |bytes: &mut Vec<u8>, from: usize| {
        let digest = xxh3_64(&bytes[from..]);
        bytes.extend_from_slice(&digest.to_le_bytes());
    };
    let text = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    };
    let mut bytes = b"isochrone-backup 1\n".to_vec();
    text(&mut bytes, &serde_json::to_string(&header()).unwrap());
    sealed(&mut bytes, 0);
    let head = bytes.clone();
    let from = bytes.len();
    bytes.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(b"k\x04v");
    sealed(&mut bytes, from);
    bytes.push(2);
    let counts =
        r#"{"keys":1,"with_deadline":0,"key_bytes":1,"value_bytes":2,"types":{"hash":1},"ended_ms":5}"#;
    text(&mut bytes, counts);
    sealed(&mut bytes, 0);
    assert_eq!(read(&bytes).unwrap(), [(b"k".to_vec(), None, b"\x04v".to_vec())]);
    let error = read(&[&head[..], &[3; 40]].concat()).unwrap_err();
    assert!(error.ends_with("neither a key nor the end follows"), "{error}");
}

#[test]
fn dates_and_keys_are_shown() {
    for (millis, expected) in [
        (0, "1970-01-01 00:00:00 UTC"),
        (951_782_400_999, "2000-02-29 00:00:00 UTC"),
        (1_700_000_000_000, "2023-11-14 22:13:20 UTC"),
        (4_102_444_799_000, "2099-12-31 23:59:59 UTC"),
    ] {
        assert_eq!(date(millis), expected);
    }
    assert_eq!(shown(b"a\n\xff\""), r#""a\n\xff\"""#);
    assert_eq!(shown(&[b'x'; 200]), format!("\"{}\"... of 200 bytes", "x".repeat(100)));
}

/// A node that answers each command as it is told to, on one connection after the other.
fn node(mut answer: impl FnMut(&[String]) -> String + Send + 'static) -> Node {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let endpoint = Address::loopback(listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            // Each answer goes at once, as from a node.
            stream.get_ref().set_nodelay(true).unwrap();
            while let Some(words) = command(&mut stream) {
                // A client that has gone shows at the next command.
                let _ = stream.get_mut().write_all(answer(&words).as_bytes());
            }
        }
    });
    Node { endpoint, ca: None, insecure: false }
}

/// The number behind a letter.
fn number(stream: &mut impl BufRead) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    line.trim_end().get(1..)?.parse().ok()
}

fn command(stream: &mut impl BufRead) -> Option<Vec<String>> {
    let mut words = Vec::new();
    for _ in 0..number(stream)? {
        let mut word = vec![0; number(stream)? + 2];
        stream.read_exact(&mut word).ok()?;
        words.push(String::from_utf8_lossy(&word).trim_end_matches("\r\n").to_owned());
    }
    Some(words)
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// What every node is asked first.
fn greeting(words: &[String]) -> Option<String> {
    let info = format!(
        "server_time_usec:{NOW_MS}000\r\ncluster:made-up\r\nnode:n0\r\nkeyspace0:name=main,protocol=multipaxos,leads=1\r\n"
    );
    match words[0].as_str() {
        "CLIENT" => Some(bulk("id=1 db=0 sub=0")),
        "INFO" => Some(bulk(&info)),
        "SELECT" => Some("+OK\r\n".to_owned()),
        _ => None,
    }
}

#[test]
fn what_is_refused_for_now_is_asked_again_and_what_is_told_twice_is_saved_once() {
    let page = |cursor: &str, keys: &[&str]| {
        let found: String = keys.iter().map(|key| bulk(key)).collect();
        format!("*2\r\n{}*{}\r\n{found}", bulk(cursor), keys.len())
    };
    let mut pages = vec![
        "-TRYAGAIN keys are being moved between partitions\r\n".to_owned(),
        page("7", &["a", "gone", "b"]),
        page("0", &["b", "c"]),
    ]
    .into_iter();
    let (mut queued, mut moving) = (Vec::new(), true);
    let node = node(move |words| {
        if let Some(answer) = greeting(words) {
            return answer;
        }
        match words[0].as_str() {
            "SCAN" => pages.next().unwrap(),
            "MULTI" => "+OK\r\n".to_owned(),
            "PEXPIRETIME" => "+QUEUED\r\n".to_owned(),
            "DUMP" => {
                queued.push(words[1].clone());
                "+QUEUED\r\n".to_owned()
            }
            "EXEC" => match std::mem::take(&mut queued).as_slice() {
                [key] if key == "c" && std::mem::take(&mut moving) => {
                    "-TRYAGAIN c is being moved\r\n".to_owned()
                }
                [key] => match key.as_str() {
                    "a" => format!("*2\r\n:1800000000000\r\n{}", bulk("\0value")),
                    "b" => format!("*2\r\n:-1\r\n{}", bulk("\u{4}fields")),
                    "c" => format!("*2\r\n:-1\r\n{}", bulk("\u{1}elements")),
                    _ => "*2\r\n:-2\r\n$-1\r\n".to_owned(),
                },
                _ => "-CROSSSLOT Keys in request don't hash to the same slot\r\n".to_owned(),
            },
            other => format!("-ERR unknown command '{other}'\r\n"),
        }
    });
    let (connection, place) = place::open(&node, None, "").unwrap();
    let saved = save::save(connection, &place, &header(), Vec::new(), Path::new("none")).unwrap();
    assert_eq!((saved.counts.keys, saved.counts.with_deadline, saved.gone), (3, 1, 1));
    assert_eq!(saved.bytes, saved.to.len() as u64);
    let types = saved.counts.types.iter().map(|(name, count)| (name.as_str(), *count));
    assert_eq!(types.collect::<Vec<_>>(), [("hash", 1), ("list", 1), ("string", 1)]);
    let mut records = read(&saved.to).unwrap();
    records.sort();
    let record = |key: &str, deadline, value: &str| (key.into(), deadline, value.into());
    let expected: [Record; 3] = [
        record("a", Some(1_800_000_000_000), "\0value"),
        record("b", None, "\u{4}fields"),
        record("c", None, "\u{1}elements"),
    ];
    assert_eq!(records, expected);
}

#[test]
fn of_a_wait_that_lasts_it_is_told_once_what_is_waited_for() {
    let mut patience = Patience::new();
    let text = "TRYAGAIN no answer in time";
    let mut line = |seconds| patience.line(Duration::from_secs(seconds), "va1:6379", text);
    assert_eq!(line(0), None);
    assert_eq!(line(15), Some(format!("va1:6379: {text}; it is asked again for 45 s")));
    assert_eq!((line(30), line(61)), (None, None));
    let error = place::refused("va1:6379", "SCAN", text, "").to_string();
    assert!(error.starts_with(&format!("va1:6379: SCAN: {text}\n  `isochrone status`")), "{error}");
    assert!(!place::refused("va1:6379", "SCAN", "ERR syntax error", "").to_string().contains("status"));
}

#[test]
fn a_key_that_may_not_be_read_ends_a_backup() {
    let node = node(|words| match words[0].as_str() {
        "SCAN" => "*2\r\n$1\r\n0\r\n*1\r\n$2\r\n\x1b!\r\n".to_owned(),
        "MULTI" => "+OK\r\n".to_owned(),
        "EXEC" => "-EXECABORT Transaction discarded because of previous errors.\r\n".to_owned(),
        "PEXPIRETIME" | "DUMP" => "-NOPERM No permissions to access a key\r\n".to_owned(),
        _ => greeting(words).unwrap(),
    });
    let (connection, place) = place::open(&node, None, "").unwrap();
    let saved = save::save(connection, &place, &header(), Vec::new(), Path::new("none"));
    let error = saved.err().unwrap().to_string();
    assert!(error.contains(r#"DUMP "\x1b!": NOPERM No permissions"#), "{error}");
    assert!(error.contains("the user needs +info"), "{error}");
}

#[test]
fn an_endpoint_of_something_else_is_refused() {
    let other = node(|words| match words[0].as_str() {
        "INFO" => bulk("# Server\r\nredis_version:7.2.4\r\n"),
        _ => greeting(words).unwrap(),
    });
    let error = place::open(&other, None, "").err().unwrap().to_string();
    assert!(error.contains("no node of Isochrone answers there"), "{error}");
    let ours = node(|words| greeting(words).unwrap());
    let error = place::open(&ours, Some("bank"), "").err().unwrap().to_string();
    assert!(error.contains("has no keyspace \"bank\"") && error.contains("--keyspace: main"), "{error}");
}

#[test]
fn each_key_is_restored_or_said_to_be_not() {
    let bytes = file(&[
        (b"new", None, b"\0one"),
        (b"old", None, b"\0two"),
        (b"past", Some(NOW_MS), b"\0three"),
        (b"later", Some(NOW_MS + 600_000), b"\0four"),
        (b"large", None, b"\0longer than the node takes"),
        (b"denied", None, b"\0five"),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, &bytes).unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    let mut refused = false;
    let node = node(move |words| {
        if let Some(answer) = greeting(words) {
            return answer;
        }
        heard.lock().unwrap().push(words.join(" "));
        let answer = match words[1].as_str() {
            "old" => "-BUSYKEY Target key name already exists.\r\n",
            "denied" => "-NOPERM No permissions to access a key\r\n",
            "later" if !std::mem::replace(&mut refused, true) => "-TRYAGAIN nobody leads\r\n",
            _ => "+OK\r\n",
        };
        answer.to_owned()
    });
    let (connection, place) = place::open(&node, Some("main"), "").unwrap();
    let limits = Limits { bulk: 20, command: 1_000, elements: None };
    let again = File::open(&path).unwrap();
    let restoring = Restoring::new(connection, &place, &path, again, limits, false);
    let tally = restoring.all(&mut Reader::open(&bytes[..]).unwrap().0).unwrap();
    assert_eq!(tally.counts(), [2, 1, 1, 2]);
    let expected = [
        ("\"old\"", "it exists"),
        ("\"denied\"", "NOPERM No permissions to access a key"),
        // It would be taken apart if it were what DUMP says.
        ("\"large\"", "its value is in a form that this program does not read"),
    ];
    assert_eq!(tally.named(), expected);
    let later = format!("RESTORE later {} \0four ABSTTL", NOW_MS + 600_000);
    let expected = [
        "RESTORE new 0 \0one ABSTTL",
        "RESTORE old 0 \0two ABSTTL",
        &later,
        "RESTORE denied 0 \0five ABSTTL",
        &later,
    ];
    assert_eq!(*asked.lock().unwrap(), expected);
}

#[test]
fn with_replace_a_node_is_told_so_and_a_file_that_changes_meanwhile_is_noticed() {
    let bytes = file(&[(b"a", None, b"\0one"), (b"b", None, b"\0two")]);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    let node = node(move |words| {
        greeting(words).unwrap_or_else(|| {
            heard.lock().unwrap().push(words.join(" "));
            "+OK\r\n".to_owned()
        })
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, &bytes).unwrap();
    let restore = |bytes: &[u8]| {
        let (connection, place) = place::open(&node, Some("main"), "").unwrap();
        let limits = Limits { bulk: 1 << 20, command: 1 << 20, elements: None };
        let again = File::open(&path).unwrap();
        let restoring = Restoring::new(connection, &place, &path, again, limits, true);
        restoring.all(&mut Reader::open(bytes).unwrap().0)
    };
    assert_eq!(restore(&bytes).unwrap().counts(), [2, 0, 0, 0]);
    assert_eq!(
        *asked.lock().unwrap(),
        ["RESTORE a 0 \0one ABSTTL REPLACE", "RESTORE b 0 \0two ABSTTL REPLACE"]
    );
    let error = restore(&bytes[..bytes.len() - 60]).unwrap_err().to_string();
    assert!(error.contains("cut short, or damaged there"), "{error}");
}

/// Redis' own example of what DUMP says of the list 1 2 3.
const DUMPED: &[u8] =
    b"\n\x17\x17\0\0\0\x12\0\0\0\x03\0\0\xc0\x01\0\x04\xc0\x02\0\x04\xc0\x03\0\xff\x04\0u#<\xc0;.\xe9\xdd";

/// What a made-up node has under the key that a value is put back into.
#[derive(Default)]
struct Beside {
    queued: Option<Vec<Vec<String>>>,
    there: bool,
    length: usize,
}

impl Beside {
    fn answer(&mut self, words: &[String]) -> String {
        match (words[0].as_str(), &mut self.queued) {
            ("MULTI", _) => {
                self.queued = Some(Vec::new());
                "+OK\r\n".to_owned()
            }
            ("EXEC", queued) => {
                let queued = queued.take().unwrap_or_default();
                let answers: String = queued.iter().map(|words| self.executed(words)).collect();
                format!("*{}\r\n{answers}", queued.len())
            }
            (_, Some(queued)) => {
                queued.push(words.to_vec());
                "+QUEUED\r\n".to_owned()
            }
            ("EXISTS", None) => ":0\r\n".to_owned(),
            ("LLEN", None) => format!(":{}\r\n", self.length),
            ("XLEN", None) => ":3\r\n".to_owned(),
            ("DEL", None) => {
                *self = Beside::default();
                ":1\r\n".to_owned()
            }
            (other, None) => format!("-ERR unknown command '{other}'\r\n"),
        }
    }

    fn executed(&mut self, words: &[String]) -> String {
        match words[0].as_str() {
            "EXISTS" => format!(":{}\r\n", u8::from(std::mem::replace(&mut self.there, true))),
            "RPUSH" => {
                self.length += words.len() - 2;
                format!(":{}\r\n", self.length)
            }
            "RENAME" => "+OK\r\n".to_owned(),
            _ => ":1\r\n".to_owned(),
        }
    }
}

/// Restores this file at a node that answers as it is told to, with a short `bulk` and few `elements`: the counts, who is named, and
/// what was asked, where the key beside `long` is `~`.
fn restored(
    bytes: &[u8],
    replace: bool,
    mut answer: impl FnMut(&[String]) -> Option<String> + Send + 'static,
) -> ([u64; 4], Vec<String>, Vec<String>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    let mut beside = Beside::default();
    let node = node(move |words| {
        if let Some(answer) = greeting(words) {
            return answer;
        }
        let shown = |word: &String| {
            let of_long = word.starts_with("isochrone-restore:") && word.ends_with(":{long}");
            if of_long { "~".to_owned() } else { word.clone() }
        };
        let words: Vec<String> = words.iter().map(shown).collect();
        heard.lock().unwrap().push(words.join(" "));
        if let Some(answer) = answer(&words) {
            if words[0] == "EXEC" {
                beside.queued = None;
            }
            return answer;
        }
        beside.answer(&words)
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    let (connection, place) = place::open(&node, Some("main"), "").unwrap();
    let limits = Limits { bulk: 60, command: 2_000, elements: Some(16) };
    let restoring = Restoring::new(connection, &place, &path, File::open(&path).unwrap(), limits, replace);
    let tally = restoring.all(&mut Reader::open(bytes).unwrap().0).unwrap();
    let named = tally.named().into_iter().map(|(key, error)| format!("{key}: {error}")).collect();
    let asked = asked.lock().unwrap().clone();
    (tally.counts(), named, asked)
}

/// An answer to each command of this name.
fn always(
    name: &'static str,
    text: &'static str,
) -> impl FnMut(&[String]) -> Option<String> + Send + 'static {
    move |words| (words[0] == name).then(|| text.to_owned())
}

/// The deadline of the key beside.
const STAYS: &str = "PEXPIRE ~ 3600000";
/// Of a value that is put back, the first and the last that is asked.
const FIRST: [&str; 3] = ["EXISTS long ~", "MULTI", "EXISTS ~"];
const LAST: [&str; 5] = ["MULTI", "PERSIST ~", "RENAME ~ long", STAYS, "EXEC"];

#[test]
fn what_a_node_does_not_take_whole_is_put_back_in_parts_and_counted() {
    let much = "-ERR the value has more elements than a command may; write it in parts\r\n";
    let deadline = NOW_MS + 600_000;
    let dumped = file(&[(b"long", Some(deadline), DUMPED)]);
    let (counts, _, asked) = restored(&dumped, false, always("RESTORE", much));
    assert_eq!(counts, [1, 0, 0, 0]);
    let dated = format!("PEXPIREAT ~ {deadline}");
    let part = ["RPUSH ~ 1 2 3", STAYS, "EXEC", "LLEN ~"];
    // Whenever it ends, what is not named goes in time.
    let tried = ["MULTI", &dated, STAYS, "EXEC"];
    let named = ["MULTI", &dated, "RENAMENX ~ long", STAYS, "EXEC"];
    assert_eq!(asked[1..], [&FIRST[..], &part, &tried, &named].concat());

    // In place of what is there, which stays until then.
    let parts = [part_of(&["a", "b"]), part_of(&["c"])];
    let (counts, _, asked) = restored(&file_in_parts("list", None, &parts, 3, true), true, |_| None);
    assert_eq!(counts, [1, 0, 0, 0]);
    let parts = ["RPUSH ~ a b", "RPUSH ~ c", STAYS, "EXEC", "LLEN ~"];
    assert_eq!(asked, [&FIRST[..], &parts, &LAST].concat());

    // What is taken apart is what DUMP says.
    let short = file(&[(b"k", None, b"\0one")]);
    let (_, named, asked) = restored(&short, false, always("RESTORE", much));
    assert_eq!(asked, ["RESTORE k 0 \0one ABSTTL"]);
    assert_eq!(named, ["\"k\": its value is in a form that this program does not read"]);
}

/// A part of a list.
fn part_of(words: &[&str]) -> Part {
    part(What::List, words)
}

#[test]
fn what_is_there_stays_where_a_value_is_not_put_back_whole() {
    let whole = file_in_parts("list", None, &[part_of(&["a", "b"]), part_of(&["c"])], 3, true);
    // The key that is meant is touched by one command alone, and in these cases not by that.
    let kept = |asked: &[String]| {
        let touched = |words: &&String| words.ends_with(" long") || words.contains(" long ");
        asked.iter().filter(touched).all(|words| words == "EXISTS long ~")
    };
    for replace in [false, true] {
        // Refused in the middle; written by somebody else; and at the end.
        for (name, text, told) in [
            ("EXEC", "*4\r\n:0\r\n:2\r\n-ERR no more\r\n:1\r\n", "ERR no more"),
            ("EXEC", "-EXECABORT no\r\n", "EXECABORT no"),
            ("LLEN", ":4\r\n", "4 elements were there once its 3 had been written"),
        ] {
            let (counts, named, asked) = restored(&whole, replace, always(name, text));
            assert_eq!((counts, asked.last().unwrap().as_str()), ([0, 0, 0, 1], "DEL ~"));
            assert_eq!(named, [format!("\"long\": {told}")]);
            assert!(kept(&asked), "{asked:?}");
        }
    }
    let list = [part_of(&["a", "b", "c"])];
    let bytes = file_in_parts("list", Some(NOW_MS + 600_000), &list, 3, true);
    // Its deadline is denied, or none.
    for (queued, executed, told) in [
        ("-NOPERM no\r\n", "-EXECABORT no\r\n", "NOPERM no; the user needs"),
        ("+QUEUED\r\n", "*2\r\n-ERR invalid expire time\r\n:1\r\n", "ERR invalid expire time"),
    ] {
        let mut dated = false;
        let (counts, named, asked) = restored(&bytes, true, move |words| {
            dated |= words[0] == "PEXPIREAT";
            match words[0].as_str() {
                "PEXPIREAT" => Some(queued.to_owned()),
                "EXEC" if dated => Some(executed.to_owned()),
                _ => None,
            }
        });
        assert_eq!((counts, asked.last().unwrap().as_str()), ([0, 0, 0, 1], "DEL ~"));
        assert!(named[0].contains(told) && kept(&asked), "{named:?}: {asked:?}");
    }

    // It is there already, or somebody makes it in this moment.
    let (counts, _, asked) = restored(&whole, false, always("EXISTS", ":1\r\n"));
    assert_eq!((counts, asked), ([0, 0, 1, 0], vec!["EXISTS long ~".to_owned()]));
    let mut transactions = 0_usize;
    let (counts, _, asked) = restored(&whole, false, move |words| {
        transactions += usize::from(words[0] == "EXEC");
        (words[0] == "EXEC" && transactions == 2).then(|| "*3\r\n:1\r\n:0\r\n:1\r\n".to_owned())
    });
    assert_eq!((counts, asked.last().unwrap().as_str()), ([0, 0, 1, 0], "DEL ~"));
    // Where it was written while it was saved, there is nothing to hold it against.
    let changed = file_in_parts("list", None, &list, 2, false);
    assert_eq!(restored(&changed, false, always("LLEN", ":4\r\n")).0, [1, 0, 0, 0]);
}

#[test]
fn what_nobody_knows_is_begun_anew_or_asked_again() {
    let whole = file_in_parts("list", None, &[part_of(&["a", "b", "c"])], 3, true);
    let unknown = |nth: usize, then: &'static str| {
        let mut transactions = 0_usize;
        move |words: &[String]| {
            transactions += usize::from(words[0] == "EXEC");
            match (words[0].as_str(), transactions.checked_sub(nth)) {
                ("EXEC", Some(0)) => Some("-UNKNOWN no answer in time\r\n".to_owned()),
                ("EXEC", Some(1)) if !then.is_empty() => Some(then.to_owned()),
                _ => None,
            }
        }
    };
    // What was written: under another name, so that what is executed late does no harm.
    let (counts, named, asked) = restored(&whole, true, unknown(1, ""));
    assert_eq!(counts, [1, 0, 0, 0], "{named:?}");
    assert_eq!(asked[5..8], ["EXEC", "DEL ~", "EXISTS long ~"]);
    // The end: it is there no longer, since it has its key.
    let gone = "*3\r\n:0\r\n-ERR no such key\r\n:0\r\n";
    let answer = |nth: usize, there: &'static str| {
        let mut answer = unknown(nth, gone);
        move |words: &[String]| {
            if words.join(" ") == "EXISTS long" { Some(there.to_owned()) } else { answer(words) }
        }
    };
    let (counts, named, asked) = restored(&whole, true, answer(2, ":1\r\n"));
    assert_eq!((counts, asked.last().unwrap().as_str()), ([1, 0, 0, 0], "EXISTS long"), "{named:?}");
    // Or not, where it was deleted.
    let (counts, named, _) = restored(&whole, true, answer(2, ":0\r\n"));
    assert_eq!(counts, [0, 0, 0, 1]);
    assert!(named[0].contains("has gone"), "{named:?}");
    // Or its deadline has passed, while it was waited.
    let soon = file_in_parts("list", Some(NOW_MS + 100), &[part_of(&["a"])], 1, true);
    assert_eq!(restored(&soon, true, answer(3, ":0\r\n")).0, [0, 1, 0, 0]);
    // It was not, and somebody else has deleted it.
    let mut transactions = 0_usize;
    let (counts, named, _) = restored(&whole, true, move |words| {
        transactions += usize::from(words[0] == "EXEC");
        (words[0] == "EXEC" && transactions == 2).then(|| gone.to_owned())
    });
    assert_eq!(counts, [0, 0, 0, 1]);
    assert!(named[0].contains("has gone"), "{named:?}");
}

#[test]
fn what_can_be_told_to_be_refused_is_refused_before_anything_is_written() {
    let long = "x".repeat(61);
    let text = [part(What::Text, &["0", &long[..20]]), part(What::Text, &["20", &long[20..]])];
    let fields = [part(What::Entry, &["1-1", "f", "v"]), part(What::Entry, &["w"; 15])];
    for (bytes, told) in [
        (
            file_in_parts("list", None, &[part_of(&["a"]), part_of(&[&long])], 2, true),
            "a word of it has 61 bytes",
        ),
        (file_in_parts("string", None, &text, 61, true), "a string that has 61 bytes or more"),
        (
            file_in_parts("stream", None, &fields, 2, true),
            "an entry of it is written with a command of 17 words, and the node takes 16; raise `elements`",
        ),
        // It would be a deadline for what is there.
        (file_in_parts("hash", Some(NOW_MS + 600_000), &[], 0, false), "nothing of it was saved"),
    ] {
        let (counts, named, asked) = restored(&bytes, true, |_| None);
        assert_eq!(counts, [0, 0, 0, 1]);
        assert!(named[0].contains(told), "{named:?}");
        assert!(asked.is_empty(), "{asked:?}");
    }
}

#[test]
fn a_command_has_as_many_words_as_the_node_takes() {
    let words = ["w"; 30];
    for (kind, what, name) in [("list", What::List, "RPUSH"), ("hash", What::Hash, "HSET")] {
        let bytes = file_in_parts(kind, None, &[part(what, &words)], 30, false);
        let (_, _, asked) = restored(&bytes, true, |_| None);
        let counts =
            asked.iter().filter(|asked| asked.starts_with(name)).map(|asked| asked.split(' ').count());
        assert_eq!(counts.collect::<Vec<_>>(), [16, 16, 4], "{asked:?}");
    }
}

/// More than one transaction, each with 14 elements in commands of one.
fn in_transactions(count: usize) -> Vec<u8> {
    let parts: Vec<_> = (0..count * 14).map(|number| part_of(&[&number.to_string()])).collect();
    file_in_parts("list", None, &parts, parts.len() as u64, true)
}

#[test]
fn several_transactions_are_under_way_and_what_is_refused_among_them_is_begun_anew_one_by_one() {
    let (counts, named, asked) = restored(&in_transactions(6), true, |_| None);
    assert_eq!(counts, [1, 0, 0, 0], "{named:?}");
    // No more commands than it takes: the first look, six times with four beside the parts, the count, and the end.
    assert_eq!(asked.len(), 1 + 6 * (14 + 4) + 1 + 5);

    for (text, told) in [
        ("-TRYAGAIN nobody leads\r\n".to_owned(), "TRYAGAIN"),
        // Behind that of another.
        (format!("*16\r\n:1\r\n{}:1\r\n", ":56\r\n".repeat(14)), "order"),
        // Somebody has deleted it.
        (format!("*16\r\n:0\r\n{}:1\r\n", ":14\r\n".repeat(14)), "deleted"),
    ] {
        let mut transactions = 0_usize;
        let (counts, named, asked) = restored(&in_transactions(6), true, move |words| {
            transactions += usize::from(words[0] == "EXEC");
            (words[0] == "EXEC" && transactions == 3).then(|| text.clone())
        });
        assert_eq!(counts, [1, 0, 0, 0], "{told}: {named:?}");
        let again = asked.iter().rposition(|words| words == "EXISTS long ~").unwrap();
        assert_eq!(asked[again - 1], "DEL ~", "{told}");
        assert_eq!(asked.len() - again, 1 + 6 * (14 + 4) + 1 + 5, "{told}");
    }
}

#[test]
fn where_no_key_is_sure_to_be_in_the_same_partition_names_are_tried() {
    let mut writer = Writer::begin(Vec::new(), &header()).unwrap();
    writer.begin_parts(b"}", None, Type::named("list").unwrap()).unwrap();
    writer.part(&part_of(&["a"])).unwrap();
    writer.end_parts(1, true).unwrap();
    let bytes = writer.finish(NOW_MS + 1).unwrap().0;
    let mut tries = 0;
    let cross = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";
    let (counts, named, asked) = restored(&bytes, true, move |_| {
        tries += 1;
        (tries < 4).then(|| cross.to_owned())
    });
    assert_eq!(counts, [1, 0, 0, 0], "{named:?}");
    // One alone, and then many at once.
    let looks = 1 + 64;
    assert!(asked[..looks].iter().all(|words| words.starts_with("EXISTS } isochrone-restore:")), "{asked:?}");
    assert!(asked[0] != asked[1] && asked[1] != asked[2] && asked[looks] == "MULTI", "{asked:?}");
    assert_eq!(asked[looks + 1], asked[3].replacen("} ", "", 1));
    let (counts, named, _) = restored(&bytes, true, always("EXISTS", cross));
    assert_eq!(counts, [0, 0, 0, 1]);
    assert!(named[0].contains("none of 16384 other keys lies in its partition"), "{named:?}");
}

#[test]
fn a_stream_in_parts_has_its_groups_and_what_is_pending() {
    let parts = [
        part(What::Entry, &["1-1", "f", "v"]),
        part(What::Entry, &["2-1", "f", "w"]),
        part(What::Group, &["g", "2-1", "2"]),
        part(What::Group, &["h", "0-0"]),
        part(What::Consumer, &["g", "ann"]),
        part(What::Pending, &["g", "ann", "1-1", "5", "3"]),
        part(What::Last, &["9-1", "7", "3-1"]),
    ];
    let (counts, named, asked) = restored(&file_in_parts("stream", None, &parts, 3, true), false, |_| None);
    assert_eq!(counts, [1, 0, 0, 0], "{named:?}");
    let expected = [
        "XADD ~ 1-1 f v",
        "XADD ~ 2-1 f w",
        "XGROUP CREATE ~ g 2-1 MKSTREAM ENTRIESREAD 2",
        "XGROUP CREATE ~ h 0-0 MKSTREAM",
        "XGROUP CREATECONSUMER ~ g ann",
        "XCLAIM ~ g ann 0 1-1 TIME 5 RETRYCOUNT 3 FORCE JUSTID",
        "XSETID ~ 9-1 ENTRIESADDED 7 MAXDELETEDID 3-1",
        STAYS,
        "EXEC",
        "XLEN ~",
    ];
    assert_eq!(asked[3..13], expected);
}

const TOO_LONG: &str = "-ERR the reply would be longer than 120 MiB; ask for fewer elements at once\r\n";

/// Saves the key `l`, of this type, from a node that does not tell it at once: it answers so to what reads, and in the end to `EXEC`.
fn saved_in_parts(
    kind: &'static str,
    told: &'static str,
    mut answer: impl FnMut(&[String]) -> String + Send + 'static,
) -> (Counts, Vec<u8>) {
    let (mut queued, mut watched) = (None, false);
    let node = node(move |words| {
        if let Some(answer) = greeting(words) {
            return answer;
        }
        let queues = queued.is_some();
        match words[0].as_str() {
            "SCAN" => format!("*2\r\n{}*1\r\n{}", bulk("0"), bulk("l")),
            "MULTI" => {
                queued = Some(0);
                "+OK\r\n".to_owned()
            }
            "PEXPIRETIME" | "DUMP" if queues => {
                queued = queued.map(|count| count + 1);
                "+QUEUED\r\n".to_owned()
            }
            "EXEC" => match (queued.take(), std::mem::take(&mut watched)) {
                (Some(1), true) => told.to_owned(),
                _ => format!("*2\r\n:-1\r\n{TOO_LONG}"),
            },
            "WATCH" => {
                watched = true;
                "+OK\r\n".to_owned()
            }
            "PEXPIRETIME" => ":1800000000000\r\n".to_owned(),
            "TYPE" => format!("+{kind}\r\n"),
            _ => answer(words),
        }
    });
    let (connection, place) = place::open(&node, None, "").unwrap();
    let saved = save::save(connection, &place, &header(), Vec::new(), Path::new("none")).unwrap();
    (saved.counts, saved.to)
}

/// A list of strings, as an answer.
fn list(found: &[&str]) -> String {
    let words: String = found.iter().map(|one| bulk(one)).collect();
    format!("*{}\r\n{words}", found.len())
}

#[test]
fn what_a_node_does_not_tell_at_once_is_saved_in_parts() {
    for (changed, told) in [(false, "*1\r\n:-1\r\n"), (true, "*-1\r\n")] {
        let (counts, bytes) = saved_in_parts("list", told, |words| match words[0].as_str() {
            "LLEN" => ":5\r\n".to_owned(),
            "LRANGE" => {
                let ends = [2, 3].map(|at| words[at].parse::<usize>().unwrap());
                let found = &["a", "b", "c", "d", "e"][ends[0]..(ends[1] + 1).min(5)];
                if found.len() > 2 { TOO_LONG.to_owned() } else { list(found) }
            }
            other => format!("-ERR unknown command '{other}'\r\n"),
        });
        assert_eq!((counts.keys, counts.with_deadline, counts.in_parts), (1, 1, 1));
        assert_eq!((counts.changed, counts.types.get("list")), (u64::from(changed), Some(&1)));
        let expected = [(b"l".to_vec(), Some(1_800_000_000_000), b"abcde".to_vec())];
        assert_eq!(read(&bytes).unwrap(), expected);
    }
}

#[test]
fn what_goes_while_it_is_read_in_parts_ends_nothing_but_its_own_reading() {
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
    let (counts, bytes) = saved_in_parts("list", "*-1\r\n", move |words| match words[0].as_str() {
        "LLEN" => ":5\r\n".to_owned(),
        _ if words[2] == "0" => list(&["a", "b"]),
        _ => wrong.to_owned(),
    });
    assert_eq!((counts.keys, counts.in_parts, counts.changed), (1, 1, 1));
    assert_eq!(read(&bytes).unwrap()[0].2, b"ab");
    // Of another type before it is counted.
    let (counts, _) = saved_in_parts("hash", "*-1\r\n", move |_| wrong.to_owned());
    assert_eq!((counts.keys, counts.in_parts, counts.changed), (1, 1, 1));

    // One of two groups.
    let (counts, bytes) =
        saved_in_parts("stream", "*1\r\n:-1\r\n", |words| match [words[0].as_str(), words[1].as_str()] {
            ["XLEN", _] => ":1\r\n".to_owned(),
            ["XINFO", "STREAM"] => format!(
                "*6\r\n{}{}{}:1\r\n{}{}",
                bulk("last-generated-id"),
                bulk("1-1"),
                bulk("entries-added"),
                bulk("max-deleted-entry-id"),
                bulk("0-0")
            ),
            ["XRANGE", _] if words[2] == "-" => {
                format!("*1\r\n*2\r\n{}{}", bulk("1-1"), list(&["f", "v"]))
            }
            ["XINFO", "GROUPS"] => {
                let group = |name| list(&["name", name, "last-delivered-id", "0-0"]);
                format!("*2\r\n{}{}", group("g"), group("h"))
            }
            ["XINFO", "CONSUMERS"] if words[3] == "g" => "-NOGROUP No such consumer group\r\n".to_owned(),
            _ => "*0\r\n".to_owned(),
        });
    assert_eq!((counts.keys, counts.in_parts, counts.changed), (1, 1, 1));
    assert_eq!(read(&bytes).unwrap()[0].2, b"1-1fvg0-0h0-01-110-0");
}

#[test]
fn a_value_is_cut_between_its_elements() {
    let words = (0..5).map(|number| vec![b'x'; 600_000 + number]);
    let mut cut = Vec::new();
    parts::cut(What::Hash, 2, words, &mut |part| {
        cut.push(part.words.len());
        Ok::<_, ()>(())
    })
    .unwrap();
    assert_eq!(cut, [2, 2, 1]);
}
