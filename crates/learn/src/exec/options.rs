//! What a run is told: scheme, threads, epochs, sizes of steps.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How the threads keep out of each other's way.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Scheme {
    /// One thread, in the planned order: the reference for all others.
    Serial,
    /// Conflict order planning: every thread waits for the planned versions. Bit for bit what [`Scheme::Serial`] gives.
    #[default]
    Cop,
    /// No coordination: updates may overwrite each other. As fast as it gets, and not serializable with two threads.
    Hogwild,
    /// Every parameter of a sample is locked, in ascending order. Serializable in an order found at run time.
    Locking,
    /// Optimistic: values are read without locks and validated when they are written. Serializable like locking.
    Occ,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Scheme; 5] = [Scheme::Serial, Scheme::Cop, Scheme::Hogwild, Scheme::Locking, Scheme::Occ];

    /// Its name on command lines and in Python.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Serial => "serial",
            Scheme::Cop => "cop",
            Scheme::Hogwild => "hogwild",
            Scheme::Locking => "locking",
            Scheme::Occ => "occ",
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A scheme by a name that none has.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no scheme \"{0}\": use serial, cop, hogwild, locking or occ")]
pub struct UnknownScheme(pub String);

impl FromStr for Scheme {
    type Err = UnknownScheme;

    fn from_str(name: &str) -> Result<Scheme, UnknownScheme> {
        let found = Scheme::ALL.into_iter().find(|scheme| scheme.name() == name);
        found.ok_or_else(|| UnknownScheme(name.to_string()))
    }
}

/// Size of the step for a sample: by its epoch and by how many samples were learnt from before. Both follow from the
/// planned order, so every scheme takes the same steps.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Schedule {
    /// `initial` in the first epoch, multiplied by `decay` after each.
    Geometric {
        /// Size in the first epoch.
        initial: f64,
        /// Factor from epoch to epoch.
        decay: f64,
    },
    /// Always the same.
    Constant(f64),
    /// `initial / t^power`, where `t` counts samples from 1.
    InverseScaling {
        /// Size for the first sample.
        initial: f64,
        /// Exponent.
        power: f64,
    },
    /// `1 / (alpha (t0 + t))`, where `t` counts samples from 0.
    Optimal {
        /// Strength of the regularisation.
        alpha: f64,
        /// Samples that the first size pretends to have been learnt from; above 0.
        t0: f64,
    },
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::Geometric { initial, decay } => write!(f, "steps of {initial}, times {decay} an epoch"),
            Schedule::Constant(size) => write!(f, "steps of {size}"),
            Schedule::InverseScaling { initial, power } => write!(f, "steps of {initial} / t^{power}"),
            Schedule::Optimal { alpha, t0 } => write!(f, "steps of 1 / ({alpha} ({t0} + t))"),
        }
    }
}

impl Default for Schedule {
    /// The published one: 0.1, multiplied by 0.9 after each epoch.
    fn default() -> Schedule {
        Schedule::Geometric { initial: 0.1, decay: 0.9 }
    }
}

/// What happens between two epochs.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// All threads meet at the end of an epoch, and versions start again at 0.
    #[default]
    Reset,
    /// No meeting: versions go on, and a thread may be in the next epoch while another is still in this one. An intercept
    /// lags over the border of the epochs too, so its value is not exactly that of [`Mode::Reset`].
    Carry,
}

/// Ends a run from outside: clones are one, and whoever has one may ask. Each thread then ends with the sample that it is at,
/// and the run with [`super::TrainError::Interrupted`].
#[derive(Clone, Default, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Ends the run, and those that begin later with this.
    pub fn ask(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether somebody has asked.
    #[inline(always)]
    pub fn is_asked(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// How to train.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the threads keep out of each other's way.
    pub scheme: Scheme,
    /// Number of threads. [`Scheme::Serial`] always uses one, and nobody more than 32 or four for each processor, whichever is
    /// more: further ones only keep those from running that they wait for.
    pub threads: NonZeroUsize,
    /// Passes over the data.
    pub epochs: u32,
    /// Sizes of steps.
    pub schedule: Schedule,
    /// Samples learnt from before this run, from which schedules by sample go on.
    pub seen: u64,
    /// Epochs before this run, of whatever data, from which schedules by epoch go on.
    pub epochs_before: u32,
    /// Weight decay: each step takes this, times its size, of every weight of the model, whether the sample has the feature or
    /// not; what is minimised then has `decay` / 2 Σ w² for each sample. For tasks that [`crate::Task::decays`], in
    /// [`Mode::Reset`].
    pub decay: f64,
    /// What happens between two epochs.
    pub mode: Mode,
    /// Whether reads whose version only their own transaction replaces go uncounted. Changes speed, never results.
    pub elide: bool,
    /// Whether parameters lie in memory by how many samples touch them, rather than by their numbers. Changes speed, never
    /// results: an epoch takes less time where the model is larger than the caches. What it takes is found out once for a plan
    /// and stays with it: four bytes an entry, eight for tasks that are [`crate::Task::weighted`]. For [`Scheme::Cop`] with a
    /// compact plan and `elide`, and tasks of one number a feature.
    pub packed: bool,
    /// Consecutive transactions that a thread takes at a time; 0 for what suits the scheme (1 where neighbours may have to
    /// wait for each other, else 16).
    pub chunk: u32,
    /// How long the whole pool may stand still before the run is given up as stuck.
    pub patience: Duration,
    /// Whether [`Scheme::Cop`] without a plan makes it during the first epoch, which then runs under locks.
    pub first_epoch: bool,
    /// Whether [`Scheme::Locking`] and [`Scheme::Occ`] record the order in which samples were committed.
    pub record: bool,
    /// Ends the run before its time.
    pub stop: Stop,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            scheme: Scheme::Cop,
            threads: NonZeroUsize::MIN,
            epochs: 20,
            schedule: Schedule::default(),
            seen: 0,
            epochs_before: 0,
            decay: 0.0,
            mode: Mode::Reset,
            elide: true,
            packed: false,
            chunk: 0,
            patience: Duration::from_secs(30),
            first_epoch: false,
            record: false,
            stop: Stop::default(),
        }
    }
}

impl Options {
    /// The same, with no more threads than are of use.
    pub(crate) fn with_useful_threads(mut self) -> Options {
        let processors = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let four = NonZeroUsize::MIN.saturating_add(3);
        self.threads = self.threads.min(processors.saturating_mul(four).max(USEFUL));
        self
    }
}

/// Threads that are never too many.
const USEFUL: NonZeroUsize = NonZeroUsize::MIN.saturating_add(31);

/// A schedule for a run over a given number of samples.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Steps {
    schedule: Schedule,
    seen: u64,
    epochs_before: u32,
    samples: u64,
    decay: f64,
}

impl Steps {
    pub(crate) fn new(options: &Options, samples: u32) -> Steps {
        let Options { schedule, seen, epochs_before, decay, .. } = *options;
        Steps { schedule, seen, epochs_before, samples: u64::from(samples.max(1)), decay }
    }

    /// For samples of which nobody knows how many there will be: all of one epoch.
    pub(crate) fn endless(options: &Options) -> Steps {
        let Options { schedule, seen, epochs_before, .. } = *options;
        Steps { schedule, seen, epochs_before, samples: u64::MAX, decay: 0.0 }
    }

    /// Goes on after this many more samples.
    pub(crate) fn go_on(&mut self, samples: u64) {
        self.seen += samples;
    }

    /// Samples learnt from before.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// What all samples of an epoch share, so that [`Steps::size`] need not work it out for each.
    pub(crate) fn epoch(&self, epoch: u32) -> Epoch {
        let size = match self.schedule {
            Schedule::Geometric { initial, decay } => {
                // By multiplication, as the specification has it: a power may differ in the last bit.
                let times = self.epochs_before.saturating_add(epoch);
                match times {
                    0..1000 => (0..times).fold(initial, |size, _| size * decay),
                    _ => initial * decay.powi(times.min(i32::MAX as u32) as i32),
                }
            }
            Schedule::Constant(size) => size,
            Schedule::InverseScaling { .. } | Schedule::Optimal { .. } => 0.0,
        };
        Epoch { size, before: self.seen.wrapping_add(u64::from(epoch).wrapping_mul(self.samples)) }
    }

    /// Size of the step for the sample at this place (from 0) of the planned order.
    #[inline(always)]
    pub(crate) fn size(&self, epoch: &Epoch, position: u32) -> f64 {
        let t = (epoch.before + u64::from(position)) as f64;
        match self.schedule {
            Schedule::Geometric { .. } | Schedule::Constant(_) => epoch.size,
            Schedule::InverseScaling { initial, power } => initial / (t + 1.0).powf(power),
            Schedule::Optimal { alpha, t0 } => 1.0 / (alpha * (t0 + t)),
        }
    }

    /// The size of all steps of an epoch, where it is the same.
    pub(crate) fn same(&self, epoch: &Epoch) -> Option<f64> {
        match self.schedule {
            Schedule::Geometric { .. } | Schedule::Constant(_) => Some(epoch.size),
            Schedule::InverseScaling { .. } | Schedule::Optimal { .. } => None,
        }
    }

    /// Whether weights decay.
    pub(crate) fn decays(&self) -> bool {
        self.decay != 0.0
    }

    /// What a step of this size leaves of every weight. Where a step were to take a weight past 0 it takes nearly all of it.
    #[inline(always)]
    pub(crate) fn leaves(&self, size: f64) -> f64 {
        (1.0 - size * self.decay).max(0.001)
    }
}

/// A scale below this is taken into the weights: long before it could be lost, and so rarely that it costs nothing.
pub(crate) const SMALLEST: f64 = 1e-200;

/// See [`Steps::epoch`].
#[derive(Copy, Clone, Debug)]
pub(crate) struct Epoch {
    size: f64,
    before: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_known_by_their_names() {
        for scheme in Scheme::ALL {
            assert_eq!(scheme.to_string().parse(), Ok(scheme));
        }
        let unknown = "ideal".parse::<Scheme>().unwrap_err().to_string();
        assert_eq!(unknown, "there is no scheme \"ideal\": use serial, cop, hogwild, locking or occ");
    }

    #[test]
    fn sizes_of_steps_go_on_where_the_last_run_ended() {
        let sizes = |schedule, seen, epochs_before| {
            let steps = Steps::new(&Options { schedule, seen, epochs_before, ..Options::default() }, 10);
            [(0, 0), (0, 9), (1, 0), (2, 3)]
                .map(|(epoch, position)| steps.size(&steps.epoch(epoch), position))
        };
        assert_eq!(sizes(Schedule::default(), 0, 0), [0.1, 0.1, 0.1 * 0.9, 0.1 * 0.9 * 0.9]);
        // Of however many samples an epoch was before.
        assert_eq!(sizes(Schedule::default(), 1_000, 1)[0], 0.1 * 0.9);
        let inverse = Schedule::InverseScaling { initial: 1.0, power: 1.0 };
        assert_eq!(sizes(inverse, 0, 0), [1.0, 0.1, 1.0 / 11.0, 1.0 / 24.0]);
        assert_eq!(sizes(inverse, 10, 0)[0], sizes(inverse, 0, 7)[2]);
        let optimal = Schedule::Optimal { alpha: 0.5, t0: 2.0 };
        assert_eq!(sizes(optimal, 0, 0)[..2], [1.0, 1.0 / 5.5]);
    }
}
