use super::arguments::Node;
use super::format::{Header, Next, Reader, Writer};
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
    let whole = file(&[(b"a", Some(5), b"\0hello"), (b"b", None, b"\x01more")]);
    for end in 0..whole.len() {
        let error = read(&whole[..end]).unwrap_err();
        let told = if end < 19 { "this is no backup".to_owned() } else { format!("stops at byte {end},") };
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
            b"isochrone-backup 2\nand what is not known yet",
            "a backup of a later form; this program reads form 1",
        ),
    ] {
        let error = read(bytes).unwrap_err();
        assert!(error.starts_with(told), "{error}");
    }
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
        words.push(String::from_utf8(word).unwrap().trim_end_matches("\r\n").to_owned());
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
    let limits = Limits { bulk: 20, command: 1_000 };
    let again = File::open(&path).unwrap();
    let restoring = Restoring::new(connection, &place, &path, again, limits, false);
    let tally = restoring.all(&mut Reader::open(&bytes[..]).unwrap().0).unwrap();
    assert_eq!(tally.counts(), [2, 1, 1, 2]);
    let named = tally.named();
    assert_eq!(named[0].0, "\"large\"");
    assert!(
        named[0].1.starts_with("its value has 27 bytes as it is dumped, and the node takes 20"),
        "{named:?}"
    );
    assert_eq!(named[1], ("\"old\"", "it exists"));
    assert_eq!(named[2], ("\"denied\"", "NOPERM No permissions to access a key"));
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
        let limits = Limits { bulk: 1 << 20, command: 1 << 20 };
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
