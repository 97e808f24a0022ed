//! The mixes: Retwis, YCSB+T, SmallBank, a bank with a conserved total, a ledger whose accounts come and go, and one
//! made to be checked.

use super::ledger::Ledger;
use super::money::{INITIAL, Money};
use super::plan::{Kind, Plan, Program};
use crate::keys::Zipf;
use isochrone_core::{Blob, Random};
use isochrone_transactions::retry::Retry;
use std::sync::Arc;
use thiserror::Error;

/// A mix of transactions over a set of records, none of which has to exist before the run.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name on the command line.
    pub name: &'static str,
    mix: Arc<[(Kind, u32)]>,
    /// How many records there are: keys, customers or accounts.
    pub records: u64,
    /// By which law their popularity falls.
    pub keys: Keys,
    /// Bytes of a value that is not a balance.
    pub value_size: usize,
    /// Stands before every key.
    pub prefix: String,
    /// Whether and when what was aborted is tried again.
    pub retry: Retry,
}

/// Which records are asked for how often.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Keys {
    /// All equally.
    Uniform,
    /// By Zipf's law with this exponent, between 0 and 1: record 0 is the most popular.
    Zipf(f64),
    /// So many percent of all go to the first so many records, evenly.
    Hotspot {
        /// Percent of what is asked.
        share: u32,
        /// The records.
        records: u64,
    },
}

/// No workload of transactions has this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no workload of transactions is called `{name}`; there are {}", Workload::names().join(", "))]
pub struct UnknownWorkload {
    /// The name.
    pub name: String,
}

use Kind::{
    AddUser, Amalgamate, Audit, Balance, BlindWrite, Closing, DepositChecking, Follow, GiveUp, LoadTimeline,
    Move, PostTweet, ReadModifyWrite, ReadOnly, ReadWrite, SendPayment, TransactSavings, Transfer,
    WriteCheck, WriteSome,
};

/// Name, mix (weights), records, popularity, value size.
type Row = (&'static str, &'static [(Kind, u32)], u64, Keys, usize);

const WORKLOADS: &[Row] = &[
    // specs/carousel.md 7.1, table 3.2.
    (
        "retwis",
        &[(AddUser, 5), (Follow, 15), (PostTweet, 30), (LoadTimeline, 50)],
        10_000_000,
        Keys::Zipf(0.75),
        64,
    ),
    // specs/carousel.md 7.1.
    ("ycsbt", &[(ReadModifyWrite, 100)], 10_000_000, Keys::Zipf(0.75), 64),
    // The mix of OLTP-Bench; customers and hotspot of Alomari et al., ICDE '08.
    (
        "smallbank",
        &[
            (Amalgamate, 15),
            (Balance, 15),
            (DepositChecking, 15),
            (SendPayment, 25),
            (TransactSavings, 15),
            (WriteCheck, 15),
        ],
        18_000,
        Keys::Hotspot { share: 90, records: 1_000 },
        0,
    ),
    ("bank", &[(Transfer, 85), (Audit, 15)], 20, Keys::Uniform, 0),
    ("ledger", &[(Move, 80), (Audit, 20)], 16, Keys::Uniform, 0),
    (
        "txn-check",
        &[
            (ReadModifyWrite, 36),
            (ReadWrite, 18),
            (BlindWrite, 14),
            (WriteSome, 6),
            (ReadOnly, 20),
            (GiveUp, 6),
        ],
        100,
        Keys::Zipf(0.99),
        8,
    ),
];

/// Keys that the transactions which end a run may have: all protocols take so many, within the time they give.
const CLOSING_MAX: u64 = 1_000;

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
        let &(name, mix, records, keys, value_size) =
            found.ok_or_else(|| UnknownWorkload { name: name.to_owned() })?;
        let (mix, prefix) = (mix.into(), String::new());
        Ok(Workload { name, mix, records, keys, value_size, prefix, retry: Retry::NEVER })
    }

    /// Session `number`, drawing from `random`.
    pub fn session(&self, number: u32, random: Random) -> Session {
        let zipf = match self.keys {
            Keys::Zipf(exponent) => Some(Zipf::new(self.records, exponent)),
            _ => None,
        };
        Session { workload: self.clone(), number, random, zipf }
    }

    /// What ends a run in which things went wrong, one after the other: a transaction that writes every key once more,
    /// which nothing that is stuck lets through, and one that reads them all. Nothing for a workload of more keys than
    /// one transaction should have.
    pub fn closing(&self) -> Vec<Plan> {
        if self.records > CLOSING_MAX {
            return Vec::new();
        }
        let all = || (0..self.records).map(|record| self.key(record)).collect::<Vec<_>>();
        let (write, read) = match self.name {
            "bank" => {
                let audit = Program::Money(Money::Audit { total: self.total() });
                (audit, audit)
            }
            "ledger" => {
                let audit = Program::Ledger(Ledger::Audit { total: self.total() });
                (audit, audit)
            }
            "txn-check" => (
                Program::Fresh { writes: usize::MAX, size: self.value_size },
                Program::Fresh { writes: 0, size: 0 },
            ),
            _ => return Vec::new(),
        };
        let predicate = self.predicate();
        let last = Plan { kind: Closing, reads: all(), writes: Vec::new(), predicate, program: read };
        vec![Plan { writes: all(), program: write, ..last.clone() }, last]
    }

    /// The prefix of which a transaction over all keys reads everything: only where keys come and go.
    fn predicate(&self) -> Option<Blob> {
        (self.name == "ledger").then(|| format!("{}key:", self.prefix).into())
    }

    /// What all accounts hold together.
    fn total(&self) -> i64 {
        self.records as i64 * INITIAL
    }

    /// 16 bytes without a prefix (`specs/carousel.md` 8.19).
    fn key(&self, record: u64) -> Blob {
        format!("{}key:{record:012}", self.prefix).into()
    }

    fn account(&self, kind: &str, customer: u64) -> Blob {
        format!("{}{kind}:{customer:08}", self.prefix).into()
    }
}

/// A source of transactions.
#[derive(Clone, Debug)]
pub struct Session {
    workload: Workload,
    number: u32,
    random: Random,
    zipf: Option<Zipf>,
}

impl Session {
    /// Another session of the same workload, drawing from `random`.
    pub fn beside(&self, number: u32, random: Random) -> Session {
        Session { number, random, ..self.clone() }
    }

    /// Its number among the sessions of the run, from 0.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The next transaction.
    pub fn draw(&mut self) -> Plan {
        let kind = self.draw_kind();
        let size = self.workload.value_size;
        let fresh = |writes: usize| Program::Fresh { writes, size };
        match kind {
            // specs/carousel.md 7.1: of the keys written, the first so many are read.
            AddUser => self.over(kind, 3, 1, 3, fresh(3)),
            Follow => self.over(kind, 2, 2, 2, fresh(2)),
            PostTweet => self.over(kind, 5, 3, 5, fresh(5)),
            LoadTimeline => {
                let keys = self.random.between(1, 10) as usize;
                self.over(kind, keys, keys, 0, fresh(0))
            }
            ReadModifyWrite => {
                let keys = if self.workload.name == "ycsbt" { 4 } else { self.few(1) };
                self.over(kind, keys, keys, keys, fresh(keys))
            }
            ReadWrite => {
                let keys = self.few(2);
                let mut plan = self.over(kind, keys, keys, keys, fresh(1));
                // Any of the keys read, or the one behind them, which is not read then.
                let written = self.random.below(keys as u64) as usize;
                plan.writes = vec![plan.writes.swap_remove(written)];
                if self.random.chance(0.3) {
                    plan.reads.remove(written);
                }
                plan
            }
            BlindWrite => {
                let keys = self.few(1);
                self.over(kind, keys, 0, keys, fresh(keys))
            }
            WriteSome => {
                let keys = self.few(2);
                let written = self.random.below(keys as u64) as usize;
                self.over(kind, keys, keys, keys, fresh(written))
            }
            GiveUp => {
                let keys = self.few(1);
                self.over(kind, keys, keys, keys, Program::GiveUp)
            }
            ReadOnly | Closing => {
                let keys = self.few(1);
                self.over(kind, keys, keys, 0, fresh(0))
            }
            Balance | DepositChecking | TransactSavings | Amalgamate | WriteCheck | SendPayment => {
                self.smallbank(kind)
            }
            Transfer => {
                let sum = self.random.between(1, 2_000) as i64;
                self.over(kind, 2, 2, 2, Program::Money(Money::Transfer(sum)))
            }
            Audit => {
                let reads = (0..self.workload.records).map(|record| self.workload.key(record)).collect();
                let (total, predicate) = (self.workload.total(), self.workload.predicate());
                let program = match predicate {
                    Some(_) => Program::Ledger(Ledger::Audit { total }),
                    None => Program::Money(Money::Audit { total }),
                };
                Plan { kind, reads, writes: Vec::new(), predicate, program }
            }
            Move => {
                let percent = if self.random.chance(0.5) { 100 } else { self.random.between(1, 50) as i64 };
                let (total, records) = (self.workload.total(), self.draw_records(2));
                let first = records.iter().position(|record| *record == 0);
                let keys: Vec<Blob> = records.into_iter().map(|record| self.workload.key(record)).collect();
                let program = Program::Ledger(Ledger::Move { percent, first, total });
                Plan { kind, reads: keys.clone(), writes: keys, predicate: None, program }
            }
        }
    }

    /// A transaction over so many different keys: the first so many are read, and the first so many may be written.
    fn over(&mut self, kind: Kind, keys: usize, reads: usize, writes: usize, program: Program) -> Plan {
        let keys: Vec<Blob> =
            self.draw_records(keys).into_iter().map(|record| self.workload.key(record)).collect();
        let (reads, writes) = (keys[..reads].to_vec(), keys[..writes].to_vec());
        Plan { kind, reads, writes, predicate: None, program }
    }

    fn smallbank(&mut self, kind: Kind) -> Plan {
        // Sums are those of OLTP-Bench, cents.
        let (customers, program) = match kind {
            DepositChecking => (1, Money::Deposit(130)),
            TransactSavings => (1, Money::Savings(if self.random.chance(0.5) { 2_020 } else { -2_020 })),
            Amalgamate => (2, Money::Amalgamate),
            WriteCheck => (1, Money::Check(500)),
            SendPayment => (2, Money::Transfer(500)),
            _ => (1, Money::Balance),
        };
        let drawn = self.draw_records(customers);
        let savings = |at: usize| self.workload.account("savings", drawn[at]);
        let checking = |at: usize| self.workload.account("checking", drawn[at]);
        let (reads, writes) = match kind {
            DepositChecking => (vec![checking(0)], vec![checking(0)]),
            TransactSavings => (vec![savings(0)], vec![savings(0)]),
            Amalgamate => {
                let all = vec![savings(0), checking(0), checking(1)];
                (all.clone(), all)
            }
            WriteCheck => (vec![savings(0), checking(0)], vec![checking(0)]),
            SendPayment => {
                let both = vec![checking(0), checking(1)];
                (both.clone(), both)
            }
            _ => (vec![savings(0), checking(0)], Vec::new()),
        };
        Plan { kind, reads, writes, predicate: None, program: Program::Money(program) }
    }

    /// From so many keys up to four.
    fn few(&mut self, least: u64) -> usize {
        self.random.between(least, 4).min(self.workload.records) as usize
    }

    /// Different records (`specs/carousel.md` 8.18: drawn again until they are).
    fn draw_records(&mut self, count: usize) -> Vec<u64> {
        let count = count.min(usize::try_from(self.workload.records).unwrap_or(usize::MAX));
        let mut drawn: Vec<u64> = Vec::with_capacity(count);
        while drawn.len() < count {
            let record = self.draw_record();
            if !drawn.contains(&record) {
                drawn.push(record);
            }
        }
        drawn
    }

    fn draw_record(&mut self) -> u64 {
        let records = self.workload.records;
        match (&self.zipf, self.workload.keys) {
            (Some(zipf), _) => zipf.draw(&mut self.random),
            (None, Keys::Hotspot { share, records: hot })
                if hot < records && self.random.below(100) < u64::from(share) =>
            {
                self.random.below(hot)
            }
            (None, Keys::Hotspot { records: hot, .. }) if hot < records => {
                self.random.between(hot, records - 1)
            }
            _ => self.random.below(records),
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_store::versions::Version;
    use isochrone_transactions::Read;
    use std::collections::{BTreeMap, BTreeSet};

    fn drawn(name: &str, count: usize) -> Vec<Plan> {
        let mut session = Workload::named(name).expect(name).session(3, Random::seeded(11));
        (0..count).map(|_| session.draw()).collect()
    }

    fn nothing(keys: &[Blob]) -> Vec<Read> {
        keys.iter().map(|key| Read { key: key.clone(), value: None, version: Version::NONE }).collect()
    }

    #[test]
    fn retwis_has_its_published_shares_and_keys() {
        let plans = drawn("retwis", 20_000);
        let mut counts = BTreeMap::new();
        for plan in &plans {
            *counts.entry(plan.kind).or_insert(0u32) += 1;
            let expected = match plan.kind {
                AddUser => (1, 3),
                Follow => (2, 2),
                PostTweet => (3, 5),
                _ => (plan.reads.len().clamp(1, 10), 0),
            };
            assert_eq!((plan.reads.len(), plan.writes.len()), expected, "{plan:?}");
            assert!(plan.reads.iter().all(|key| key.len() == 16));
            assert!(plan.kind == LoadTimeline || plan.writes.starts_with(&plan.reads));
        }
        for (kind, share) in [(AddUser, 0.05), (Follow, 0.15), (PostTweet, 0.3), (LoadTimeline, 0.5)] {
            let found = f64::from(counts[&kind]) / 20_000.0;
            assert!((found - share).abs() < 0.015, "{kind}: {found} for {share}");
        }
        // specs/carousel.md 8.17.
        let keys: usize = plans.iter().map(|plan| plan.reads.len().max(plan.writes.len())).sum();
        assert!((keys as f64 / 20_000.0 - 4.7).abs() < 0.1, "{keys} keys in 20,000");
    }

    #[test]
    fn the_hottest_of_ten_million_keys_takes_its_share() {
        // specs/carousel.md 7.3: about 0.45 % of the accesses.
        let hot = Workload::named("ycsbt").expect("ycsbt").key(0);
        let plans = drawn("ycsbt", 20_000);
        let found = plans.iter().filter(|plan| plan.reads.contains(&hot)).count() as f64 / 80_000.0;
        assert!((found - 0.0045).abs() < 0.0008, "{found}");
        assert!(plans.iter().all(|plan| plan.reads.len() == 4 && plan.reads == plan.writes));
    }

    #[test]
    fn no_transaction_names_a_key_twice_and_no_two_write_one_value() {
        for name in Workload::names() {
            let mut written = BTreeSet::new();
            for (at, plan) in drawn(name, 3_000).iter().enumerate() {
                for keys in [&plan.reads, &plan.writes] {
                    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "{name}: {plan:?}");
                }
                for update in plan.updates(&nothing(&plan.reads), &format!("s3.{at}")).unwrap_or_default() {
                    assert!(plan.writes.contains(&update.key), "{name}: {plan:?}");
                    let value = update.value.expect("nothing is deleted");
                    assert!(written.insert(value.clone()), "{name}: {value:?}");
                }
            }
        }
    }

    #[test]
    fn the_same_seed_asks_the_same() {
        for name in Workload::names() {
            let workload = Workload::named(name).expect(name);
            let ask = |seed| {
                let mut session = workload.session(3, Random::seeded(seed));
                (0..200).map(|_| session.draw()).collect::<Vec<_>>()
            };
            assert_eq!(ask(1), ask(1), "{name}");
            assert_ne!(ask(1), ask(2), "{name}");
        }
    }

    #[test]
    fn smallbank_goes_mostly_to_its_hotspot() {
        let hot = |key: &Blob| {
            let text = String::from_utf8_lossy(key).into_owned();
            text.split(':').nth(1).and_then(|customer| customer.parse::<u64>().ok()).expect("a customer")
                < 1_000
        };
        let firsts: Vec<bool> = drawn("smallbank", 10_000).iter().map(|plan| hot(&plan.reads[0])).collect();
        let share = firsts.iter().filter(|hot| **hot).count() as f64 / firsts.len() as f64;
        assert!((share - 0.9).abs() < 0.015, "{share}");
    }

    #[test]
    fn the_end_of_a_checked_run_meets_every_key() {
        for (name, keys) in [("bank", 20), ("ledger", 16), ("txn-check", 100)] {
            let workload = Workload::named(name).expect(name);
            let [writes, reads] = &workload.closing()[..] else { panic!("{name}: two transactions") };
            assert_eq!((writes.writes.len(), reads.reads.len(), reads.writes.len()), (keys, keys, 0));
            let updates = writes.updates(&nothing(&writes.reads), "s0.1").expect("it writes");
            assert_eq!(updates.len(), keys);
            assert_eq!(reads.verify(&nothing(&reads.reads)), None);
        }
        assert!(Workload::named("retwis").expect("retwis").closing().is_empty());
    }

    #[test]
    fn an_unknown_name_is_told_what_there_is() {
        let error = Workload::named("tpcc").expect_err("no such workload").to_string();
        assert!(error.contains("`tpcc`") && error.contains("retwis, ycsbt"), "{error}");
    }

    #[test]
    fn a_run_over_more_keys_than_a_transaction_may_have_ends_without_one_over_all() {
        let mut workload = Workload::named("txn-check").unwrap();
        assert_eq!(workload.closing().len(), 2);
        workload.records = 10_000;
        assert!(workload.closing().is_empty());
    }
}
