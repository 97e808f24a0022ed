//! Every planted bug is found, each within 2,000 seeds.

use super::tune;
use crate::cluster::Case;
use crate::mutations::every_bug_is_caught;
use isochrone_replication::mencius::{Family, Mutation};
use isochrone_replication::service::Reply;
use isochrone_sim::FaultSet;

/// The runs in which a bug shows sooner than under all faults together.
fn case(mutation: Mutation) -> Case<Family> {
    let with = |replicas, faults: &str, crashes, hot| {
        let faults = faults.parse::<FaultSet>().unwrap();
        let rounds = if hot { 400 } else { 40 };
        Case { crashes, hot, rounds, ..Case::new(replicas, faults, tune) }
    };
    match mutation {
        Mutation::AcknowledgeBeforeDurable => {
            Case { first: 140, ..with(3, "power_loss,disk_slow", 8, false) }
        }
        Mutation::ForgetPromise => Case { isolated: 6, ..with(3, "delay", 20, false) },
        Mutation::CountDuplicateVote => with(5, "duplicate,partition", 0, false),
        Mutation::DropSession => with(3, "power_loss,snapshot,loss", 10, false),
        Mutation::RevokeBlindly => Case { isolated: 6, ..with(3, "loss", 8, false) },
        Mutation::RevokeWithoutAccept => Case { first: 50, isolated: 6, ..with(3, "loss", 8, false) },
        Mutation::ReuseTurns => with(3, "disk_slow", 20, false),
        Mutation::SuggestSkipped => with(3, "none", 0, false),
        Mutation::ClaimRevoked => {
            Case { isolated: 16, ..with(5, "loss,partition,one_way_partition,pause", 0, false) }
        }
        Mutation::AnswerBeforeKnown => {
            let early: fn(&mut _, &mut _) = |placement: &mut super::Placement<_>, random| {
                super::tune(placement, random);
                placement.parameters.early = true;
                placement.service.reply = Reply::Commit;
            };
            Case { tune: early, ..with(3, "delay,partition,one_way_partition", 0, true) }
        }
    }
}

#[test]
fn every_planted_bug_is_caught() {
    every_bug_is_caught(Mutation::ALL.map(|mutation| (mutation.name(), case(mutation))));
}
