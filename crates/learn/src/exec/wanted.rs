//! What a run asks of memory, reckoned before it begins: a system that refuses memory in between ends the process, and with it
//! whatever else that does.

use super::options::{Mode, Options, Scheme};
use super::places::Places;
use super::run::Lap;
use crate::data::Dataset;
use crate::memory::NoRoom;
use crate::plan::Plan;
use crate::task::{Rule, Task};

/// Refuses a run for which the memory is not there.
pub(super) fn check<T: Task>(
    task: &T,
    data: &Dataset<'_>,
    plan: Option<&Plan>,
    options: &Options,
) -> Result<(), NoRoom> {
    let threads = if options.scheme == Scheme::Serial { 1 } else { options.threads.get() };
    NoRoom::check("learning", wanted(task, data, plan, options), threads)
}

/// Bytes that a run takes at a time, at most, beside its data, its plan and the model that it is given: what grows with any of
/// them. Of tasks with a rule of their own it is an estimate, since nobody knows the size of their sets.
pub(super) fn wanted<T: Task>(task: &T, data: &Dataset<'_>, plan: Option<&Plan>, options: &Options) -> u64 {
    let (parameters, width) = (u64::from(task.parameters(data.width())), task.width() as u64);
    let (samples, entries) = (data.len() as u64, data.entries() as u64);
    let threads = options.threads.get() as u64;
    let (planned, features) = (options.scheme == Scheme::Cop, task.rule() == Rule::Features);
    let numbers = 8 * parameters * width;
    let when = |condition: bool, bytes: u64| if condition { bytes } else { 0 };

    let weights = when(task.weighted(), 4 * parameters);
    let counting = when(task.weighted() || options.packed, data.counting(options.threads.get()));
    let planning = match plan {
        // While it is made, the last transaction of each parameter is known.
        None if planned && features => 4 * parameters + 8 * entries,
        None if planned => 8 * parameters + 3 * (20 * entries + 16 * samples),
        _ => 0,
    };
    let roster = when(planned && features && threads > 1, 9 * samples);
    let cycle = when(planned && options.mode == Mode::Carry, 8 * parameters);
    // All of its epochs are one run.
    let laps = when(options.mode == Mode::Carry, u64::from(options.epochs) * size_of::<Lap>() as u64);
    let places = when(options.packed, Places::bytes(parameters, entries, task.weighted()));
    // With a word, and a weight or a count of readers, beside each.
    let cells = match options.scheme {
        Scheme::Serial => numbers,
        Scheme::Hogwild if width == 1 && !task.weighted() => numbers,
        Scheme::Cop if width == 1 && !task.weighted() && options.elide && features => numbers,
        _ => numbers + 8 * parameters + weights,
    };
    // What is looked at between epochs, and what is handed out at the end; of a first epoch under locks the model goes on.
    let exported = numbers * if options.first_epoch { 2 } else { 1 };
    let scales = when(options.decay != 0.0, 16 * samples);
    let recorded = when(options.record || options.first_epoch, 44 * samples)
        + when(options.record, 4 * samples * u64::from(options.epochs));
    // Of each thread: the numbers of the longest sample, as they are read and written, its weights, locks and sets.
    let longest = data.longest() as u64;
    let buffers = threads * 2 * longest * (16 * width + 4 + 8 + 8);
    weights
        + counting
        + planning
        + roster
        + cycle
        + laps
        + places
        + cells
        + exported
        + scales
        + recorded
        + buffers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::tests::samples;
    use crate::tasks::{Linear, Loss};

    #[test]
    fn a_run_for_which_there_is_no_memory_is_refused_before_it_begins() {
        let data = samples(100, 50, 5, 1);
        let options = Options::default();
        let task = Linear::new(Loss::Hinge);
        assert_eq!(check(&task, &data, None, &options), Ok(()));
        let carried = Options { mode: Mode::Carry, epochs: u32::MAX, ..options.clone() };
        assert!(check(&task, &data, None, &carried).is_err());
        // A penalty wants to know how many samples have each feature.
        let penalised = Linear { l1: 1.0, ..task };
        assert!(wanted(&penalised, &data, None, &options) > wanted(&task, &data, None, &options));
        let plan = Plan::of(&task, &data);
        assert!(wanted(&task, &data, Some(&plan), &options) < wanted(&task, &data, None, &options));
    }
}
