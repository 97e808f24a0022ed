//! A key moves between two partitions, there and back, while clients count, records of what they asked lie in witnesses
//! or come late, and masters crash (T33, T39): everything is executed once, where its key is.
//!
//! Each partition is a world of its own. What its master executes is a machine that refuses keys that have gone, as
//! the store does; the driver that moves and the clients that are sent elsewhere are played here.

use super::actor::{Count, ELSEWHERE};
use super::script::Play;
use isochrone_core::{Blob, Span};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The key that moves; all others stay with the first partition.
const KEY: u8 = 1;

/// What may be planted here; what is planted in servers goes by its name.
#[derive(Copy, Clone, Default)]
struct Bugs {
    /// A source serves a key that it has released: also what it finds with a witness.
    serves_released: bool,
    /// A client that is not answered asks elsewhere, without having been told to.
    asks_in_doubt: bool,
}

fn release(serves: bool) -> Count {
    Count::Release { key: Blob::from(vec![KEY]), serves }
}

#[derive(Clone)]
struct Pair {
    plays: [Play; 2],
    bugs: Bugs,
    /// What each client is to add to.
    plans: Vec<VecDeque<u8>>,
    /// Where each asks first for the key that moves, and what it has asked where.
    routes: Vec<usize>,
    open: Vec<Option<(u8, usize)>>,
    /// Moves that are to come, how many were begun, and what was released and not installed.
    moves: VecDeque<usize>,
    begun: usize,
    step: Option<(usize, Option<u64>)>,
    serves: usize,
    planned: BTreeMap<u8, u64>,
    counted: BTreeSet<(u8, u64)>,
    /// How many were sent elsewhere by each.
    redirected: [u64; 2],
}

impl Pair {
    fn new(plans: &[&[u8]], moves: usize, bugs: Bugs, bug: Option<&str>) -> Pair {
        let clients = plans.len();
        let play = || {
            // One more, who moves.
            Play::new(3, 1, vec![Vec::new(); clients + 1], bug, |parameters, _| {
                parameters.sync_delay = Span::from_millis(20);
            })
        };
        let mut pair = Pair {
            plays: [play(), play()],
            bugs,
            plans: plans.iter().map(|plan| plan.iter().copied().collect()).collect(),
            routes: vec![0; clients],
            open: vec![None; clients],
            moves: (0..moves).map(|number| number % 2).collect(),
            begun: 0,
            step: None,
            serves: 0,
            planned: BTreeMap::new(),
            counted: BTreeSet::new(),
            redirected: [0; 2],
        };
        for key in plans.iter().flat_map(|plan| plan.iter()) {
            *pair.planned.entry(*key).or_default() += 1;
        }
        // It is the first that serves the key.
        pair.plays[1].plans[clients].push_back(release(false));
        pair.plays[1].until("the beginning", Play::is_done);
        pair
    }

    /// What a client has been answered last at a partition, if it waits for nothing there.
    fn answer(&self, at: usize, client: usize) -> Option<u64> {
        let play = &self.plays[at];
        let waits = !play.plans[client].is_empty() || play.clients[client].asked.is_some();
        (!waits).then(|| play.clients[client].last.unwrap().0)
    }

    fn ask(&mut self, client: usize, key: u8, at: usize) {
        self.open[client] = Some((key, at));
        self.plays[at].plans[client].push_back(Count::add(key));
    }

    fn tick(&mut self) -> Result<(), String> {
        for play in &mut self.plays {
            play.turn();
            if let Some(text) = play.broken.take() {
                return Err(text);
            }
        }
        self.drive();
        for client in 0..self.plans.len() {
            let Some((key, at)) = self.open[client] else {
                if let Some(key) = self.plans[client].pop_front() {
                    let at = if key == KEY { self.routes[client] } else { 0 };
                    self.ask(client, key, at);
                }
                continue;
            };
            match self.answer(at, client) {
                None if self.bugs.asks_in_doubt && key == KEY && self.serves != at && self.step.is_none() => {
                    self.plays[at].clients[client].asked = None;
                    self.plays[at].plans[client].clear();
                    self.ask(client, key, 1 - at);
                }
                None => {}
                Some(ELSEWHERE) => {
                    self.redirected[at] += 1;
                    self.routes[client] = 1 - at;
                    self.ask(client, key, 1 - at);
                }
                Some(count) => {
                    self.open[client] = None;
                    if !self.counted.insert((key, count)) {
                        return Err(format!("two were told that k{key} counts {count}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Moves the key, step by step.
    fn drive(&mut self) {
        let mover = self.plans.len();
        match self.step {
            None => {
                // Not one upon the other.
                let due = self.counted.len() > 1 + 3 * self.begun;
                let Some(from) = self.moves.pop_front_if(|_| due) else { return };
                self.begun += 1;
                let release = release(self.bugs.serves_released);
                self.plays[from].plans[mover].push_back(release);
                self.step = Some((from, None));
            }
            Some((from, None)) => {
                let Some(count) = self.answer(from, mover) else { return };
                let install = Count::Install { key: Blob::from(vec![KEY]), count };
                self.plays[1 - from].plans[mover].push_back(install);
                self.step = Some((from, Some(count)));
            }
            Some((from, Some(count))) => {
                if let Some(installed) = self.answer(1 - from, mover) {
                    assert_eq!(installed, count);
                    (self.step, self.serves) = (None, 1 - from);
                }
            }
        }
    }

    fn is_done(&self) -> bool {
        let open = self.open.iter().any(Option::is_some) || self.plans.iter().any(|plan| !plan.is_empty());
        !open && self.moves.is_empty() && self.step.is_none()
    }

    fn comes(&mut self, is: impl Fn(&Pair) -> bool) -> Result<(), String> {
        for _ in 0..40_000 {
            if is(self) {
                return Ok(());
            }
            self.tick()?;
        }
        Err("Stuck".to_owned())
    }

    /// A witness of the copy that is to be the master hears once more what it was told, from this on in time.
    fn tell_again(&mut self, at: usize, first: usize) {
        let play = &mut self.plays[at];
        let mut told = play.told_twice.clone().unwrap_or_default();
        told.retain(|(_, to, _)| to.node.0 == 1);
        let count = told.len().max(1);
        told.rotate_left(first % count);
        for (from, to, message) in told {
            play.deliver(from, to, message);
        }
        let servers = play.servers.len();
        (0..2 * servers).for_each(|at| play.flush(at));
        // Nobody hears what becomes of it.
        play.net.retain(|(from, to, _)| from.node.0 != 1 || to.node.0 < 100);
    }

    fn crash(&mut self, at: usize) {
        self.plays[at].lose([0], [0]);
        self.plays[at].lead(1, [2]);
    }

    /// Goes on until all is answered and moved; each copy has what it should.
    fn ends_well(&mut self) -> Result<(), String> {
        self.comes(Pair::is_done)?;
        for play in &mut self.plays {
            play.pass(Span::from_millis(400));
            if let Some(text) = play.broken.take() {
                return Err(text);
            }
        }
        for (at, play) in self.plays.iter().enumerate() {
            let now = play.registry.committed.clone().unwrap();
            for node in now.copies.iter().chain([&now.master]).filter(|node| !play.is_lost(node.0)) {
                let counts = &play.servers[usize::from(node.0)].process.machine().0;
                for (key, planned) in &self.planned {
                    let here = if *key == KEY { self.serves == at } else { at == 0 };
                    let (count, due) = (counts.get(key).copied(), here.then_some(*planned));
                    if count != due {
                        return Err(format!("{node} of partition {at} has {count:?} of k{key}, not {due:?}"));
                    }
                }
            }
        }
        Ok(())
    }

    fn count(&self, name: &str) -> u64 {
        self.plays.iter().map(|play| play.count(name)).sum()
    }
}

#[derive(Default, Debug)]
struct Tally {
    runs: u64,
    replayed: u64,
    redirected: u64,
}

/// A master of this partition crashes at every boundary between two messages of moves there and back; before that, the
/// witness that is replayed is told once more what it ever was. One client's first words are all lost, so that its
/// records lie with witnesses and with nobody else.
fn sweep(at: usize, bugs: Bugs, bug: Option<&str>) -> Result<Tally, String> {
    let plans: [&[u8]; 3] =
        [&[KEY, 2, KEY, KEY, 3, KEY, KEY], &[3, KEY, KEY, 2, KEY], &[KEY, 4, KEY, KEY, KEY]];
    let mut before = Pair::new(&plans, 3, bugs, bug);
    for play in &mut before.plays {
        play.told_twice = Some(Vec::new());
        play.muted.insert(2);
    }
    let mut tally = Tally::default();
    for turn in 0..1_000 {
        let mut pair = before.clone();
        if turn % 2 == 0 {
            pair.tell_again(at, turn / 2);
        }
        pair.crash(at);
        pair.ends_well().map_err(|text| format!("turn {turn}: {text}"))?;
        tally.runs += 1;
        tally.replayed += pair.count("requests_replayed");
        tally.redirected += pair.redirected.iter().sum::<u64>();
        if before.is_done() {
            return Ok(tally);
        }
        before.tick()?;
    }
    Err("Stuck".to_owned())
}

/// T33 and T39, at every boundary.
#[test]
fn moves_there_and_back_hold_whoever_crashes() {
    for at in 0..2 {
        let tally = sweep(at, Bugs::default(), None).unwrap();
        println!("partition {at}: {tally:?}");
        assert!(tally.runs > 100 && tally.replayed > tally.runs / 4, "{tally:?}");
        assert!(tally.redirected > tally.runs, "{tally:?}");
    }
}

/// T33: its client is gone, and only the witness of the source has heard of it. The key moves; then the master crashes.
fn orphan_of_a_key_that_has_gone(bugs: Bugs) -> Result<u64, String> {
    let mut pair = Pair::new(&[&[KEY, KEY]], 1, bugs, None);
    pair.planned.insert(KEY, 2);
    pair.comes(|pair| pair.serves == 1)?;
    pair.comes(Pair::is_done)?;
    // Its client has not heard of the move, and its word to the master is lost.
    let play = &mut pair.plays[0];
    play.muted.insert(0);
    play.begin(0, Count::add(KEY));
    play.attempt(0, true, Span::from_secs(3_600));
    play.pass(Span::from_millis(30));
    play.clients[0].asked = None;
    pair.crash(0);
    pair.plays[0].comes(|play| play.registry.next.is_none())?;
    let replayed = pair.count("requests_replayed");
    pair.ends_well()?;
    Ok(replayed)
}

#[test]
fn what_is_found_with_a_witness_is_not_executed_where_its_key_has_gone() {
    assert_eq!(orphan_of_a_key_that_has_gone(Bugs::default()), Ok(1));
    let bugs = Bugs { serves_released: true, ..Bugs::default() };
    let text = orphan_of_a_key_that_has_gone(bugs).unwrap_err();
    assert!(text.contains("of partition 0 has Some(1) of k1, not None"), "{text}");
}

/// T39: the key goes and comes back. Meanwhile the source has refused a command, which was executed where the key was;
/// then its record comes late to a witness of the source, or had been executed there before the key went. In neither
/// case may a recovery execute it when the key is back.
fn late_record(refused: bool, bug: Option<&str>) -> Result<(u64, u64), String> {
    let plan: &[u8] = if refused { &[2, 3, KEY, 2, 3, KEY, 2] } else { &[KEY, KEY, 2, 3, 2, 3] };
    let mut pair = Pair::new(&[plan], 2, Bugs::default(), bug);
    for play in &mut pair.plays {
        play.told_twice = Some(Vec::new());
    }
    pair.comes(Pair::is_done)?;
    // All of it is with the copies, and forgotten by witnesses.
    pair.plays.iter_mut().for_each(|play| play.pass(Span::from_millis(200)));
    let told = pair.plays[0].told_twice.clone().unwrap_or_default();
    let last = told.iter().filter(|(_, to, _)| to.node.0 == 1).count();
    assert_eq!(pair.redirected[0] > 0, refused, "{:?}", pair.redirected);
    for first in 0..last {
        let mut again = pair.clone();
        again.tell_again(0, first);
        again.crash(0);
        again.plays[0].comes(|play| play.registry.next.is_none())?;
        again.ends_well().map_err(|text| format!("record {first} of {last}: {text}"))?;
        if first + 1 == last {
            return Ok((again.count("requests_replayed"), again.redirected[0]));
        }
    }
    Err("no records".to_owned())
}

#[test]
fn what_was_refused_or_executed_once_is_not_executed_when_its_key_is_back() {
    for refused in [true, false] {
        let (replayed, redirected) = late_record(refused, None).unwrap();
        assert!(replayed > 0, "{replayed} replayed, {redirected} redirected");
        let text = late_record(refused, Some("execute-forgotten")).unwrap_err();
        assert!(text.contains("not Some("), "{text}");
    }
}

#[test]
fn without_a_guard_moves_lose_or_double() {
    let serves = Bugs { serves_released: true, ..Bugs::default() };
    let doubts = Bugs { asks_in_doubt: true, ..Bugs::default() };
    let cases: [(&str, Bugs, Option<&str>); 4] = [
        ("serves released keys", serves, None),
        ("asks in doubt", doubts, None),
        ("execute-forgotten", Bugs::default(), Some("execute-forgotten")),
        ("skip-replay", Bugs::default(), Some("skip-replay")),
    ];
    let mut missed = Vec::new();
    for (what, bugs, bug) in cases {
        match std::panic::catch_unwind(|| sweep(0, bugs, bug)) {
            Ok(Err(text)) if !text.contains("Stuck") => println!("{what:<24} {text}"),
            Err(_) => println!("{what:<24} an invariant failed"),
            Ok(other) => missed.push((what, other)),
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
