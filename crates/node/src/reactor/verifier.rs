//! Passwords that wait to be checked, and the thread that checks them.
//!
//! A check takes tens of milliseconds of a core and 19 MiB, so there is one at a time, beside the loop. Whoever asks
//! meanwhile waits: networks take turns, so that a flood of wrong passwords from one costs the others a check each. A
//! password that was right is remembered for a while, and lets in all who show it: a fleet of clients that comes back
//! costs one check. Whoever asks the verifier sees to it that a network that guesses is told nothing at once; and beyond
//! some claims of it in a second each has its turn, also one of which a check tells nothing.

use super::clients::Recipient;
use crate::gateway::Secret;
use crate::redis::acl::network;
use crate::security::{self, Print};
use isochrone_core::deployment::User;
use isochrone_core::{Instant, Span};
use mio::Waker;
use ring::hmac;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, channel, sync_channel};

/// How long a password that was found right needs no check.
const REMEMBERED: Span = Span::from_secs(300);
/// Where so many claims of one network wait, it may be that they are guesses.
const FEW: usize = 5;
/// Claims of a network that may guess, in a second, that need no check and have none.
const EASED: u32 = 64;

/// Who wants to know.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Asker {
    /// A session.
    Session(Recipient),
    /// Calls.
    Calls(Party),
}

/// Calls from one network with the same user and password.
pub(crate) type Party = (IpAddr, Print);

/// What came of a claim.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct Verdict {
    pub asker: Asker,
    /// The network that it came from.
    pub from: IpAddr,
    pub accepted: bool,
    /// Whether that was known before the check.
    pub known: bool,
    /// Whether it is to be told late, whatever is known of the network: it had no check, where others wait for theirs.
    pub late: bool,
}

/// See the module's page.
pub struct Verifier {
    /// Drawn at the start and told to nobody: what is remembered is of no use without it.
    key: hmac::Key,
    /// Who waits, by network; none of the lines is empty.
    lines: BTreeMap<IpAddr, VecDeque<Claim>>,
    /// How long a line may be that calls join.
    line_max: usize,
    under_way: Option<Check>,
    /// Whose turn was the last.
    served: Option<IpAddr>,
    queue: SyncSender<(String, Secret)>,
    done: Receiver<bool>,
    /// For a user, the password that was right, and until when it is remembered. A user has one hash for as long as the
    /// node runs, so there is no more than one for each in the deployment file.
    known: BTreeMap<String, (Print, Instant)>,
    verdicts: VecDeque<Verdict>,
    checks: u64,
    /// By network that may guess, how many had no check in the second that began then.
    eased: (Instant, BTreeMap<IpAddr, u32>),
}

/// Somebody says to be this user.
pub(super) struct Claim {
    pub asker: Asker,
    pub user: String,
    pub password: Secret,
    /// Whether it is right, where that is known without a check. Then the check only takes the time that it takes.
    pub known: Option<bool>,
}

/// What the thread is busy with.
struct Check {
    asker: Asker,
    from: IpAddr,
    user: String,
    print: Print,
    known: Option<bool>,
}

impl Verifier {
    /// Starts the thread; it ends with the shard. Of calls as many as `line_max` may wait from one network.
    ///
    /// # Errors
    /// The operating system gave no thread, or no randomness.
    pub fn start(users: Vec<User>, line_max: usize, waker: Arc<Waker>) -> io::Result<Verifier> {
        let (queue, asked) = sync_channel::<(String, Secret)>(1);
        let (verdict, done) = channel();
        std::thread::Builder::new().name("passwords".into()).spawn(move || {
            for (user, password) in asked {
                if verdict.send(security::verify(&users, &user, &password)).is_err() {
                    return;
                }
                // A poll that is gone needs no waking.
                let _ = waker.wake();
            }
        })?;
        Ok(Verifier::of(security::draw_key()?, line_max, queue, done))
    }

    /// With a thread that is at the other end of these.
    pub(super) fn of(
        key: hmac::Key,
        line_max: usize,
        queue: SyncSender<(String, Secret)>,
        done: Receiver<bool>,
    ) -> Verifier {
        Verifier {
            key,
            lines: BTreeMap::new(),
            line_max,
            under_way: None,
            served: None,
            queue,
            done,
            known: BTreeMap::new(),
            verdicts: VecDeque::new(),
            checks: 0,
            eased: (Instant::ZERO, BTreeMap::new()),
        }
    }

    /// What tells this user and password from all others, to this life of this node.
    pub(super) fn print(&self, user: &str, password: &Secret) -> Print {
        security::print(&self.key, message(user, password).expose())
    }

    /// Takes up a claim from this address: [`Verifier::next`] has a verdict in time. False where it is one of calls, and too
    /// many wait already. A session is never refused: while it waits it sends nothing else. Of a network that is `suspect`,
    /// or of which many wait, what is known, right or wrong, has its verdict without a check, up to 64 in a second; else what is
    /// remembered.
    #[must_use]
    pub(super) fn ask(&mut self, claim: Claim, from: IpAddr, suspect: bool, now: Instant) -> bool {
        let from = network(from);
        let asker = claim.asker;
        let known = claim.known.is_some();
        let remembered = !known && self.remembers(&claim.user, &claim.password, now);
        let late = suspect || self.lines.get(&from).is_some_and(|line| line.len() >= FEW);
        let unchecked = match late {
            true => (known || remembered) && self.eases(from, now),
            false => remembered,
        };
        if unchecked {
            let accepted = claim.known.unwrap_or(true);
            self.verdicts.push_back(Verdict { asker, from, accepted, known, late });
            return true;
        }
        if matches!(asker, Asker::Calls(_)) && self.is_long(from) {
            return false;
        }
        self.lines.entry(from).or_default().push_back(claim);
        self.go_on();
        true
    }

    /// Whether one more of a network that may guess needs no check.
    fn eases(&mut self, from: IpAddr, now: Instant) -> bool {
        let (began, eased) = &mut self.eased;
        if now.since(*began) >= Span::from_secs(1) {
            *began = now;
            eased.clear();
        }
        let count = eased.entry(from).or_default();
        *count += 1;
        *count <= EASED
    }

    /// A right password came from this network: who waits only for the time that a check takes waits no more.
    pub(super) fn trust(&mut self, from: IpAddr) {
        let Some(line) = self.lines.get_mut(&from) else { return };
        let verdicts = &mut self.verdicts;
        line.retain(|claim| {
            let right = claim.known == Some(true);
            if right {
                verdicts.push_back(Verdict {
                    asker: claim.asker,
                    from,
                    accepted: true,
                    known: true,
                    late: false,
                });
            }
            !right
        });
        if line.is_empty() {
            self.lines.remove(&from);
        }
    }

    /// The next verdict, if there is one.
    pub(super) fn next(&mut self, now: Instant) -> Option<Verdict> {
        match self.done.try_recv() {
            Ok(accepted) => self.checked(accepted, now),
            Err(TryRecvError::Empty) => {}
            // Without the thread nobody can be let in.
            Err(TryRecvError::Disconnected) => self.checked(false, now),
        }
        self.verdicts.pop_front()
    }

    /// Whether there are verdicts already.
    pub(super) fn has_verdicts(&self) -> bool {
        !self.verdicts.is_empty()
    }

    /// Whether as many wait from the network of this address as calls may.
    pub(super) fn is_long(&self, from: IpAddr) -> bool {
        self.lines.get(&network(from)).is_some_and(|line| line.len() >= self.line_max)
    }

    /// A connection from this address waits no more. Its claim, where it did: no verdict on it will come.
    pub(super) fn leave(&mut self, connection: u64, from: IpAddr) -> Option<Claim> {
        let from = network(from);
        let line = self.lines.get_mut(&from)?;
        let its = |claim: &Claim| matches!(claim.asker, Asker::Session(to) if to.connection == connection);
        let claim = line.iter().position(its).and_then(|at| line.remove(at));
        if line.is_empty() {
            self.lines.remove(&from);
        }
        claim
    }

    /// Remembers nothing of this user.
    pub(super) fn forget(&mut self, user: &str) {
        self.known.remove(user);
    }

    /// How many passwords wait, beside the one that is being checked.
    pub(super) fn waiting(&self) -> usize {
        self.lines.values().map(VecDeque::len).sum()
    }

    /// How many were checked.
    pub(super) fn checks(&self) -> u64 {
        self.checks
    }

    fn remembers(&self, user: &str, password: &Secret, now: Instant) -> bool {
        let known = self.known.get(user).filter(|(_, until)| now < *until);
        // In constant time.
        known.is_some_and(|(print, _)| {
            hmac::verify(&self.key, message(user, password).expose(), print).is_ok()
        })
    }

    fn checked(&mut self, accepted: bool, now: Instant) {
        let Some(Check { asker, from, user, print, known }) = self.under_way.take() else { return };
        self.checks += 1;
        let right = known.unwrap_or(accepted);
        self.verdicts.push_back(Verdict {
            asker,
            from,
            accepted: right,
            known: known.is_some(),
            late: false,
        });
        if accepted && known.is_none() {
            self.known.insert(user.clone(), (print, now + REMEMBERED));
            self.let_in(&user, now);
        }
        self.go_on();
    }

    /// Has nobody wait who shows the password of this user that is now remembered.
    fn let_in(&mut self, user: &str, now: Instant) {
        let mut lines = std::mem::take(&mut self.lines);
        lines.retain(|from, line| {
            line.retain(|claim| {
                let asks = claim.user == user && claim.known.is_none();
                let known = asks && self.remembers(user, &claim.password, now);
                if known {
                    let verdict = Verdict {
                        asker: claim.asker,
                        from: *from,
                        accepted: true,
                        known: false,
                        late: false,
                    };
                    self.verdicts.push_back(verdict);
                }
                !known
            });
            !line.is_empty()
        });
        self.lines = lines;
    }

    /// Gives the thread the first claim of the network whose turn it is, where it has nothing to do.
    fn go_on(&mut self) {
        if self.under_way.is_some() {
            return;
        }
        let behind = self.served.map_or(Bound::Unbounded, Bound::Excluded);
        let next =
            self.lines.range((behind, Bound::Unbounded)).next().or_else(|| self.lines.first_key_value());
        let Some(from) = next.map(|(from, _)| *from) else { return };
        self.served = Some(from);
        let Some(line) = self.lines.get_mut(&from) else { return };
        let claim = line.pop_front();
        if line.is_empty() {
            self.lines.remove(&from);
        }
        let Some(Claim { asker, user, password, known }) = claim else { return };
        let print = self.print(&user, &password);
        // There is room for one; where the thread has ended, that is found when its verdict is asked for.
        let _ = self.queue.try_send((user.clone(), password));
        self.under_way = Some(Check { asker, from, user, print, known });
    }
}

/// A user and a password as one piece, of which no other pair can make the same.
fn message(user: &str, password: &Secret) -> Secret {
    let length = user.len() as u64;
    // In one allocation: none is left behind with a part of the password.
    Secret::new([&length.to_le_bytes(), user.as_bytes(), password.expose()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::Sender;

    /// A verifier whose thread is the test.
    struct World {
        verifier: Verifier,
        asked: Receiver<(String, Secret)>,
        verdict: Sender<bool>,
        now: Instant,
    }

    const HERE: &str = "192.0.2.1";
    const THERE: &str = "198.51.100.7";

    fn session(connection: u64) -> Asker {
        Asker::Session(Recipient { index: 0, connection, request: 1 })
    }

    fn claim(asker: Asker, password: &str) -> Claim {
        Claim { asker, user: "app".to_owned(), password: Secret::new(password.into()), known: None }
    }

    impl World {
        fn new() -> World {
            let (queue, asked) = sync_channel(1);
            let (verdict, done) = channel();
            let key = security::draw_key().unwrap();
            World { verifier: Verifier::of(key, 4, queue, done), asked, verdict, now: Instant::ZERO }
        }

        fn ask(&mut self, connection: u64, from: &str, password: &str) {
            let from = from.parse().unwrap();
            assert!(self.verifier.ask(claim(session(connection), password), from, false, self.now));
        }

        fn call(&mut self, password: &str) -> bool {
            let (from, secret) = (HERE.parse().unwrap(), Secret::new(password.into()));
            let party = (from, self.verifier.print("app", &secret));
            self.verifier.ask(claim(Asker::Calls(party), password), from, false, self.now)
        }

        /// The connections that have verdicts.
        fn told(&mut self) -> Vec<(u64, bool)> {
            let verdicts = std::iter::from_fn(|| self.verifier.next(self.now));
            let told = |verdict: Verdict| match verdict.asker {
                Asker::Session(to) => (to.connection, verdict.accepted),
                Asker::Calls(_) => (0, verdict.accepted),
            };
            verdicts.map(told).collect()
        }

        /// The thread finds the password right that is `right`. Which it was given.
        fn check(&mut self, right: &str) -> String {
            let (user, password) = self.asked.try_recv().expect("something to check");
            assert_eq!(user, "app");
            self.verdict.send(password.expose() == right.as_bytes()).unwrap();
            String::from_utf8(password.expose().to_vec()).unwrap()
        }

        fn is_idle(&self) -> bool {
            self.asked.try_recv().is_err()
        }
    }

    #[test]
    fn whoever_comes_while_one_is_checked_waits_however_many_they_are() {
        let mut world = World::new();
        for connection in 1..=500 {
            world.ask(connection, HERE, &format!("guess {connection}"));
        }
        assert_eq!(world.told(), []);
        assert_eq!(world.verifier.waiting(), 499);
        for connection in 1..=500 {
            assert_eq!(world.check("secret"), format!("guess {connection}"));
            assert!(world.is_idle(), "one at a time");
            assert_eq!(world.told(), [(connection, false)]);
        }
        assert_eq!((world.verifier.waiting(), world.verifier.checks()), (0, 500));
        assert!(world.is_idle());
    }

    #[test]
    fn a_fleet_with_one_password_costs_one_check() {
        let mut world = World::new();
        for connection in 1..=10_000 {
            world.ask(connection, if connection % 2 == 0 { HERE } else { THERE }, "secret");
        }
        world.check("secret");
        let mut told = world.told();
        told.sort();
        assert_eq!(told, (1..=10_000).map(|connection| (connection, true)).collect::<Vec<_>>());
        assert!(world.is_idle());
        // And those that come later, as long as it is remembered.
        world.now = Instant::from_nanos(REMEMBERED.as_nanos() - 1);
        world.ask(10_001, THERE, "secret");
        assert!(world.verifier.has_verdicts());
        assert_eq!(world.told(), [(10_001, true)]);
        assert!(world.is_idle());
        world.now = Instant::ZERO + REMEMBERED;
        world.ask(10_002, THERE, "secret");
        assert_eq!(world.told(), []);
        assert_eq!(world.check("secret"), "secret");
        assert_eq!(world.told(), [(10_002, true)]);
    }

    #[test]
    fn a_wrong_password_is_checked_each_time_also_beside_one_that_is_remembered() {
        let mut world = World::new();
        world.ask(1, HERE, "secret");
        world.ask(2, HERE, "guess");
        world.check("secret");
        assert_eq!(world.told(), [(1, true)]);
        for connection in 2..5 {
            assert_eq!(world.check("secret"), "guess");
            assert_eq!(world.told(), [(connection, false)]);
            world.ask(connection + 1, HERE, "guess");
        }
        // The password of one user is not that of another.
        let from = HERE.parse().unwrap();
        let other = || ("other".to_owned(), Secret::new(b"secret".to_vec()));
        let claim = Claim { user: "other".to_owned(), ..claim(session(9), "secret") };
        assert!(world.verifier.ask(claim, from, false, world.now));
        world.check("secret");
        assert_eq!(world.told(), [(5, false)]);
        assert_eq!(world.asked.try_recv().ok(), Some(other()));
    }

    #[test]
    fn networks_take_turns() {
        let mut world = World::new();
        for connection in 1..=100 {
            world.ask(connection, HERE, &format!("guess {connection}"));
        }
        world.ask(101, THERE, "typo");
        world.ask(102, THERE, "secret");
        // From the neighbourhood of the first, as is any address of the same 64 bits.
        world.ask(103, "2001:db8::1", "a");
        world.ask(104, "2001:db8::ffff:2", "b");
        world.ask(105, "::ffff:192.0.2.1", "c");
        let order: Vec<_> = std::iter::from_fn(|| {
            let given = (world.verifier.under_way.is_some()).then(|| world.check("secret"));
            world.told();
            given
        })
        .collect();
        let first = ["guess 1", "typo", "a", "guess 2", "secret", "b", "guess 3", "guess 4"];
        assert_eq!(order[..8], first);
        assert_eq!((order.len(), order[104].as_str()), (105, "c"));
    }

    #[test]
    fn what_is_forgotten_is_checked_again() {
        let mut world = World::new();
        world.ask(1, HERE, "secret");
        world.check("secret");
        assert_eq!(world.told(), [(1, true)]);
        world.verifier.forget("app");
        world.ask(2, HERE, "secret");
        assert_eq!(world.told(), []);
        // By now it is another.
        world.check("changed");
        assert_eq!(world.told(), [(2, false)]);
        world.ask(3, HERE, "changed");
        world.check("changed");
        world.ask(4, HERE, "secret");
        assert_eq!(world.told(), [(3, true)]);
        world.check("changed");
        assert_eq!(world.told(), [(4, false)]);
    }

    #[test]
    fn whoever_has_gone_costs_no_check() {
        let mut world = World::new();
        for connection in 1..=3 {
            world.ask(connection, HERE, &format!("guess {connection}"));
        }
        assert!(world.verifier.leave(2, HERE.parse().unwrap()).is_some());
        assert!(world.verifier.leave(1, HERE.parse().unwrap()).is_none(), "it is being checked");
        assert!(world.verifier.leave(3, THERE.parse().unwrap()).is_none());
        assert_eq!(world.check("secret"), "guess 1");
        assert_eq!(world.told(), [(1, false)]);
        assert_eq!(world.check("secret"), "guess 3");
        assert_eq!(world.told(), [(3, false)]);
        assert_eq!(world.verifier.waiting(), 0);
    }

    #[test]
    fn of_a_network_that_guesses_what_is_known_needs_no_check_up_to_a_number() {
        let mut world = World::new();
        world.ask(1, HERE, "secret");
        world.check("secret");
        assert_eq!(world.told(), [(1, true)]);
        let from = HERE.parse().unwrap();
        let ask = |world: &mut World, connection, known| {
            let claim = Claim { known, ..claim(session(connection), "secret") };
            assert!(world.verifier.ask(claim, from, true, world.now));
        };
        for connection in (2..).step_by(3).take(22) {
            ask(&mut world, connection, None);
            ask(&mut world, connection + 1, Some(true));
            ask(&mut world, connection + 2, Some(false));
        }
        // The last two are beyond the number, and wait for checks that tell nothing.
        let told = world.told();
        assert_eq!(told.len(), 64);
        assert!(told.iter().all(|(connection, right)| (connection % 3 != 1) == *right));
        world.check("another");
        assert_eq!(world.told(), [(66, true)]);
        world.check("another");
        assert_eq!(world.told(), [(67, false)]);
        // In the next second as many more; and once it is trusted, those that are right wait no more.
        for connection in 100..170 {
            ask(&mut world, connection, Some(true));
        }
        assert_eq!(world.told(), []);
        world.now = world.now + Span::from_secs(1);
        for connection in 200..270 {
            ask(&mut world, connection, Some(true));
        }
        assert_eq!(world.told().len(), 64);
        world.verifier.trust(network(from));
        assert_eq!(world.told().len(), 70 + 6 - 1, "all but the one that is being checked");
        world.check("another");
        assert_eq!(world.told(), [(100, true)]);
        // What is remembered is told late where many wait of whom nothing is known yet.
        world.now = world.now + Span::from_secs(1);
        for connection in 10..16 {
            world.ask(connection, HERE, "guess");
        }
        world.ask(16, HERE, "secret");
        world.ask(17, THERE, "secret");
        let verdicts = std::iter::from_fn(|| world.verifier.next(world.now));
        let late: Vec<(bool, bool)> = verdicts.map(|verdict| (verdict.accepted, verdict.late)).collect();
        assert_eq!(late, [(true, true), (true, false)]);
    }

    #[test]
    fn calls_beyond_their_bound_are_told_but_not_those_with_a_password_that_is_remembered() {
        let mut world = World::new();
        assert!(world.call("secret"));
        world.check("secret");
        assert_eq!(world.told(), [(0, true)]);
        let room: Vec<_> = (0..6).map(|guess| world.call(&format!("guess {guess}"))).collect();
        // One is being checked, and four wait.
        assert_eq!(room, [true, true, true, true, true, false]);
        assert!(world.call("secret"));
        assert_eq!(world.told(), [(0, true)]);
        world.ask(1, HERE, "a session always waits");
        assert_eq!(world.verifier.waiting(), 5);
        world.check("secret");
        assert_eq!(world.told(), [(0, false)]);
    }

    #[test]
    fn what_is_remembered_is_of_no_use_to_another_life_of_the_node() {
        let (one, other) = (World::new().verifier, World::new().verifier);
        let secret = Secret::new(b"secret".to_vec());
        assert_ne!(one.print("app", &secret), other.print("app", &secret));
        assert_ne!(one.print("app", &secret), one.print("appsecret", &Secret::new(Vec::new())));
    }

    #[test]
    fn without_the_thread_nobody_is_let_in_and_nobody_waits_for_ever() {
        let mut world = World::new();
        world.ask(1, HERE, "secret");
        world.ask(2, HERE, "secret");
        drop(std::mem::replace(&mut world.verdict, channel().0));
        assert_eq!(world.told(), [(1, false), (2, false)]);
    }
}
