//! The table against the page, and against itself.

use super::super::absent::ABSENT;
use super::super::spec::{Keys, flag};
use super::super::table::{COMMANDS, by_name};
use expect_test::expect_file;

#[test]
fn the_page_tells_the_table() {
    expect_file!["../../../../../docs/redis.md"].assert_eq(&super::super::page());
}

/// `redis_commands.txt` lists what COMMAND LIST says in Redis 7.2, without the containers of subcommands.
#[test]
fn every_command_of_redis_is_here_or_said_to_be_absent() {
    let mut known = std::collections::BTreeSet::new();
    for spec in COMMANDS.iter().copied().flatten() {
        match spec.children() {
            [] => drop(known.insert(spec.name)),
            children => known.extend(children.iter().map(|child| child.name)),
        }
    }
    for absent in ABSENT {
        assert!(known.insert(absent.name), "{} is here, and said to be absent", absent.name);
        assert!(by_name(absent.name.as_bytes()).is_none(), "{}", absent.name);
    }
    let redis: std::collections::BTreeSet<&str> = include_str!("redis_commands.txt").lines().collect();
    let missing: Vec<_> = redis.difference(&known).collect();
    let invented: Vec<_> = known.difference(&redis).collect();
    assert!(missing.is_empty() && invented.is_empty(), "missing {missing:?}, not in Redis {invented:?}");
}

/// T49: a form of every command is compared with Redis, or it is said why not.
#[test]
fn every_command_is_compared_with_redis_or_said_why_not() {
    use super::grammar::{INCOMPARABLE, bare, forms};
    use std::collections::BTreeSet;
    let mut here = BTreeSet::new();
    for spec in COMMANDS.iter().copied().flatten() {
        match spec.children() {
            [] => drop(here.insert(spec.name)),
            children => here.extend(children.iter().map(|child| child.name)),
        }
    }
    let compared: BTreeSet<String> = forms()
        .into_iter()
        .flat_map(|form| {
            let mut words = bare(form).split(' ').map(str::to_ascii_lowercase);
            let first = words.next().unwrap_or_default();
            let both = words.next().map(|second| format!("{first}|{second}"));
            [Some(first), both]
        })
        .flatten()
        .filter(|name| here.contains(name.as_str()))
        .collect();
    let mut excused = BTreeSet::new();
    for (names, why) in INCOMPARABLE {
        assert!(!why.is_empty(), "{names}");
        for name in names.split_ascii_whitespace() {
            assert!(excused.insert(name), "{name} is excused twice");
            assert!(!compared.contains(name), "{name} is compared, and excused");
        }
    }
    let missing: Vec<_> =
        here.iter().filter(|name| !compared.contains(**name) && !excused.contains(**name)).collect();
    let invented: Vec<_> = excused.difference(&here).collect();
    assert!(missing.is_empty(), "neither compared nor excused: {missing:?}");
    assert!(invented.is_empty(), "excused, and not here: {invented:?}");
}

#[test]
fn every_name_is_found_in_any_case_and_only_once() {
    let mut seen = std::collections::BTreeSet::new();
    for spec in COMMANDS.iter().copied().flatten() {
        for spec in std::iter::once(spec).chain(spec.children()) {
            assert!(seen.insert(spec.name), "{} is in the table twice", spec.name);
            let found = by_name(spec.name.to_ascii_uppercase().as_bytes()).unwrap();
            assert_eq!(found.name, spec.name);
            assert_eq!(spec.name, spec.name.to_ascii_lowercase());
            assert!(
                !spec.about.summary.is_empty() && !spec.about.since.is_empty(),
                "{} lacks its documentation",
                spec.name
            );
        }
    }
    assert!(by_name(b"nope").is_none() && by_name(b"").is_none() && by_name(&[b'x'; 5000]).is_none());
}

#[test]
fn rows_agree_with_themselves() {
    for spec in COMMANDS.iter().copied().flatten() {
        let (first, last, _) = spec.keys.numbers();
        let least = spec.arity.unsigned_abs() as i32;
        assert!(
            first < least && last < least || matches!(spec.keys, Keys::ShardChannels { .. }),
            "{}: a key lies behind the shortest request",
            spec.name
        );
        assert!(!(spec.is(flag::WRITE) && spec.is(flag::READ)), "{} both reads and writes", spec.name);
        if matches!(spec.keys, Keys::Counted { target: false, .. }) && spec.is(flag::WRITE | flag::READ) {
            assert!(spec.is(flag::MOVABLE_KEYS), "{}", spec.name);
        }
    }
}
