//! Figures 6 to 10 and 15, and what messages cost: a master in a rack whose one core is what there is least of.
//!
//! What handling a message costs is what it costs our runtime ([`crate::calibrated`]), on servers and on clients. CURP is
//! `curp` with up to three copies beside the master, of five servers. Of what the source calls the original RAMCloud,
//! which answers once three backups have a write and sends each write there by itself, there are two forms:
//!
//! - [`backed`], for latencies: `curp` that records nothing and answers when all three copies have a write;
//! - [`synchronous`], for throughput: under load that would send together what has come in together, so it is
//!   Multi-Paxos with one command a message. A leader's time for a write grows by the same for each follower, and three
//!   followers are half way between the two and the four that three and five replicas have.

use super::super::domino::distribution;
use super::super::lab::{Experiment, Lab, Mix, RACK_CLIENTS, RACK_SERVERS, Topology};
use super::super::published::Finding;
use super::machine;
use crate::calibrated::COST;
use crate::chart::Curves;
use isochrone_core::Span;
use isochrone_workload::Kind;
use isochrone_workload::trial::Outcome;
use std::rc::Rc;

/// Why microseconds are not RAMCloud's.
const RUNTIME: &str = "in the simulator, 3 us from machine to machine and back, and at either end, clients included, what a \
                       message costs our runtime on sockets of the kernel: 1.2 us to take in or to send; RAMCloud polls its \
                       InfiniBand cards";
/// Why copies of 100 bytes cost throughput.
const BYTES: &str =
    "our runtime pays 3.5 ns for each byte of each copy, half a microsecond for a copy of such a write";

/// Writes of keys that nobody else writes, one client, asking again when it is answered.
fn writes(protocol: &'static str, servers: usize, set: Vec<(&'static str, &'static str)>) -> Experiment {
    Experiment {
        topology: Topology::Rack,
        replicas: RACK_SERVERS[..servers].to_vec(),
        leader: Some(RACK_SERVERS[0]),
        protocol,
        set,
        clients: vec![(RACK_CLIENTS[0], 1)],
        rate: None,
        mix: Mix { reads: 0, exponent: None, records: 1_000_000, size: 100, conflict: 0 },
        // A master serves after some 50 ms.
        duration: Span::from_millis(160),
        warm: Span::from_millis(60),
        jitter: Span::ZERO,
        cpu: true,
        straggler: None,
        script: Vec::new(),
        history: false,
    }
}

/// One server and no copies.
fn alone() -> Experiment {
    writes("curp", 1, Vec::new())
}

/// CURP with so many copies: `1` to `3`.
fn curp(f: &'static str) -> Experiment {
    writes("curp", 5, vec![("f", f)])
}

/// Three backups that are waited for, and no witnesses.
fn backed() -> Experiment {
    // Unified, since else the master would have witnesses forget what they never held; nor does it tell its copies by
    // themselves that they all have a write.
    let set = [("f", "3"), ("always_synced", "true"), ("unified", "true"), ("sync_delay", "1s")];
    writes("curp", 5, set.to_vec())
}

/// As many clients as the source's figures go to, about, and more than any of these systems needs to be busy.
fn busy(experiment: Experiment) -> Experiment {
    Experiment { clients: RACK_CLIENTS.iter().map(|client| (*client, 1)).collect(), ..experiment }
}

fn small(experiment: Experiment) -> Experiment {
    Experiment { mix: Mix { size: 8, ..experiment.mix }, ..experiment }
}

/// YCSB-A, skewed.
fn half_reads(experiment: Experiment, theta: f64) -> Experiment {
    Experiment { mix: Mix { reads: 50, exponent: Some(theta), ..experiment.mix }, ..experiment }
}

/// What a protocol of this program gives; the rack has no row without it.
fn outcome(lab: &mut Lab, experiment: &Experiment) -> anyhow::Result<Rc<Outcome>> {
    let found = lab.count(experiment)?;
    found.ok_or_else(|| anyhow::anyhow!("{} is not in this program", experiment.protocol))
}

/// Requests answered a second.
fn throughput(lab: &mut Lab, experiment: &Experiment) -> anyhow::Result<f64> {
    Ok(outcome(lab, experiment)?.figures.throughput())
}

/// Multi-Paxos, one command a message.
fn unbatched(replicas: usize) -> Experiment {
    writes("multipaxos", replicas, vec![("batch_commands", "1"), ("gather", "false")])
}

/// The throughput of Multi-Paxos with three followers, one command a message.
fn synchronous(lab: &mut Lab, load: impl Fn(Experiment) -> Experiment) -> anyhow::Result<f64> {
    let mut seconds = 0.0;
    for replicas in [3, 5] {
        seconds += throughput(lab, &load(unbatched(replicas)))?.recip() / 2.0;
    }
    Ok(seconds.recip())
}

/// Microseconds that this share of the writes did not exceed.
fn write_micros(lab: &mut Lab, experiment: &Experiment, share: f64) -> anyhow::Result<f64> {
    Ok(outcome(lab, experiment)?.figures.quantile_of(Kind::Update, share).unwrap_or(f64::NAN) * 1e3)
}

fn mean_micros(lab: &mut Lab, experiment: &Experiment) -> anyhow::Result<f64> {
    Ok(outcome(lab, experiment)?.figures.mean().unwrap_or(f64::NAN) * 1e3)
}

/// Messages of these kinds and their bytes, for each request answered.
fn sent(outcome: &Outcome, kinds: &[&str]) -> (f64, f64) {
    let operations = outcome.report.operations as f64;
    let of_kinds = outcome.report.traffic.iter().filter(|(name, _)| kinds.contains(name));
    of_kinds.fold((0.0, 0.0), |(messages, bytes), (_, load)| {
        (messages + load.messages as f64 / operations, bytes + load.bytes as f64 / operations)
    })
}

/// Calls of this experiment's messages for each request answered.
pub(super) fn calls(lab: &mut Lab, experiment: &Experiment, kinds: &[&str]) -> anyhow::Result<f64> {
    Ok(sent(&*outcome(lab, experiment)?, kinds).0)
}

/// Microseconds of a processor for each request answered, of taking in messages of these kinds and sending those.
fn work(outcome: &Outcome, taken: &[&str], given: &[&str]) -> f64 {
    let cost = |kinds, each: Span| {
        let (messages, bytes) = sent(outcome, kinds);
        messages * each.as_nanos() as f64 / 1e3 + bytes * COST.picos_per_byte as f64 / 1e6
    };
    cost(taken, COST.fixed) + cost(given, COST.send)
}

/// The same of a master of CURP, and how much of it is for collections.
fn master_work(outcome: &Outcome) -> (f64, f64) {
    let collections = work(outcome, &["Collected"], &["Collect"]);
    (work(outcome, &["Requests", "Acked"], &["Replies", "Replicate"]) + collections, collections)
}

/// The same of all its witnesses.
fn witness_work(outcome: &Outcome) -> f64 {
    work(outcome, &["Records", "Collect"], &["Verdicts", "Collected"])
}

/// The median of one client's reads.
pub(super) fn read(lab: &mut Lab) -> anyhow::Result<Finding> {
    let experiment = reading(backed());
    let micros = outcome(lab, &experiment)?.figures.quantile_of(Kind::Read, 0.5).unwrap_or(f64::NAN) * 1e3;
    Ok(Finding::within(micros, 9.4, RUNTIME))
}

fn reading(experiment: Experiment) -> Experiment {
    Experiment { mix: Mix { reads: 100, ..experiment.mix }, ..experiment }
}

/// The median of one client's writes (Figure 6): of the synchronous system.
pub(super) fn write_backed(lab: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::within(write_micros(lab, &backed(), 0.5)?, 23.9, RUNTIME))
}

pub(super) fn write_curp(lab: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::within(write_micros(lab, &curp("3"), 0.5)?, 15.5, RUNTIME))
}

pub(super) fn write_alone(lab: &mut Lab) -> anyhow::Result<Finding> {
    let note =
        format!("{RUNTIME}; one server answers when its own journal has the write, CURP's master before");
    Ok(Finding::within(write_micros(lab, &alone(), 0.5)?, 11.4, note))
}

/// Figure 6: the share of one client's writes that take no longer.
pub(super) fn drawn(lab: &mut Lab) -> anyhow::Result<Curves> {
    let systems = [
        ("without copies", alone()),
        ("CURP, f = 1", curp("1")),
        ("CURP, f = 2", curp("2")),
        ("CURP, f = 3", curp("3")),
        ("synchronous", backed()),
    ];
    let mut series = Vec::new();
    for (name, experiment) in systems {
        let points = distribution(&outcome(lab, &experiment)?).into_iter();
        series.push((name.to_owned(), points.map(|(millis, share)| (millis * 1e3, share)).collect()));
    }
    let title = "Writes of 100 bytes by one client in one rack".to_owned();
    Ok(Curves { title, axis: "latency, us".to_owned(), series })
}

/// By how much the median is lower than that of the synchronous system.
pub(super) fn times_lower(lab: &mut Lab) -> anyhow::Result<Finding> {
    let times = write_micros(lab, &backed(), 0.5)? / write_micros(lab, &curp("3"), 0.5)?;
    let note = "medians of curp-044 and curp-045; our client pays 1.7 us to send each record and 1.2 for each verdict, the \
                source's 0.3 us a witness";
    Ok(Finding::within(times, 1.54, note))
}

/// What CURP adds to the median of a server alone.
pub(super) fn over_alone(lab: &mut Lab) -> anyhow::Result<Finding> {
    let added = write_micros(lab, &curp("3"), 0.5)? - write_micros(lab, &alone(), 0.5)?;
    Ok(Finding::within(
        added,
        4.05,
        "three witnesses, each of which costs what curp-047 says, less 1.2 us that one server waits for its journal",
    ))
}

/// What one more copy adds, between one and three.
pub(super) fn each_copy_adds(lab: &mut Lab) -> anyhow::Result<Finding> {
    let added = (write_micros(lab, &curp("3"), 0.5)? - write_micros(lab, &curp("1"), 0.5)?) / 2.0;
    let note = "from one copy to three: to send a record costs the client 1.7 us, which a client on our runtime's sockets \
                cannot hide";
    Ok(Finding::within(added, 1.76, note))
}

/// Throughput of writes over that of the synchronous system (Figure 7).
pub(super) fn times_more(lab: &mut Lab) -> anyhow::Result<Finding> {
    let mut over = |size: fn(Experiment) -> Experiment| {
        Ok::<_, anyhow::Error>(
            throughput(lab, &busy(size(curp("3"))))? / synchronous(lab, |one| busy(size(one)))?,
        )
    };
    let (large, little) = (over(|one| one)?, over(small)?);
    Ok(Finding::within(large, 2.74, format!("{little:.1} with values of 8 bytes: {BYTES}")))
}

/// Percent of the throughput of a server alone that each copy costs.
pub(super) fn each_copy_costs(lab: &mut Lab) -> anyhow::Result<Finding> {
    let mut cost = |size: fn(Experiment) -> Experiment| {
        let share = throughput(lab, &busy(size(curp("3"))))? / throughput(lab, &busy(size(alone())))?;
        Ok::<_, anyhow::Error>(100.0 * (1.0 - share) / 3.0)
    };
    let (large, little) = (cost(|one| one)?, cost(small)?);
    Ok(Finding::within(large, 12.4, format!("{little:.1} with values of 8 bytes: {BYTES}")))
}

/// Percent of a busy master's time that goes into what asynchronous replication would not do: collections.
pub(super) fn collections_cost(lab: &mut Lab) -> anyhow::Result<Finding> {
    let mut cost = |experiment: Experiment| {
        let outcome = outcome(lab, &busy(experiment))?;
        let (all, collections) = master_work(&outcome);
        Ok::<_, anyhow::Error>(100.0 * collections / all)
    };
    let (large, little) = (cost(curp("3"))?, cost(small(curp("3")))?);
    let note = format!(
        "the master's time for messages of collections, of all that it spends on messages, which is what it is short of; \
         {little:.1} with values of 8 bytes, where copies cost less"
    );
    Ok(Finding::within(large, 5.8, note))
}

/// The larger difference, percent, of reads in latency and in throughput.
pub(super) fn reads_differ(lab: &mut Lab) -> anyhow::Result<Finding> {
    let (with, without) = (reading(curp("3")), reading(backed()));
    let latency = mean_micros(lab, &with)? / mean_micros(lab, &without)?;
    let per_second = throughput(lab, &busy(with))? / throughput(lab, &busy(without))?;
    let most = [latency, per_second].map(|ratio| 100.0 * (ratio - 1.0).abs()).into_iter().fold(0.0, f64::max);
    Ok(Finding::holds(most < 1.0, most, "percent, the larger of the two"))
}

/// Writes a second of a master with three copies.
pub(super) fn writes_a_second(lab: &mut Lab) -> anyhow::Result<Finding> {
    let note = "f = 3, one core with the costs of our runtime, in the place of eight hyper-threads";
    Ok(Finding::within(throughput(lab, &busy(curp("3")))?, 208_000.0, note))
}

/// Records a second of a witness that does nothing else.
pub(super) fn records(lab: &mut Lab) -> anyhow::Result<Finding> {
    let witness = witness_work(&*outcome(lab, &busy(curp("3")))?) / 3.0;
    let note = format!(
        "one core, from what its messages cost our runtime, collections included; the store alone takes {:.1} million a \
         second of this machine",
        machine::records_a_second() / 1e6
    );
    Ok(Finding::within(1e6 / witness, 330_000.0, note))
}

/// Percent that a witness adds to what a master spends.
pub(super) fn witness_adds(lab: &mut Lab) -> anyhow::Result<Finding> {
    let outcome = outcome(lab, &busy(curp("3")))?;
    let share = 100.0 * witness_work(&outcome) / 3.0 / master_work(&outcome).0;
    let note = "the time that a witness spends on a write, of what the master does, from what messages cost our runtime; the \
                source divides by all eight hyper-threads that its master occupies";
    Ok(Finding::within(share, 62.0, note))
}

/// Percent more bytes between machines than the synchronous system has.
pub(super) fn more_bytes(lab: &mut Lab) -> anyhow::Result<Finding> {
    let mut bytes = |experiment| {
        let outcome = outcome(lab, &experiment)?;
        let operations = outcome.report.operations as f64;
        Ok::<_, anyhow::Error>(
            outcome.report.traffic.iter().map(|(_, load)| load.bytes as f64 / operations).sum::<f64>(),
        )
    };
    let more = 100.0 * (bytes(curp("3"))? / bytes(backed())? - 1.0);
    Ok(Finding::within(more, 75.0, "one client; all messages, without what connections add"))
}

/// Calls that the master handles for a write that is replicated by itself.
pub(super) fn calls_synchronous(lab: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Measured(calls(lab, &backed(), &["Requests", "Replicate"])?))
}

/// The same with a sync every ten writes.
pub(super) fn calls_in_tens(lab: &mut Lab) -> anyhow::Result<Finding> {
    let experiment = writes("curp", 5, vec![("f", "3"), ("batch_max", "10"), ("sync_delay", "1s")]);
    let calls = calls(lab, &experiment, &["Requests", "Replicate"])?;
    let collections = sent(&*outcome(lab, &experiment)?, &["Collect"]).0;
    Ok(Finding::within(calls, 1.3, format!("and {collections:.2} collections")))
}

/// The same under load, collections included.
pub(super) fn calls_under_load(lab: &mut Lab) -> anyhow::Result<Finding> {
    let calls = calls(lab, &busy(curp("3")), &["Requests", "Replicate", "Collect"])?;
    Ok(Finding::within(calls, 1.0, "f = 3, syncs and collections of a busy master included"))
}

/// Calls that a client waits for with two witnesses.
pub(super) fn calls_of_a_client(lab: &mut Lab) -> anyhow::Result<Finding> {
    Ok(Finding::Measured(calls(lab, &curp("2"), &["Requests", "Records"])?))
}

/// Writes that one sync takes along.
fn writes_a_sync(outcome: &Outcome, share_of_writes: f64, copies: f64) -> f64 {
    share_of_writes * copies / sent(outcome, &["Replicate"]).0
}

/// Without waiting for a batch: as many writes as come in together (Figure 15).
fn at_once(f: &'static str) -> Experiment {
    writes("curp", 5, vec![("f", f), ("batch_max", "1")])
}

pub(super) fn natural_batch(lab: &mut Lab) -> anyhow::Result<Finding> {
    let few = Experiment {
        clients: RACK_CLIENTS[..16].iter().map(|client| (*client, 1)).collect(),
        ..at_once("3")
    };
    let few = writes_a_sync(&*outcome(lab, &few)?, 1.0, 3.0);
    let batch = writes_a_sync(&*outcome(lab, &busy(at_once("3")))?, 1.0, 3.0);
    let note = format!(
        "what has come in when the core takes its next turn goes in one sync, and syncs overlap: as many writes as there are \
         clients, 40 here; {few:.0} with 16"
    );
    Ok(Finding::within(batch, 40.0, note))
}

/// Throughput of the best batch over that of the synchronous system (Figure 15).
pub(super) fn times_more_by_batches(lab: &mut Lab) -> anyhow::Result<Finding> {
    let mut most = 0.0_f64;
    for batch in ["1", "10", "50", "200"] {
        let experiment = writes("curp", 5, vec![("f", "3"), ("batch_max", batch)]);
        most = most.max(throughput(lab, &busy(experiment))?);
    }
    let unbatched = throughput(lab, &busy(at_once("3")))?;
    let over = synchronous(lab, busy)?;
    let note = format!(
        "the best of batches of 1, 10, 50 and 200; {:.1} at 1, since what comes in together goes together; {BYTES}",
        unbatched / over
    );
    Ok(Finding::within(most / over, 2.9, note))
}

/// The sweep of Figure 8.
const THETAS: [f64; 6] = [0.5, 0.6, 0.7, 0.8, 0.9, 0.99];

/// How much of what CURP gains over the synchronous system at the least skew is lost at this one.
fn lost(lab: &mut Lab, theta: f64) -> anyhow::Result<f64> {
    let mut gain = |theta| {
        let load = |one| busy(half_reads(one, theta));
        Ok::<_, anyhow::Error>(throughput(lab, &load(curp("3")))? / synchronous(lab, load)? - 1.0)
    };
    Ok(1.0 - gain(theta)? / gain(THETAS[0])?)
}

/// The least skew of the sweep at which so much of the gain is lost.
fn first_lost(lab: &mut Lab, share: f64) -> anyhow::Result<Option<f64>> {
    for theta in THETAS {
        if lost(lab, theta)? >= share {
            return Ok(Some(theta));
        }
    }
    Ok(None)
}

pub(super) fn gain_degrades(lab: &mut Lab) -> anyhow::Result<Finding> {
    let note = "YCSB-A; the first of 0.5, 0.6, 0.7, 0.8, 0.9 and 0.99 at which a twentieth is lost of what is gained at 0.5";
    Ok(match first_lost(lab, 0.05)? {
        Some(theta) => Finding::within(theta, 0.8, note),
        None => Finding::Unmet(1.0, format!("{note}; at none of them")),
    })
}

pub(super) fn gain_disappears(lab: &mut Lab) -> anyhow::Result<Finding> {
    if let Some(theta) = first_lost(lab, 0.9)? {
        return Ok(Finding::Measured(theta));
    }
    let most = THETAS[THETAS.len() - 1];
    let left = 100.0 * (1.0 - lost(lab, most)?);
    let together = writes_a_sync(&*outcome(lab, &busy(half_reads(curp("3"), most)))?, 0.5, 3.0);
    Ok(Finding::Nowhere(format!(
        "at 0.99 {left:.0} % of the gain is left: {together:.0} writes still share a sync, since one that a conflict asks for \
         takes along all that has come in, and waits for no other as it would in RAMCloud"
    )))
}

/// A fixed load of YCSB-A from ten clients: four fifths of what the synchronous system takes here.
fn loaded(experiment: Experiment, theta: f64) -> Experiment {
    let clients = RACK_CLIENTS[..10].iter().map(|client| (*client, 1)).collect();
    Experiment { clients, rate: Some(10_000.0), ..half_reads(experiment, theta) }
}

pub(super) fn latency_rises(lab: &mut Lab) -> anyhow::Result<Finding> {
    let mut mean =
        |theta, size: fn(Experiment) -> Experiment| mean_micros(lab, &loaded(size(curp("3")), theta));
    let least = mean(0.5, |one| one)?;
    for theta in [0.8, 0.85, 0.9, 0.99] {
        if mean(theta, |one| one)? > 1.05 * least {
            return Ok(Finding::Measured(theta));
        }
    }
    let most = mean(0.99, |one| one)?;
    let [little, at_85, at_99] = [mean(0.5, small)?, mean(0.85, small)?, mean(0.99, small)?];
    Ok(Finding::Nowhere(format!(
        "the mean is {least:.1} us at 0.5 and {most:.1} at 0.99: a sync of fifty writes holds our one core for all their bytes, \
         and one that a conflict asks for is shorter; with values of 8 bytes it is {little:.1} us, {at_85:.1} at 0.85 and \
         {at_99:.1} at 0.99"
    )))
}

/// Percent by which the mean latency is lower than that of the synchronous system at a skew of 0.99.
pub(super) fn mean_lower(lab: &mut Lab) -> anyhow::Result<Finding> {
    let [with, without] = [curp("3"), backed()].map(|one| loaded(one, 0.99));
    let lower = 100.0 * (1.0 - mean_micros(lab, &with)? / mean_micros(lab, &without)?);
    let note = "100,000 operations a second, four fifths of what the synchronous system takes in the simulated rack; the source \
                does not say what its own takes";
    Ok(Finding::within(lower, 42.0, note))
}

/// By how much writes are faster at a skew of 0.95 (Figure 10).
pub(super) fn writes_lower(lab: &mut Lab) -> anyhow::Result<Finding> {
    let mut times = |share| {
        let [with, without] = [curp("3"), backed()].map(|one| loaded(one, 0.95));
        Ok::<_, anyhow::Error>(write_micros(lab, &without, share)? / write_micros(lab, &with, share)?)
    };
    let (median, late) = (times(0.5)?, times(0.99)?);
    let note = format!("medians, at the load of curp-075; {late:.1} at the 99th percentile");
    Ok(Finding::holds((2.0..=4.0).contains(&median), median, note))
}

/// The percentile up to which these writes take hardly longer than a server's alone, beside what witnesses cost without
/// conflicts.
pub(super) fn writes_as_alone(lab: &mut Lab) -> anyhow::Result<Finding> {
    let usual = write_micros(lab, &curp("3"), 0.5)? / write_micros(lab, &alone(), 0.5)?;
    let [with, without] = [curp("3"), alone()].map(|one| loaded(one, 0.95));
    let mut within = |more: f64| {
        for percentile in 1..100 {
            let share = f64::from(percentile) / 100.0;
            if write_micros(lab, &with, share)? > more * usual * write_micros(lab, &without, share)? {
                return Ok::<_, anyhow::Error>(f64::from(percentile - 1));
            }
        }
        Ok(99.0)
    };
    let (tenth, twentieth) = (within(1.1)?, within(1.05)?);
    let note = format!(
        "until writes take a tenth longer than {usual:.2} times those without copies, which is what one client's take; \
         {twentieth:.0} where a twentieth is meant: the source does not say what is almost as low"
    );
    Ok(Finding::within(tenth, 61.0, note))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a busy master's time rests on this: it is what its messages cost, and there is none left.
    #[test]
    fn a_busy_master_spends_its_time_on_messages() {
        let mut lab = Lab::default();
        let busy = busy(curp("3"));
        let found = outcome(&mut lab, &busy).unwrap();
        let spent = master_work(&found).0 * throughput(&mut lab, &busy).unwrap() / 1e6;
        assert!((0.93..=1.03).contains(&spent), "{spent} of its time");
    }

    /// A write costs a synchronous leader the same for each follower: so three are half way between two and four.
    #[test]
    fn a_follower_costs_a_leader_one_message_each_way() {
        let mut lab = Lab::default();
        let micros = [3, 5].map(|replicas| {
            let experiment = busy(unbatched(replicas));
            let found = outcome(&mut lab, &experiment).unwrap();
            let followers = replicas as f64 - 1.0;
            let (messages, _) = sent(&found, &["Accept"]);
            assert!((messages / followers - 1.0).abs() < 0.01, "{messages} to {followers}");
            (
                1e6 / throughput(&mut lab, &experiment).unwrap(),
                work(&found, &["Accepted"], &["Accept"]) / followers,
            )
        });
        let [(two, each), (four, _)] = micros;
        assert!(((four - two) / 2.0 / each - 1.0).abs() < 0.05, "{two} us, {four} us, {each} us a follower");
    }

    #[test]
    fn a_write_is_one_call_of_the_master_and_three_to_its_backups() {
        let Finding::Measured(calls) = calls_synchronous(&mut Lab::default()).unwrap() else {
            panic!("not measured")
        };
        assert!((calls - 4.0).abs() < 0.02, "{calls}");
    }
}
