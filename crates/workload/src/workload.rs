//! What is asked: YCSB's six mixes on the key-value interface, single-command loads, and a mix made to be
//! checked.

use crate::keys::Chooser;
use crate::operations as op;
use isochrone_core::command::{Operation, Side};
use isochrone_core::{Blob, Random, Span, Stamp};
use serde::Serialize;
use std::sync::Arc;
use thiserror::Error;

/// What a request does, as latencies are told apart.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Reads one record.
    Read,
    /// Overwrites one record.
    Update,
    /// Writes a new record.
    Insert,
    /// Reads up to a hundred records with neighbouring numbers at once.
    Scan,
    /// Reads one record, then overwrites it: two commands, one latency.
    ReadModifyWrite,
    /// Adds to a counter.
    Increment,
    /// Pushes to, pops from or reads a list.
    List,
    /// Reads or writes a field of a hash.
    Field,
    /// Writes only if nothing is there.
    Claim,
    /// Deletes.
    Delete,
    /// Touches two keys in one command.
    Pair,
}

/// One request: a command, and for [`Kind::ReadModifyWrite`] the one that follows its answer.
#[derive(Clone, Debug)]
pub struct Request {
    /// How its latency is booked.
    pub kind: Kind,
    /// What is asked.
    pub first: Operation,
    /// What is asked when that was answered.
    pub then: Option<Operation>,
}

/// A mix of requests over a set of records.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name on the command line.
    pub name: &'static str,
    mix: Arc<[(Kind, u32)]>,
    keys: Keys,
    /// How many records exist before the run.
    pub records: u64,
    /// Bytes of a value.
    pub value_size: usize,
    /// Percent of the requests that go to record 0, whatever the distribution says.
    pub conflict: u8,
    /// Stands before every key: a run whose history is to be checked must find its keys absent.
    pub prefix: String,
}

#[derive(Copy, Clone, Debug)]
enum Keys {
    Uniform,
    /// With this exponent, thousandths.
    Zipf(u32),
    Latest,
    /// None asks for the same as another.
    Own,
}

/// No workload has this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no workload is called `{name}`; there are {}", Workload::names().join(", "))]
pub struct UnknownWorkload {
    /// The name.
    pub name: String,
}

use Kind::{Claim, Delete, Field, Increment, Insert, List, Pair, Read, ReadModifyWrite, Scan, Update};

/// Name, mix (weights), key distribution, records, value size.
type Row = (&'static str, &'static [(Kind, u32)], Keys, u64, usize);

/// YCSB's rows are those of Cooper et al., SoCC '10, table 2, with records of one field: its thousand bytes
/// are our value.
const WORKLOADS: &[Row] = &[
    ("ycsb-a", &[(Read, 50), (Update, 50)], Keys::Zipf(990), 10_000, 1000),
    ("ycsb-b", &[(Read, 95), (Update, 5)], Keys::Zipf(990), 10_000, 1000),
    ("ycsb-c", &[(Read, 100)], Keys::Zipf(990), 10_000, 1000),
    ("ycsb-d", &[(Read, 95), (Insert, 5)], Keys::Latest, 10_000, 1000),
    ("ycsb-e", &[(Scan, 95), (Insert, 5)], Keys::Zipf(990), 10_000, 1000),
    ("ycsb-f", &[(Read, 50), (ReadModifyWrite, 50)], Keys::Zipf(990), 10_000, 1000),
    ("set", &[(Update, 100)], Keys::Uniform, 100_000, 64),
    ("get", &[(Read, 100)], Keys::Uniform, 100_000, 64),
    ("incr", &[(Increment, 100)], Keys::Uniform, 100_000, 8),
    (
        "check",
        &[
            (Read, 26),
            (Update, 20),
            (Increment, 14),
            (List, 14),
            (Field, 10),
            (Claim, 6),
            (Delete, 4),
            (Pair, 9),
        ],
        Keys::Uniform,
        12,
        8,
    ),
];

impl Workload {
    /// The names there are.
    pub fn names() -> Vec<&'static str> {
        WORKLOADS.iter().map(|row| row.0).collect()
    }

    /// The workload of this name.
    ///
    /// # Errors
    /// Where there is none; the error lists those there are.
    pub fn named(name: &str) -> Result<Workload, UnknownWorkload> {
        let found = WORKLOADS.iter().find(|row| row.0 == name);
        let &(name, mix, keys, records, value_size) =
            found.ok_or_else(|| UnknownWorkload { name: name.to_owned() })?;
        Ok(Workload { name, mix: mix.into(), keys, records, value_size, conflict: 0, prefix: String::new() })
    }

    /// Reads and overwrites of single records: this percentage of reads; keys by Zipf's law with this exponent
    /// (0 to 1, exclusive), or, where there is none, every session's own, so that nothing conflicts but what
    /// `conflict` sends to the hot key.
    pub fn mixed(reads: u8, exponent: Option<f64>, records: u64, value_size: usize) -> Workload {
        let reads = u32::from(reads.min(100));
        Workload {
            name: "mixed",
            mix: [(Read, reads), (Update, 100 - reads)].into(),
            keys: exponent.map_or(Keys::Own, |exponent| Keys::Zipf((exponent * 1e3) as u32)),
            records,
            value_size,
            conflict: 0,
            prefix: String::new(),
        }
    }

    /// The same without requests of one kind.
    #[must_use]
    pub fn without(self, kind: Kind) -> Workload {
        Workload { mix: self.mix.iter().filter(|(other, _)| *other != kind).copied().collect(), ..self }
    }

    /// Session `number` of `total`, drawing from `random`.
    pub fn session(&self, number: u32, total: u32, random: Random) -> Session {
        let chooser = match self.keys {
            Keys::Uniform => Chooser::Uniform,
            Keys::Zipf(thousandths) => Chooser::skewed(self.records, f64::from(thousandths) / 1e3),
            Keys::Own => Chooser::own(number, total),
            Keys::Latest => Chooser::latest(self.records),
        };
        Session {
            workload: self.clone(),
            number,
            total: total.max(1),
            random,
            chooser,
            inserted: 0,
            asked: 0,
        }
    }

    /// Writes that make the records exist, in batches of up to a hundred, and of a megabyte where one record is not more:
    /// what a run loads first. Empty for a workload that needs none.
    pub fn load(&self) -> impl Iterator<Item = Operation> + '_ {
        let needed =
            if self.mix.iter().any(|(kind, _)| matches!(kind, Increment | List)) { 0 } else { self.records };
        let batch = ((1 << 20) / self.value_size.max(1)).clamp(1, 100) as u64;
        (0..needed).step_by(batch as usize).map(move |from| {
            op::set_all(
                (from..(from + batch).min(needed))
                    .map(|record| (self.key(record), self.value("load", record))),
            )
        })
    }

    /// What ends a run in which things went wrong: something is counted, and then every record read, or the first ones
    /// where they are many.
    pub fn closing(&self) -> impl Iterator<Item = Operation> + '_ {
        const MOST: u64 = 24;
        let checked = self.name == "check";
        let reads = (0..self.records.min(MOST)).flat_map(move |record| {
            let others = checked.then(|| {
                let fields =
                    (0..FIELDS).map(move |field| op::hash_get(self.key_of("hash", record), field_of(field)));
                let whole = [op::get(self.key_of("counter", record)), op::range(self.key_of("list", record))];
                whole.into_iter().chain(fields)
            });
            [op::get(self.key(record))].into_iter().chain(others.into_iter().flatten())
        });
        [op::increment(self.key_of("closing", 0), 1)].into_iter().chain(reads)
    }

    fn key(&self, record: u64) -> Blob {
        self.key_of("key", record)
    }

    fn key_of(&self, kind: &str, record: u64) -> Blob {
        format!("{}{kind}:{record}", self.prefix).into()
    }

    /// A value that names who wrote it, of the workload's size.
    fn value(&self, writer: &str, sequence: u64) -> Blob {
        let mut text = format!("{writer}.{sequence}");
        while text.len() < self.value_size {
            text.push('x');
        }
        text.into()
    }
}

/// How many fields a hash of the checked mix has.
const FIELDS: u64 = 3;

fn field_of(number: u64) -> Blob {
    format!("f{number}").into()
}

/// One closed or open loop of requests.
#[derive(Clone, Debug)]
pub struct Session {
    workload: Workload,
    number: u32,
    total: u32,
    random: Random,
    chooser: Chooser,
    inserted: u64,
    asked: u64,
}

impl Session {
    /// Its number among the sessions of the run, from 0.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The next request. `stamp` is the wall clock that its command will carry, where the caller decides it:
    /// only then does the mix made to be checked let keys expire, because only then can a checker know when.
    pub fn next(&mut self, stamp: Option<Stamp>) -> Request {
        self.asked += 1;
        let kind = self.draw_kind();
        // Every session inserts about as often, so the others have inserted about as much.
        let records = self.workload.records + self.inserted * u64::from(self.total);
        let hot = self.random.below(100) < u64::from(self.workload.conflict);
        let record = if hot { 0 } else { self.chooser.draw(records, &mut self.random) };
        let checked = self.workload.name == "check";
        let mut then = None;
        let first = match kind {
            Read => op::get(self.key(record)),
            Update => match stamp.filter(|_| checked && self.random.chance(0.3)) {
                // Short enough to run out within a run, long enough to be read before.
                Some(stamp) => {
                    let life = Span::from_millis(1 + self.random.below(2_000));
                    op::set_until(self.key(record), self.value(), stamp + life)
                }
                None => op::set(self.key(record), self.value()),
            },
            Insert => {
                let fresh =
                    self.workload.records + self.inserted * u64::from(self.total) + u64::from(self.number);
                self.inserted += 1;
                op::set(self.key(fresh), self.value())
            }
            Scan => {
                let length = 1 + self.random.below(100);
                op::get_all((record..record + length).map(|record| self.key(record)))
            }
            ReadModifyWrite => {
                then = Some(op::set(self.key(record), self.value()));
                op::get(self.key(record))
            }
            // The checked mix keeps each type of value under names of its own.
            Increment if checked => {
                op::increment(self.key_of("counter", record), 1 + self.random.below(3) as i64)
            }
            Increment => op::increment(self.key(record), 1),
            List => self.list(record),
            Field => self.hash(record),
            Claim => op::set_if_absent(self.key(record), self.value()),
            Delete => op::delete(self.key(record)),
            Pair => {
                // Neighbours pair up, so that a history falls into small parts that are checked by themselves.
                let other = (record ^ 1) % records.max(2);
                match self.random.below(4) {
                    0 => op::get_all([self.key(record), self.key(other)]),
                    1 => {
                        let value = self.value();
                        op::set_all([(self.key(record), value.clone()), (self.key(other), value)])
                    }
                    // What reads one key and writes another, and may find that it must not.
                    kind => op::copy(self.key(record), self.key(other), kind == 2),
                }
            }
        };
        Request { kind, first, then }
    }

    fn key(&self, record: u64) -> Blob {
        self.workload.key(record)
    }

    fn key_of(&self, kind: &str, record: u64) -> Blob {
        self.workload.key_of(kind, record)
    }

    fn list(&mut self, record: u64) -> Operation {
        let list = self.key_of("list", record);
        match self.random.below(6) {
            0 | 1 => op::push(list, Side::Right, self.value()),
            2 => op::push(list, Side::Left, self.value()),
            3 => op::pop(list, Side::Left),
            4 => op::pop(list, Side::Right),
            _ => op::range(list),
        }
    }

    fn hash(&mut self, record: u64) -> Operation {
        let hash = self.key_of("hash", record);
        let field = field_of(self.random.below(FIELDS));
        match self.random.below(4) {
            0 | 1 => op::hash_set(hash, field, self.value()),
            2 => op::hash_get(hash, field),
            _ => op::hash_delete(hash, field),
        }
    }

    fn draw_kind(&mut self) -> Kind {
        let sum: u32 = self.workload.mix.iter().map(|(_, weight)| weight).sum();
        let mut drawn = self.random.below(u64::from(sum)) as u32;
        for &(kind, weight) in self.workload.mix.iter() {
            if drawn < weight {
                return kind;
            }
            drawn -= weight;
        }
        unreachable!("a number below the sum of the weights falls into one of them")
    }

    /// A value that no other session and no earlier request has written.
    fn value(&self) -> Blob {
        self.workload.value(&format!("s{}", self.number), self.asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn mixes_have_their_published_shares() {
        for (name, expected) in [
            ("ycsb-a", vec![(Read, 0.5), (Update, 0.5)]),
            ("ycsb-b", vec![(Read, 0.95), (Update, 0.05)]),
            ("ycsb-c", vec![(Read, 1.0)]),
            ("ycsb-d", vec![(Read, 0.95), (Insert, 0.05)]),
            ("ycsb-e", vec![(Scan, 0.95), (Insert, 0.05)]),
            ("ycsb-f", vec![(Read, 0.5), (ReadModifyWrite, 0.5)]),
        ] {
            let workload = Workload::named(name).expect(name);
            let mut session = workload.session(0, 1, Random::seeded(11));
            let mut counts = BTreeMap::new();
            for _ in 0..20_000 {
                *counts.entry(session.next(None).kind).or_insert(0u32) += 1;
            }
            assert_eq!(counts.len(), expected.len(), "{name}");
            for (kind, share) in expected {
                let found = f64::from(counts[&kind]) / 20_000.0;
                assert!((found - share).abs() < 0.015, "{name}: {kind:?} {found} for {share}");
            }
        }
    }

    #[test]
    fn the_same_seed_asks_the_same() {
        for name in Workload::names() {
            let workload = Workload::named(name).expect(name);
            let ask = |seed| {
                let mut session = workload.session(3, 8, Random::seeded(seed));
                (0..200).map(|_| format!("{:?}", session.next(None))).collect::<Vec<_>>()
            };
            assert_eq!(ask(1), ask(1), "{name}");
            if name != "incr" {
                assert_ne!(ask(1), ask(2), "{name}");
            }
        }
    }

    #[test]
    fn conflict_sends_its_share_to_one_key() {
        let mut workload = Workload::named("set").expect("set");
        workload.conflict = 30;
        let mut session = workload.session(0, 1, Random::seeded(2));
        let hot = format!("{:?}", workload.key(0));
        let count = (0..10_000).filter(|_| format!("{:?}", session.next(None).first).contains(&hot)).count();
        assert!((2_800..3_200).contains(&count), "{count} of 10,000 on the hot key");
    }

    #[test]
    fn an_unknown_name_is_told_what_there_is() {
        let error = Workload::named("ycsb-z").expect_err("no such workload").to_string();
        assert!(error.contains("`ycsb-z`") && error.contains("ycsb-a, ycsb-b"), "{error}");
    }

    #[test]
    fn loading_covers_every_record_once() {
        let mut workload = Workload::named("ycsb-c").expect("ycsb-c");
        workload.records = 250;
        let keys: usize = workload.load().map(|batch| crate::words(&batch).len() / 2).sum();
        assert_eq!(keys, 250);
    }
}
