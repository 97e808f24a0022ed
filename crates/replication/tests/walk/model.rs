//! A world under the model checker stateright: every state that it can reach, each looked at once.

use stateright::{Checker, HasDiscoveries, Model, Property};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What is explored: a world step by step.
pub trait Explored: Clone + Hash + Send + Sync + 'static {
    type Step: Clone + PartialEq + fmt::Debug;
    /// What may happen next. Nothing does when all is over.
    fn steps(&self) -> Vec<Self::Step>;
    /// Panics where anything is wrong then.
    fn step(&mut self, step: Self::Step);
    /// What comes when all is over: everybody is heard and lives. Panics where something is stuck, or is not as it was
    /// told.
    fn close(self);
    /// A step in words.
    fn tell(&self, step: &Self::Step) -> String;
}

/// Every state from here, ...
struct Everything<W> {
    start: W,
    /// ... of which some are like this.
    goal: fn(&W) -> bool,
    /// One is wrong: there is no need to look further.
    over: AtomicBool,
}

/// A world, or what broke in its last step.
#[derive(Clone)]
struct State<W>(Result<W, String>);

impl<W: Hash> Hash for State<W> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<W: Explored> PartialEq for State<W> {
    fn eq(&self, other: &State<W>) -> bool {
        let hash = |state: &State<W>| {
            let mut hasher = std::hash::DefaultHasher::new();
            state.hash(&mut hasher);
            hasher.finish()
        };
        hash(self) == hash(other)
    }
}

impl<W> fmt::Debug for State<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().err().fmt(f)
    }
}

/// What a panic said.
fn caught<T>(what: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(what)).map_err(|panic| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => {
            panic.downcast::<&str>().map_or_else(|_| "a panic".to_owned(), |text| (*text).to_owned())
        }
    })
}

impl<W: Explored> Model for Everything<W> {
    type State = State<W>;
    type Action = W::Step;

    fn init_states(&self) -> Vec<State<W>> {
        vec![State(Ok(self.start.clone()))]
    }

    fn actions(&self, state: &State<W>, actions: &mut Vec<W::Step>) {
        if let State(Ok(world)) = state
            && !self.over.load(Relaxed)
        {
            actions.extend(world.steps());
        }
    }

    fn next_state(&self, state: &State<W>, step: W::Step) -> Option<State<W>> {
        let mut next = state.0.as_ref().ok()?.clone();
        Some(State(caught(move || {
            next.step(step);
            next
        })))
    }

    fn properties(&self) -> Vec<Property<Everything<W>>> {
        vec![
            Property::always(SOUND, |model: &Everything<W>, state: &State<W>| {
                model.over.fetch_or(state.0.is_err(), Relaxed);
                state.0.is_ok()
            }),
            Property::always(ENDS_WELL, |model: &Everything<W>, state: &State<W>| {
                let Ok(world) = &state.0 else { return true };
                let well = !world.steps().is_empty() || caught(|| world.clone().close()).is_ok();
                model.over.fetch_or(!well, Relaxed);
                well
            }),
            Property::sometimes(GOAL, |model: &Everything<W>, state: &State<W>| {
                state.0.as_ref().is_ok_and(model.goal)
            }),
        ]
    }
}

/// Every invariant holds.
const SOUND: &str = "sound";
/// When all is over nothing is stuck, and everything is as it was told.
const ENDS_WELL: &str = "ends well";
/// What makes the search worth its time is among the states.
const GOAL: &str = "goal";

/// Steps after which a search that should come to an end is given up.
const STATES_MAX: usize = 40_000_000;

/// What a search has come to.
#[derive(Debug)]
pub struct Searched {
    pub states: usize,
    /// Whether there are no other states.
    pub all: bool,
    pub depth: usize,
    /// Whether the goal was met.
    pub met: bool,
    /// What is wrong, and how it comes to it, step by step.
    pub wrong: Option<String>,
}

/// Looks at every state from here, depth first, unless there are more than `most`, until one is wrong.
pub fn search<W: Explored>(start: W, most: usize, goal: fn(&W) -> bool) -> Searched {
    let model = Everything { start, goal, over: AtomicBool::new(false) };
    let search = model.checker().finish_when(HasDiscoveries::AnyFailures).target_state_count(most);
    let checked = search.threads(1).spawn_dfs().join();
    // To tell how it came to it all steps are needed again.
    checked.model().over.store(false, Relaxed);
    let wrong = [SOUND, ENDS_WELL].into_iter().find_map(|property| {
        let path = checked.discovery(property)?;
        let mut text = format!("{property}:");
        for (state, step) in path.into_vec() {
            match (state.0, step) {
                (Ok(world), Some(step)) => text = format!("{text}\n  {}", world.tell(&step)),
                (Ok(world), None) => {
                    text = format!("{text}\n{}", caught(|| world.close()).err().unwrap_or_default());
                }
                (Err(wrong), _) => text = format!("{text}\n{wrong}"),
            }
        }
        Some(text)
    });
    let all = checked.is_done() && checked.state_count() < most && wrong.is_none();
    let met = checked.discovery(GOAL).is_some();
    Searched { states: checked.unique_state_count(), all, depth: checked.max_depth(), met, wrong }
}

/// Looks at every state from here, and finds nothing wrong. How many there are.
pub fn exhaust<W: Explored>(name: &str, start: W, goal: fn(&W) -> bool) -> usize {
    let begun = std::time::Instant::now();
    let searched = search(start, STATES_MAX, goal);
    println!("{name}: {} states, {} steps deep, {:?}", searched.states, searched.depth, begun.elapsed());
    assert!(searched.wrong.is_none(), "{name}: {}", searched.wrong.unwrap_or_default());
    assert!(searched.all, "{name}: more than {} states", searched.states);
    assert!(searched.met, "{name}: none of {} states is what it is about", searched.states);
    searched.states
}

/// The same search finds something wrong; what.
pub fn finds<W: Explored>(name: &str, start: W) -> String {
    let begun = std::time::Instant::now();
    let searched = search(start, STATES_MAX, |_| false);
    let Some(wrong) = searched.wrong else { panic!("{name} is not found in {} states", searched.states) };
    println!(
        "{name}: found in {} states, {:?}: {:.200}",
        searched.states,
        begun.elapsed(),
        wrong.lines().last().unwrap_or("")
    );
    wrong
}
