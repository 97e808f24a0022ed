//! Commands over each protocol, under faults: what clients saw must be linearizable where the protocol is strict, and
//! each command executed at most once.

mod contention;
mod idle;
mod scans;

use isochrone_core::deployment::Known;
use isochrone_core::{Deployment, Guarantee};
use isochrone_sim::FaultSet;
use isochrone_transactions::commands::{Answer, Ask, Served};
use isochrone_transactions::{Family, Placement, carousel, tapir, twopc};
use isochrone_workload::Workload;
use isochrone_workload::simulated;
use isochrone_workload::transactions::{draw_change, draw_move};
use isochrone_workload::trial::{Bridge, Terms, run};
use std::path::Path;

fn bridge<F: Family>() -> Bridge<Served<F>> {
    Bridge {
        placement: |deployment, keyspace| Ok(Placement::of(deployment, keyspace)?.movable()),
        request: Ask::Command,
        answer: |answer| match answer {
            Answer::Replied(response) => simulated::Answer::Replied(response),
            Answer::Refused(refusal) => simulated::Answer::Refused(refusal.to_string()),
            Answer::Unknown => simulated::Answer::Unknown,
            answer => panic!("no command is answered with {answer:?}"),
        },
        roles: &["server", "client"],
        shrinks: false,
        spare: |placement, node| {
            if F::LED {
                placement.add_spare(node);
            }
        },
        membership: draw_change,
        moves: |placement, random| draw_move(placement, random, Ask::Transaction),
        plant: Placement::plant,
    }
}

/// Four nodes in regions of their own, three partitions of three replicas.
fn deployment(protocol: &'static str, parameters: &str) -> Deployment {
    let placement = "[[\"n0\", \"n1\", \"n2\"], [\"n1\", \"n2\", \"n3\"], [\"n2\", \"n3\", \"n0\"]]";
    placed(protocol, &["US West", "US East", "Euro", "Asia"], placement, parameters)
}

fn placed(protocol: &'static str, regions: &[&str], placement: &str, parameters: &str) -> Deployment {
    let mut text = "cluster = \"seeds\"\n[network]\nrtt = \"reference/rtt/carousel-ec2.csv\"\n".to_owned();
    for (number, region) in regions.iter().enumerate() {
        text += &format!(
            "[[region]]\nname = \"{region}\"\n[[node]]\nname = \"n{number}\"\nregion = \"{region}\"\n"
        );
    }
    text += &format!(
        "[[keyspace]]\nname = \"main\"\nprotocol = \"{protocol}\"\n\
         placement = {placement}\n\
         parameters = {{ {parameters} }}\n"
    );
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Deployment::parse(&text, "seeds.toml", &base, &Known::names(&[]).placing(&[protocol])).unwrap()
}

/// Seeds with all faults. `ISOCHRONE_SEEDS` says how many, `ISOCHRONE_SEED` which one.
fn hold<F: Family>(parameters: &str, guarantee: Guarantee, count: u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, count) = match (number("ISOCHRONE_SEED"), number("ISOCHRONE_SEEDS")) {
        (Some(seed), _) => (seed, 1),
        (None, many) => (0, many.unwrap_or(count)),
    };
    let deployment = deployment(F::NAME, parameters);
    let mut terms = Terms::hostile(Workload::named("check").unwrap(), FaultSet::ALL);
    terms.requests_max = 60;
    terms.moves = 4;
    let (mut operations, mut broken) = (0, Vec::new());
    for seed in first..first + count {
        let outcome = run(&deployment, deployment.keyspaces()[0].id, bridge::<F>(), &terms, seed).unwrap();
        assert_eq!(outcome.guarantee, guarantee);
        operations += outcome.report.operations;
        // More than is promised where reads may lie behind, but so it is in these seeds.
        let once = isochrone_check::once(&outcome.history).violations;
        broken.extend(once.iter().map(|violation| format!("seed {seed}: {violation}")));
        let undecided = outcome.undecided.map(|reason| format!("seed {seed}: undecided: {reason}"));
        broken.extend(outcome.report.violations.iter().map(ToString::to_string).chain(undecided));
    }
    println!("{}: {count} seeds, {operations} commands answered", F::NAME);
    assert!(
        operations > 15 * count,
        "{operations} commands were answered in {count} seeds, which shows nothing"
    );
    assert!(broken.is_empty(), "{} of {count}:\n{}", broken.len(), broken[..broken.len().min(5)].join("\n"));
}

#[test]
fn carousel_fast_is_linearizable_in_commands() {
    hold::<carousel::Fast>("", Guarantee::StrictlySerializable, 40);
}

#[test]
fn carousel_basic_is_linearizable_in_commands() {
    hold::<carousel::Basic>("", Guarantee::StrictlySerializable, 30);
}

#[test]
fn two_phase_commit_is_linearizable_in_commands() {
    hold::<twopc::Family>("", Guarantee::StrictlySerializable, 30);
}

#[test]
fn tapir_executes_commands_at_most_once() {
    hold::<tapir::Family>("", Guarantee::Serializable, 20);
}
