//! One link of the leader is cut, or one direction of it: by way of another whoever is at the other end is served, without
//! witnesses, under both variants.

use crate::cluster::placement;
use crate::machine::Machine;
use crate::multipaxos::bridge::{CUT, LATE, LONG, evenly, run, waits};
use isochrone_core::{NodeId, Span};
use isochrone_replication::curp::{consensus, primary};
use isochrone_replication::{Family, Placement};

/// As long after a link is cut or whole again all is settled: a copy that the master does not reach is given up, and comes
/// back.
const SETTLED: Span = Span::from_secs(4);

fn is_served<F: Family>(tune: fn(&mut Placement<Machine, F>), copies: &[usize]) {
    let ms = Span::from_millis;
    for far in [1, 3] {
        for links in [vec![(0, far), (far, 0)], vec![(0, far)], vec![(far, 0)]] {
            let what = format!("{} {links:?}", F::NAME);
            let mut placement: Placement<Machine, F> = placement(4, 3, 0, ms(20));
            tune(&mut placement);
            let loops = run(evenly(), &placement, &links);
            let client = placement.client(NodeId(far as u16));
            let end = (CUT + LONG).saturating_sub(LATE);

            // Nobody loses an answer; where no copy is to be given up, one command finds out, or one more where what was under way
            // to this client says once that the leader is heard.
            let first = waits(&loops, client, CUT.saturating_sub(ms(100)), CUT + SETTLED);
            let slow = first.iter().filter(|(_, wait)| *wait > ms(100)).count();
            assert!(slow >= 1 && (slow <= 2 || copies.contains(&far)), "{what}: {first:?}");
            assert!(first.iter().all(|(_, wait)| *wait < SETTLED), "{what}: {first:?}");

            // A read takes two round trips, and what waits for copies, or for a write that does, one or two more.
            let served = waits(&loops, client, CUT + SETTLED, end);
            assert!(served.len() > 25, "{what}: {}", served.len());
            assert!(served.iter().all(|(_, wait)| (ms(40)..ms(100)).contains(wait)), "{what}: {served:?}");

            // Nothing that goes round by another takes less than 40 ms; directly, most reads do.
            let healed =
                waits(&loops, client, CUT + LONG + SETTLED, (CUT + LONG + LONG).saturating_sub(LATE));
            let direct = healed.iter().filter(|(_, wait)| *wait < ms(40)).count();
            assert!(healed.len() > 25 && direct * 5 > healed.len(), "{what}: {healed:?}");
            assert!(healed.iter().all(|(_, wait)| *wait < ms(100)), "{what}: {healed:?}");
        }
    }
}

#[test]
fn who_does_not_reach_the_master_or_is_not_reached_is_served_by_way_of_another() {
    is_served::<primary::Family>(|_| {}, &[1]);
}

#[test]
fn and_where_servers_are_witnesses() {
    is_served::<primary::Family>(|placement| placement.parameters.unified = true, &[1]);
}

#[test]
fn and_where_most_witnesses_count() {
    is_served::<consensus::Family>(|_| {}, &[]);
}
