//! The world under the model checker stateright: every state within so many steps of a run without failures, where messages
//! come in any order, and a leader or a client may fail with all that it has on its way. `ISOCHRONE_STATES` says how many
//! states are looked at, nearest first.

use super::world::{Move, World};
use isochrone_core::Random;
use isochrone_transactions::{Family, carousel, tapir, twopc};
use stateright::{Checker, Model, Property};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Two partitions, two transactions, and what may fail.
struct TwoPartitions<F> {
    bug: Option<&'static str>,
    spoken: PhantomData<fn() -> F>,
}

/// Behind a lock, for replicas may be sent to another thread and not be shared with it.
struct State<F: Family>(Mutex<World<F>>);

impl<F: Family> State<F> {
    fn of(world: World<F>) -> State<F> {
        State(Mutex::new(world))
    }

    fn world(&self) -> MutexGuard<'_, World<F>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Family> Clone for State<F> {
    fn clone(&self) -> State<F> {
        State::of(self.world().clone())
    }
}

impl<F: Family> fmt::Debug for State<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.world().fingerprint())
    }
}

impl<F: Family> Hash for State<F> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.world().fingerprint().hash(state);
    }
}

impl<F: Family> PartialEq for State<F> {
    fn eq(&self, other: &State<F>) -> bool {
        let own = self.world().fingerprint();
        own == other.world().fingerprint()
    }
}

impl<F: Family> Model for TwoPartitions<F>
where
    World<F>: Send,
{
    type State = State<F>;
    type Action = Move;

    fn init_states(&self) -> Vec<State<F>> {
        let mut world = World::new(self.bug);
        (world.timers, world.failures, world.losses) = (0, 0, 0);
        let (mut random, mut states) = (Random::seeded(1), Vec::new());
        loop {
            let mut here = world.clone();
            here.failures = 1;
            states.push(State::of(here));
            let moves = world.moves();
            if moves.is_empty() {
                return states;
            }
            world.step(moves[random.below(moves.len() as u64) as usize]);
        }
    }

    fn actions(&self, state: &State<F>, actions: &mut Vec<Move>) {
        actions.extend(state.world().moves());
    }

    fn next_state(&self, state: &State<F>, action: Move) -> Option<State<F>> {
        let mut next = state.world().clone();
        next.step(action);
        if let Move::Fail(at) = action {
            // Timers, which bring the others back to life, follow at the end of every state.
            next.lose_all_of(at);
        }
        Some(State::of(next))
    }

    fn properties(&self) -> Vec<Property<TwoPartitions<F>>> {
        // From wherever it is, once everybody is heard, nothing is stuck, and what was told is so.
        vec![Property::always("ends as was told", |_, state: &State<F>| {
            let mut world = state.world().clone();
            catch_unwind(AssertUnwindSafe(|| world.close())).is_ok()
        })]
    }
}

fn check<F: Family>(bug: Option<&'static str>, usual: usize) -> impl Checker<TwoPartitions<F>>
where
    World<F>: Send,
{
    let states = std::env::var("ISOCHRONE_STATES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let model = TwoPartitions { bug, spoken: PhantomData };
    model.checker().threads(1).target_state_count(states).spawn_bfs().join()
}

#[test]
fn no_state_near_a_run_ends_wrong() {
    fn right<F: Family>()
    where
        World<F>: Send,
    {
        let checked = check::<F>(None, 2_000);
        println!("{}: {} states, {} steps deep", F::NAME, checked.unique_state_count(), checked.max_depth());
        checked.assert_properties();
    }
    right::<carousel::Basic>();
    right::<carousel::Fast>();
    right::<twopc::Family>();
    right::<tapir::Family>();
}

#[test]
fn a_bug_near_a_run_is_found() {
    let found = check::<twopc::Family>(Some("vote-before-replication"), 4_000);
    assert!(found.discovery("ends as was told").is_some());
}
