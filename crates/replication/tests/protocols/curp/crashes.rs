//! The master crashes, and with it as many others as may, at every boundary between two messages (T24 to T26, T30,
//! T36). What the guards are for shows where a guard is taken away.

use super::actor::{Count, Wired, process};
use super::script::Play;
use super::world::request;
use isochrone_core::{NodeId, Process as _, ProcessId, Span};
use isochrone_replication::curp::primary::{MANAGER, Message as Spoken, WITNESS};
use isochrone_replication::message::Message;
use isochrone_replication::{CLIENT, REPLICA};

/// Three clients: what conflicts, what does not, and reads; on one key and on two, and what fails where a count is odd.
fn plans() -> Vec<Vec<Count>> {
    let (add, read, both, add_if) = (Count::add, Count::read, Count::add_both, Count::add_if);
    vec![
        vec![add(1), both(1, 2), add_if(3, 1), add(3), read(2), add_if(1, 2)],
        vec![add(3), read(1), add_if(2, 4), both(4, 3), add(4)],
        vec![both(5, 6), add_if(5, 6), add(1), add_if(6, 5)],
    ]
}

/// Who keeps requests: witnesses of their own, or the servers.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Form {
    Usual,
    Unified,
}
use Form::{Unified, Usual};

fn play(f: u16, delay: u64, bug: Option<&str>, form: Form) -> Play {
    Play::new(2 * f + 1, f, plans(), bug, |parameters, _| {
        parameters.unified = form == Unified;
        parameters.sync_delay = Span::from_millis(delay);
    })
}

/// What becomes of the old master.
#[derive(Copy, Clone, Debug)]
enum Old {
    /// It is gone.
    Lost,
    /// It goes on, and hears of nothing for a while.
    Deaf,
    /// It hears nothing of managers.
    Unaware,
}

/// At every so many boundaries the master is given up, and `f - 1` backups and `f - 1` witnesses are lost, in every
/// combination; a backup that is a witness itself survives whole. The first thing that breaks.
fn sweep(f: u16, every: usize, old: Old, bug: Option<&str>, form: Form) -> Result<usize, String> {
    let mut runs = 0;
    for delay in [0, 20] {
        let mut before = play(f, delay, bug, form);
        for turn in 0.. {
            if before.is_done() {
                break;
            }
            if turn % every == 0 {
                for (backup, witness) in (1..=f).flat_map(|backup| (1..=f).map(move |w| (backup, w))) {
                    if form == Unified && backup != witness {
                        continue;
                    }
                    runs += 1;
                    let mut play = before.clone();
                    match old {
                        Old::Lost => play.lose([0], [0]),
                        Old::Deaf | Old::Unaware => {
                            play.deaf = Some((NodeId(0), play.now + Span::from_millis(600)));
                            play.hears_servers = matches!(old, Old::Unaware);
                        }
                    }
                    play.lose((1..=f).filter(|n| *n != backup), (1..=f).filter(|n| *n != witness));
                    play.lead(backup, f + 1..=2 * f);
                    play.ends_well().map_err(|text| {
                        format!("delay {delay}, turn {turn}, backup {backup}, witness {witness}: {text}")
                    })?;
                }
            }
            before.turn();
        }
    }
    Ok(runs)
}

#[track_caller]
fn holds(result: Result<usize, String>, least: usize) {
    let runs = result.unwrap();
    assert!(runs >= least, "{runs} runs");
}

/// T24, T25 with one failure.
#[test]
fn a_crash_of_the_master_at_any_boundary_loses_nothing() {
    holds(sweep(1, 1, Old::Lost, None, Usual), 200);
}

/// T25.
#[test]
fn of_two_and_three_copies_all_but_one_backup_and_one_witness_may_be_lost() {
    holds(sweep(2, 1, Old::Lost, None, Usual), 500);
    holds(sweep(3, 5, Old::Lost, None, Usual), 200);
}

/// T29: the old master lives, and ends what it began while the new one begins.
#[test]
fn an_old_master_that_goes_on_gets_nothing_past_the_new_one() {
    for old in [Old::Deaf, Old::Unaware] {
        holds(sweep(1, 1, old, None, Usual), 100);
        holds(sweep(2, 3, old, None, Usual), 100);
    }
}

/// T34 at every boundary: a copy survives whole, as backup and witness, or not at all.
#[test]
fn one_node_that_is_backup_and_witness_is_enough_at_any_boundary() {
    holds(sweep(1, 1, Old::Lost, None, Unified), 150);
    holds(sweep(2, 1, Old::Lost, None, Unified), 200);
    holds(sweep(3, 5, Old::Lost, None, Unified), 50);
    for old in [Old::Deaf, Old::Unaware] {
        holds(sweep(1, 1, old, None, Unified), 100);
        holds(sweep(2, 3, old, None, Unified), 40);
    }
}

/// Each guard, taken away, is missed at some boundary.
#[test]
fn without_a_guard_some_boundary_breaks() {
    let cases = [
        ("skip-replay", 1, 1, Old::Lost, Usual),
        ("sync-on-one", 2, 1, Old::Lost, Usual),
        ("collect-early", 1, 1, Old::Lost, Usual),
        ("accept-after-recovery", 1, 1, Old::Deaf, Usual),
        ("accept-old-epochs", 1, 1, Old::Unaware, Usual),
        ("skip-replay", 1, 1, Old::Lost, Unified),
        ("sync-on-one", 2, 1, Old::Lost, Unified),
        ("accept-after-recovery", 1, 1, Old::Deaf, Unified),
        ("accept-old-epochs", 1, 1, Old::Unaware, Unified),
    ];
    let mut missed = Vec::new();
    for (bug, f, every, old, form) in cases {
        match std::panic::catch_unwind(|| sweep(f, every, old, Some(bug), form)) {
            Ok(Err(text)) if !text.contains("Stuck") => println!("{bug:<24} {text}"),
            Err(_) => println!("{bug:<24} an invariant failed"),
            Ok(other) => missed.push((bug, other)),
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

/// T26: no witness can be reached, and nobody is served; then one can.
fn without_witnesses(bug: Option<&str>) -> Result<(), String> {
    let mut before = play(2, 20, bug, Usual);
    for turn in 0.. {
        if before.is_done() {
            return Ok(());
        }
        if turn % 7 == 0 {
            let mut play = before.clone();
            play.lose([0], [0, 1, 2]);
            play.lead(1, [3, 4]);
            let (answered, reign) = (play.answered(), play.registry.committed.clone());
            play.pass(Span::from_millis(100));
            // What was on its way has come.
            let on_its_way = play.answered();
            assert!(on_its_way <= answered + play.clients.len());
            play.pass(Span::from_secs(3));
            if play.answered() != on_its_way || play.registry.committed != reign {
                return Err(format!("turn {turn}: somebody serves what it may not know whole"));
            }
            let back = 1 + (turn / 7 % 2) as u16;
            play.gone.remove(&process(back, WITNESS));
            play.ends_well().map_err(|text| format!("turn {turn}, witness {back}: {text}"))?;
        }
        before.turn();
    }
    Ok(())
}

#[test]
fn while_no_witness_can_be_reached_nobody_is_served_and_nothing_is_lost() {
    without_witnesses(None).unwrap();
    let text = without_witnesses(Some("serve-without-witness")).unwrap_err();
    assert!(!text.contains("Stuck"), "{text}");
}

/// T30: who recovers crashes too, after each message, and is lost or comes back.
#[test]
fn whoever_recovers_may_crash_at_any_boundary() {
    let mut runs = 0;
    let cases = [(20, false), (45, false), (45, true), (90, true)];
    for (form, (start, comes_back)) in
        [Usual, Unified].into_iter().flat_map(|form| cases.map(|case| (form, case)))
    {
        let mut before = play(2, 20, None, form);
        (0..start).for_each(|_| before.turn());
        before.lose([0], [0]);
        before.lead(1, [3, 4]);
        for turn in 0..400 {
            if before.is_done() {
                break;
            }
            runs += 1;
            let mut play = before.clone();
            match comes_back {
                true => play.restart_server(1),
                false => play.lose([1], [1]),
            }
            play.recover(2);
            let ended = play.ends_well();
            assert_eq!(
                ended,
                Ok(()),
                "{form:?}, begun at {start}, crashed at {turn}, comes back: {comes_back}"
            );
            before.turn();
        }
    }
    assert!(runs > 800, "{runs}");
}

/// T30 with three failures: whoever recovers crashes at any boundary, among copies that were so before and have what it
/// sent or not, and so does whoever recovers behind it.
#[test]
fn so_may_whoever_recovers_behind_it() {
    for (form, start) in [(Usual, 45), (Unified, 90)] {
        let mut runs = 0;
        let mut first = Play::new(7, 3, plans(), None, |parameters, _| {
            (parameters.unified, parameters.lease) = (form == Unified, false);
            parameters.sync_delay = Span::from_millis(20);
        });
        (0..start).for_each(|_| first.turn());
        first.lose([0], [0]);
        first.lead(1, [2, 3, 4]);
        for once in 0.. {
            let mut second = first.clone();
            second.lose([1], [1]);
            second.recover(3);
            let heir = second.registry.next.as_ref().map(|next| next.master.0).unwrap();
            // Where nothing is on its way, nothing is another boundary.
            for twice in 0.. {
                if !second.net.is_empty() {
                    runs += 1;
                    let mut play = second.clone();
                    play.lose([heir], [heir]);
                    play.recover(3);
                    let ended = play.ends_well();
                    assert_eq!(ended, Ok(()), "{form:?}, begun at {start}, crashed at {once} and {twice}");
                }
                if second.registry.next.is_none() {
                    break;
                }
                second.turn();
            }
            if first.registry.next.is_none() {
                break;
            }
            first.turn();
            while first.net.is_empty() && first.registry.next.is_some() {
                first.turn();
            }
        }
        println!("{form:?}, begun at {start}: {runs} runs");
        assert!(runs > 400, "{runs}");
    }
}

/// T36: until the new list counts, the old copy is what a recovery has; from then on the new one is enough.
fn replaced(bug: Option<&str>, form: Form) -> Result<usize, String> {
    let mut runs = 0;
    let starts = [0, 20].into_iter().flat_map(|delay| (0..100).step_by(9).map(move |start| (delay, start)));
    // What who is lost had on its way may arrive all the same, or not.
    for (delay, start, late) in
        starts.flat_map(|(delay, start)| [(delay, start, true), (delay, start, false)])
    {
        let mut before = play(1, delay, bug, form);
        (0..start).for_each(|_| before.turn());
        before.replace([2]);
        for turn in 0..400 {
            if before.is_done() {
                break;
            }
            runs += 1;
            let mut play = before.clone();
            play.lose([0], [0]);
            if play.registry.next.is_none() {
                play.lose([1], [1]);
            } else {
                // Nothing of the new list was ever needed.
                play.lose([], [2]);
            }
            if !late {
                play.forget_sent();
            }
            play.recover(1);
            play.ends_well().map_err(|text| format!("delay {delay}, begun {start}, turn {turn}: {text}"))?;
            before.turn();
        }
    }
    Ok(runs)
}

#[test]
fn a_list_may_change_under_a_master_that_crashes_at_any_boundary() {
    holds(replaced(None, Usual), 200);
    holds(replaced(None, Unified), 200);
    let bugs = ["ready-before-sync", "ignore-versions"];
    for (bug, form) in bugs.into_iter().flat_map(|bug| [(bug, Usual), (bug, Unified)]) {
        let text = replaced(Some(bug), form).map(|_| bug).unwrap_err();
        assert!(!text.contains("Stuck"), "{bug}: {text}");
        println!("{bug:<24} {text}");
    }
}

/// D-1: a copy says that it has something, loses power, and the master is lost too.
fn power_lost(bug: Option<&str>, witness: bool, form: Form) -> Result<(), String> {
    let mut play = Play::new(3, 1, vec![vec![]], bug, |parameters, _| {
        (parameters.sync_delay, parameters.unified) = (Span::ZERO, form == Unified);
    });
    let (master, backup) = (process(0, REPLICA), process(1, REPLICA));
    play.begin(0, Count::add(1));
    play.attempt(0, true, Span::from_millis(40));
    // The one way or the other, and what is written down in the meantime is not yet on the disk.
    let wanted = move |to: &ProcessId, message: &Wired| {
        let records = matches!(message, Message::Order { message: Spoken::Records { .. }, .. });
        to.role == CLIENT || *to == master || to.role != MANAGER && records == witness
    };
    for _ in 0..2 {
        while let Some(at) = play.net.iter().position(|(_, to, message)| wanted(to, message)) {
            let (from, to, message) = play.net.remove(at);
            play.deliver(from, to, message);
        }
        // Once more, for a safe answer.
        play.attempt(0, true, Span::from_millis(40));
    }
    play.net.clear();
    let (kept, now) = (play.answered(), play.now);
    play.restart_server(usize::from(backup.node.0));
    play.witnesses[1].restart(now);
    play.lose([0], [0]);
    play.lead(1, [2]);
    play.ends_well()?;
    assert_eq!(kept, 0, "nothing was durable");
    Ok(())
}

#[test]
fn nothing_is_confirmed_before_it_is_durable() {
    let cases = [("accept-before-durable", true), ("acknowledge-before-durable", false)];
    for (form, (bug, witness)) in [Usual, Unified].into_iter().flat_map(|form| cases.map(|case| (form, case)))
    {
        power_lost(None, witness, form).unwrap();
        let text = power_lost(Some(bug), witness, form).unwrap_err();
        assert!(text.contains("counts 0 of k1"), "{bug}: {text}");
    }
}

/// A read that would let a key expire is asked for again as a command, by the same name: the read in the log is not that.
#[test]
fn a_command_is_replayed_although_a_read_of_its_name_is_in_the_log() {
    for form in [Usual, Unified] {
        let mut play = Play::new(3, 1, vec![vec![Count::read(7)]], None, |parameters, _| {
            parameters.sync_delay = Span::from_secs(60);
            (parameters.lease, parameters.unified) = (false, form == Unified);
        });
        play.until("an answer", Play::is_done);
        let requests = vec![request(&play.clients[0], 7)];
        let (client, reign) = (play.clients[0].id.process, play.clients[0].view.clone().unwrap().0);
        let message = Message::Order { epoch: 0, message: Spoken::Records { reign, requests } };
        let to = play.witness(NodeId(1));
        play.net.push((client, to, message));
        play.until("a record", |play| play.holds(1, 1) == Some(1));
        let (full, end) = play.servers[1].process.order().extent();
        assert!(full < end, "the read is not known to be safe");
        play.lose([0], [0]);
        play.lead(1, [2]);
        play.until("another master", |play| play.registry.next.is_none());
        play.pass(Span::from_millis(60));
        assert_eq!(play.servers[1].process.machine().0.get(&7), Some(&1), "{form:?}");
    }
}

/// A new master has taken in what is replayed, and is overtaken by its own next recovery before the turn ends: what came
/// into its log in that turn must not count as written down (five regions, seed 65,544).
#[test]
fn what_came_into_the_log_in_the_turn_of_another_recovery_is_written_down_with_it() {
    for form in [Usual, Unified] {
        let plan = vec![Count::add(1)];
        let mut play = Play::new(3, 1, vec![plan], None, |parameters, _| {
            parameters.sync_delay = Span::from_millis(20);
            (parameters.lease, parameters.unified) = (false, form == Unified);
        });
        play.until("an answer", Play::is_done);
        assert_eq!(play.fast, 1, "only the witness has it");
        play.lose([0], [0]);
        play.lead(1, [2]);
        // What has it replay, held back until the managers think again.
        let replays = |(_, to, message): &(ProcessId, ProcessId, Wired)| {
            let Message::Order { message, .. } = message else { return false };
            *to == process(1, REPLICA)
                && match message {
                    Spoken::Contents { .. } => true,
                    Spoken::Ping { registry, .. } => form == Unified && registry.next.is_some(),
                    _ => false,
                }
        };
        play.until("what is replayed", |play| play.net.iter().any(replays));
        let at = play.net.iter().position(replays).unwrap();
        let (first, _, contents) = play.net.remove(at);
        play.lead(1, [2]);
        play.ping(1);
        let (second, _, ping) = play.net.pop().unwrap();
        play.serve(1, |server, effects| {
            server.receive(first, contents, effects);
            server.receive(second, ping, effects);
        });
        play.plans[0] = vec![Count::add(1), Count::add(2)].into();
        play.ends_well().unwrap();
        let before = play.servers[1].process.machine().0.clone();
        play.flush(1);
        play.restart_server(1);
        let (_, end) = play.servers[1].process.order().extent();
        assert_eq!(end, play.servers[2].process.order().extent().1, "{form:?}: its log is that of its copy");
        play.lead(2, [1]);
        play.plans[0] = vec![Count::add(2)].into();
        play.ends_well().unwrap();
        assert_eq!(before.get(&1), Some(&2), "{form:?}");
    }
}
