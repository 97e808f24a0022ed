//! Lists of protocols that are written by hand have all that there are.

use isochrone_protocols::{self as protocols, Entry};
use std::path::Path;

/// Whether a protocol belongs into a list.
type Belongs = fn(&Entry) -> bool;

const ALL: Belongs = |_| true;
const OF_COMMANDS: Belongs = |entry| !entry.transactional();
const OF_TRANSACTIONS: Belongs = Entry::transactional;

/// Files with a list, where it begins in them and what ends it.
const LISTS: &[(&str, &str, &str, Belongs)] = &[
    ("ARCHITECTURE.md", " one command, one order: ", "\n", OF_COMMANDS),
    ("ARCHITECTURE.md", " many keys, atomically: ", "\n", OF_TRANSACTIONS),
    ("Makefile", "\nseeds:", "\n\n", ALL),
    ("docs/deployment.md", "\n| `protocol` |", "\n", ALL),
    ("tests/clients/run.py", "\nPROTOCOLS = [", "]", OF_COMMANDS),
    ("bench/protocols/overload.py", "\nPROTOCOLS = [", "]", ALL),
    ("bench/protocols/transactions.py", "\nPROTOCOLS = [", "]", OF_TRANSACTIONS),
];

/// Files of tests, each with a test of every such protocol.
const TESTS: &[(&str, Belongs)] = &[
    ("crates/cli/tests/live/chaos.rs", OF_COMMANDS),
    ("crates/cli/tests/live/ready.rs", OF_COMMANDS),
    ("crates/cli/tests/live/safety.rs", OF_COMMANDS),
    ("crates/cli/tests/live/census.rs", OF_TRANSACTIONS),
    ("crates/cli/tests/live/transactional.rs", OF_TRANSACTIONS),
];

fn text(file: &str) -> String {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Whether a list has this name, and not only as a part of another.
fn names(list: &str, name: &str) -> bool {
    list.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|word| word == name)
}

/// Whether a test has this name in quotes, alone or before other words.
fn tests(text: &str, name: &str) -> bool {
    text.split('"').any(|piece| piece.split(' ').next() == Some(name))
}

#[test]
fn every_list_has_every_protocol() {
    let mut lacking = Vec::new();
    for (file, begin, end, belongs) in LISTS {
        let text = text(file);
        let (_, rest) =
            text.split_once(begin).unwrap_or_else(|| panic!("{file}: no list begins with {begin:?}"));
        let (list, _) = rest.split_once(end).unwrap_or((rest, ""));
        let wanted = protocols::ALL.iter().filter(|entry| belongs(entry) && !names(list, entry.name));
        lacking.extend(wanted.map(|entry| format!("{file}: {}", entry.name)));
    }
    for (file, belongs) in TESTS {
        let text = text(file);
        let wanted = protocols::ALL.iter().filter(|entry| belongs(entry) && !tests(&text, entry.name));
        lacking.extend(wanted.map(|entry| format!("{file}: {}", entry.name)));
    }
    let told = "add them there; \"Where to add a protocol\" in ARCHITECTURE.md says what else there is";
    assert!(lacking.is_empty(), "{lacking:?} is lacking: {told}");
}
