//! Quorums of the fast lane that are not those that follow from the number of replicas (`specs/domino.md` 2.2).

use super::latency::at_commit;
use super::tune;
use crate::latency::{Measured, groups, matrices};
use crate::machine::Machine;
use crate::safety::hold_under_all_faults;
use expect_test::expect;
use isochrone_core::deployment::Known;
use isochrone_core::{Deployment, FastQuorums, NodeId};
use isochrone_plan::{Client, Group, domino};
use isochrone_replication::domino::{Family, Placement, Way};
use std::path::Path;

/// A fast quorum that is a bare majority, and all of the replicas for a classic one.
fn nearest(placement: &mut Placement<Machine>) {
    let n = placement.replicas.len();
    placement.parameters.quorums = FastQuorums::sized(n, Some(n / 2 + 1), None).ok();
    at_commit(placement);
}

/// As many for both, of `n = 3f + 1` replicas.
fn thirds(placement: &mut Placement<Machine>) {
    let n = placement.replicas.len();
    placement.parameters.quorums = FastQuorums::sized(n, Some((2 * n).div_ceil(3)), None).ok();
    at_commit(placement);
}

#[test]
fn with_other_quorums_clients_wait_for_them() {
    for (name, matrix) in matrices() {
        for replicas in groups(&matrix) {
            let n = replicas.len();
            println!("{name} {n}");
            let group = Group::from(&replicas).with(FastQuorums::sized(n, Some(n / 2 + 1), None).unwrap());
            let measured = Measured::<Family> { tune: nearest, ..Measured::new(&matrix, &replicas) };
            measured.equals(|region| domino::commit(&matrix, Client::At(region), group));
            if n == 7 {
                // Two may fail, and the fast lane goes on without them.
                let group = Group::from(&replicas).with(FastQuorums::sized(7, Some(5), None).unwrap());
                let dead = [1, 4].map(|rank| NodeId(replicas[rank].0));
                let measured = Measured::<Family> {
                    tune: thirds,
                    dead: dead.to_vec(),
                    ..Measured::new(&matrix, &replicas)
                };
                let ranks = [1, 4];
                measured.equals(|region| domino::commit(&matrix, Client::At(region), group.without(&ranks)));
            }
        }
    }
}

/// Smaller fast quorums: as many as are needed must come back before anything is recovered, and nothing is lost.
#[test]
fn all_faults_break_nothing_with_other_quorums() {
    let counted = hold_under_all_faults::<Family>(
        |placement, random| {
            tune(placement, random);
            placement.parameters.way = Way::Fast;
            let n = placement.replicas.len();
            placement.parameters.quorums = FastQuorums::sized(n, Some(n / 2 + 1), None).ok();
        },
        20,
        10,
    );
    println!("{counted:?}");
}

/// What a keyspace of five replicas makes of these parameters.
fn placed(parameters: &str) -> Result<Placement<Machine>, String> {
    let nodes =
        ["a", "b", "c", "d", "e"].map(|name| format!("[[node]]\nname = \"{name}\"\nregion = \"R\"\n"));
    let text = format!(
        "[[region]]\nname = \"R\"\n{}[[keyspace]]\nname = \"main\"\nprotocol = \"domino\"\nreplication = 5\n\
         parameters = {{ {parameters} }}\n",
        nodes.concat()
    );
    let known = Known::names(&["domino"]);
    let deployment =
        Deployment::parse(&text, "test.toml", Path::new(""), &known).map_err(|errors| errors.to_string())?;
    Placement::of(&deployment, &deployment.keyspaces()[0]).map_err(|errors| errors.to_string())
}

#[test]
fn a_keyspace_may_have_quorums_that_intersect() {
    for (parameters, five) in [
        ("", (4, 3)),
        ("fast_quorum = 3", (3, 5)),
        ("classic_quorum = 5", (3, 5)),
        ("fast_quorum = 5, classic_quorum = 3", (5, 3)),
    ] {
        let parameters = placed(parameters).unwrap().parameters;
        let sizes = |n| (parameters.quorums(n).fast(), parameters.quorums(n).classic());
        assert_eq!(sizes(5), five);
        assert_eq!((sizes(3), sizes(7)), ((3, 2), (6, 4)), "another number of members has its own");
    }
    let refused = |parameters| placed(parameters).map(|_| ()).unwrap_err();
    expect![[r#"
        test.toml:22: keyspace "main": parameter fast_quorum = 3 is too small: two fast quorums of 3 and a classic one of 4 need not have any of 5 replicas in common
          use 4 or more, or classic_quorum = 5 or more"#]].assert_eq(&refused("fast_quorum = 3, classic_quorum = 4"));
    expect![[r#"
        test.toml:22: keyspace "main": parameter classic_quorum = 2 is not between a majority and all of 5 replicas
          use 3 to 5"#]].assert_eq(&refused("classic_quorum = 2"));
}
