//! What is asked of all keys of several stores while keys move between them, and whoever asks learns of it late.

use super::*;
use isochrone_core::command::Kind;
use isochrone_core::migration::{Move, Piece, Ring, Step, Stretch, Told};
use isochrone_core::{IntervalMap, KeyspaceId, PartitionId, Random};
use std::collections::BTreeMap;

const OF: u16 = 3;

fn ring(at: PartitionId) -> Ring {
    Ring { keyspace: KeyspaceId(3), partitions: OF, at }
}

/// Stores that share the keys, what is on its way between them, and what a client has heard of all that.
struct Many {
    stores: Vec<Store>,
    /// At most one move is under way from each.
    under_way: BTreeMap<PartitionId, (Move, Piece)>,
    heard: IntervalMap<u128, PartitionId>,
    random: Random,
}

impl Many {
    fn new(seed: u64) -> Many {
        let stores = vec![Store::default(); usize::from(OF)];
        let (under_way, heard) = (BTreeMap::new(), IntervalMap::default());
        Many { stores, under_way, heard, random: Random::seeded(seed) }
    }

    fn apply(&mut self, at: PartitionId, operation: Operation) -> Response {
        self.stores[usize::from(at.0)].apply(&command(1, operation))
    }

    fn step(&mut self, at: PartitionId, step: Step) -> Told {
        let command = Store::step(step, Stamp::ZERO).unwrap();
        Store::told(&self.stores[usize::from(at.0)].apply(&command)).unwrap().clone()
    }

    /// Begins to move something from there.
    fn begin(&mut self, from: PartitionId, to: PartitionId, stretch: Stretch) {
        let step = Step::Release { ring: ring(from), wish: Some((stretch, to)), done: 0 };
        match self.step(from, step) {
            Told::Leaving { of, piece, .. } => drop(self.under_way.insert(from, (of, piece))),
            told => assert_eq!(told, Told::Nothing),
        }
    }

    /// Ends what moves from there, and first what stands in its way.
    fn end(&mut self, from: PartitionId) {
        while let Some((of, piece)) = self.under_way.get(&from).cloned() {
            match self.step(of.to, Step::Install { ring: ring(of.to), of, piece }) {
                Told::Installed => {
                    self.step(from, Step::Release { ring: ring(from), wish: None, done: of.serial });
                    self.under_way.remove(&from);
                }
                Told::Busy => self.end(of.to),
                told => panic!("{told:?}"),
            }
        }
    }

    fn partition(&mut self) -> PartitionId {
        PartitionId(self.random.below(OF.into()) as u16)
    }

    /// Something happens between two shares.
    fn disturb(&mut self) {
        let (from, to) = (self.partition(), self.partition());
        if self.under_way.contains_key(&from) && self.random.chance(0.5) {
            self.end(from);
        }
        if from != to && !self.under_way.contains_key(&from) {
            let (first, length) = (self.random.below(u64::MAX), self.random.below(u64::MAX));
            self.begin(from, to, Stretch { first, last: first.saturating_add(length) });
        }
    }

    /// Who is asked about these places.
    fn shares(&self, scan: &Command, places: &[Stretch]) -> Vec<(PartitionId, Command)> {
        let mut served = BTreeMap::<PartitionId, Vec<Stretch>>::new();
        let owned = (0..OF).map(|at| (ring(PartitionId(at)).stretch(PartitionId(at)), PartitionId(at)));
        let owned: Vec<_> = owned.collect();
        for place in places {
            let heard = self.heard.runs(place.range()).map(|(run, at)| (Stretch::of(&run), *at));
            let gaps = self.heard.gaps(place.range()).map(|gap| Stretch::of(&gap));
            let gaps =
                gaps.flat_map(|gap| owned.iter().filter_map(move |(of, at)| Some((of.common(gap)?, *at))));
            for (stretch, at) in heard.chain(gaps) {
                served.entry(at).or_default().push(stretch);
            }
        }
        let share = |(at, mut served): (PartitionId, Vec<Stretch>)| {
            served.sort();
            Some((at, Store::share(scan, ring(at), &served)?))
        };
        served.into_iter().filter_map(share).collect()
    }

    /// What all come to, with disturbances between the shares.
    fn ask(&mut self, operation: Operation) -> Response {
        let scan = command(1, operation);
        let (mut open, mut replies) = (self.shares(&scan, &[Stretch::ALL]), Vec::new());
        while let Some((at, share)) = open.pop() {
            self.disturb();
            let reply = self.stores[usize::from(at.0)].apply(&share);
            for told in Store::missing(&reply) {
                let Told::Elsewhere { stretch, to, there, .. } = told else { panic!("{told:?}") };
                if *there {
                    self.heard.set(stretch.range(), *to);
                } else {
                    self.end(at);
                }
                open.extend(self.shares(&scan, &[*stretch]));
            }
            replies.push(reply);
        }
        Store::gather(&scan, OF, replies).unwrap()
    }

    fn page(&mut self, scan: Operation) -> (u64, Vec<Blob>) {
        match self.ask(scan) {
            Response::Scan { cursor, items } => (cursor, items),
            reply => panic!("{reply:?}"),
        }
    }

    fn scan(&mut self, count: u64, pattern: Option<&str>, kind: Option<Kind>) -> Vec<Blob> {
        let (mut cursor, mut found, mut pages) = (0, Vec::new(), 0);
        loop {
            let (next, items) =
                self.page(Operation::Scan { cursor, count, pattern: pattern.map(Blob::from), kind });
            assert!(next < 1 << 53, "a double does not hold {next}");
            found.extend(items);
            (cursor, pages) = (next, pages + 1);
            if cursor == 0 {
                return found;
            }
            assert!(pages < 10_000, "it does not end");
        }
    }
}

fn owner(key: &Blob) -> PartitionId {
    let ring = ring(PartitionId(0));
    ring.owner(ring.place(key))
}

/// Keys that are there throughout are listed, each once; keys that are gone before the scan never.
#[test]
fn a_scan_lists_what_stays_whatever_moves() {
    for seed in 0..60 {
        let mut many = Many::new(seed);
        let (mut stay, mut gone) = (Vec::new(), Vec::new());
        for number in 0..900 {
            let name = match number % 4 {
                // Several at one place of the ring.
                0 => format!("{{tag{}}}:{number}", number % 28),
                _ => format!("k{number}"),
            };
            let key = Blob::from(name);
            if number % 3 == 1 {
                many.apply(owner(&key), Operation::SAdd { key: key.clone(), members: names("m") });
            } else {
                many.apply(owner(&key), Operation::IncrBy { key: key.clone(), by: 1 });
            }
            if number % 9 == 8 { gone.push(key) } else { stay.push(key) }
        }
        for _ in 0..many.random.below(12) {
            many.disturb();
        }
        for key in &gone {
            let keys: Keys = [key.clone()].into();
            loop {
                let all = (0..OF).map(PartitionId);
                let all: Vec<_> =
                    all.map(|at| many.apply(at, Operation::Del { keys: Keys::clone(&keys) })).collect();
                if all.contains(&Response::Integer(1)) {
                    break;
                }
                (0..OF).for_each(|at| many.end(PartitionId(at)));
            }
        }
        let count = 1 + many.random.below(60);
        let mut found = many.scan(count, None, None);
        found.sort();
        stay.sort();
        assert!(found == stay, "seed {seed}: {} of {}", found.len(), stay.len());
        let mut sets = many.scan(count, Some("k*"), Some(Kind::Set));
        sets.sort();
        let number = |key: &Blob| std::str::from_utf8(key).unwrap()[1..].parse::<u32>().ok();
        let expected = stay.iter().filter(|key| number(key).is_some_and(|number| number % 3 == 1));
        assert!(sets.iter().eq(expected), "seed {seed}: {} sets", sets.len());
    }
}

/// Keys are counted and listed once each, and what is flushed is gone, wherever they are meanwhile.
#[test]
fn all_keys_are_all_keys_whatever_moves() {
    for seed in 0..60 {
        let mut many = Many::new(seed);
        let mut keys: Vec<Blob> = (0..400).map(|number| Blob::from(format!("k{number}"))).collect();
        for key in &keys {
            many.apply(owner(key), Operation::IncrBy { key: key.clone(), by: 1 });
        }
        keys.sort();
        for _ in 0..many.random.below(12) {
            many.disturb();
        }
        for _ in 0..5 {
            assert_eq!(many.ask(Operation::DbSize), Response::Integer(400), "seed {seed}");
            let Response::Array(found) = many.ask(Operation::Keys { pattern: Blob::from("*") }) else {
                panic!("seed {seed}")
            };
            let blob = |found| match found {
                Response::Bulk(key) => key,
                found => panic!("{found:?}"),
            };
            let mut found: Vec<Blob> = found.into_iter().map(blob).collect();
            found.sort();
            assert!(found == keys, "seed {seed}: {} of {}", found.len(), keys.len());
            let random = many.ask(Operation::RandomKey { seed });
            assert!(matches!(&random, Response::Bulk(key) if keys.contains(key)), "seed {seed}: {random:?}");
        }
        assert_eq!(many.ask(Operation::Flush), Response::Ok);
        (0..OF).for_each(|at| many.end(PartitionId(at)));
        let left: usize = many.stores.iter().map(Store::len).sum();
        assert_eq!(left, 0, "seed {seed}");
    }
}

/// Of the keys of the other parts that one store has, each page looks at a bounded number, and one that finds few goes on.
#[test]
fn a_store_that_has_everything_gives_full_pages_of_each_part() {
    let mut many = Many::new(1);
    let keys: Vec<Blob> = (0..6_000).map(|number| Blob::from(format!("k{number}"))).collect();
    for key in &keys {
        many.apply(owner(key), Operation::IncrBy { key: key.clone(), by: 1 });
    }
    for from in [1, 2].map(PartitionId) {
        while !many.stores[usize::from(from.0)].is_empty() {
            many.begin(from, PartitionId(0), Stretch::ALL);
            many.end(from);
        }
    }
    let page = |cursor, stretch| {
        let scan = Operation::Scan { cursor, count: 50, pattern: None, kind: None };
        let share = Store::share(&command(1, scan), ring(PartitionId(0)), &[stretch]).unwrap();
        match many.stores[0].read(&share) {
            Some(Response::Share(shared)) => match shared.response {
                Response::Scan { cursor, items } => (cursor, items, shared.missing),
                reply => panic!("{reply:?}"),
            },
            reply => panic!("{reply:?}"),
        }
    };
    for part in (0..OF).map(PartitionId) {
        let stretch = ring(part).stretch(part);
        let (_, items, missing) = page(part.0.into(), stretch);
        assert_eq!((items.len(), missing), (50, vec![]));
        assert!(items.iter().all(|key| owner(key) == part));
        // A place that has few keys or none.
        let narrow = Stretch { first: stretch.first, last: stretch.first + 1 };
        let (cursor, items, _) = page(part.0.into(), narrow);
        assert!(cursor > 0 && items.is_empty(), "{cursor} {items:?}");
        let behind = many.stores[0].keys.index_of(cursor << crate::keys::cursor_shift(OF));
        assert_eq!(behind, 500, "ten for each that was asked for");
    }
}
