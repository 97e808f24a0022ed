//! What is learnt: which parameters a sample touches, and what it makes of them.

use crate::data::{Sample, Value};

/// Which parameters a sample reads and writes. A plan is valid for one rule only: its id is stored with the plan.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Rule {
    /// It reads and writes the parameters of its own features, and no others: what linear models do. Such plans have a
    /// compact form of four bytes an entry.
    Features,
    /// Sets of the task's own, told by [`Task::sets`]. The number names them: two tasks with the same number must name
    /// the same sets for the same sample. 0 and [`u32::MAX`] count as the same number.
    Own(u32),
}

impl Rule {
    /// How a stored plan names it: no rule of a task's own as [`Rule::Features`].
    pub fn id(self) -> u32 {
        match self {
            Rule::Features => 0,
            // 0 is what one takes first, and is not to be taken for the features.
            Rule::Own(0) => u32::MAX,
            Rule::Own(id) => id,
        }
    }
}

/// The parameters that a sample reads and those that it writes, each at most once in each set, and all of them below
/// [`Task::parameters`].
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Sets {
    /// In the order in which their values are handed to [`Task::compute`].
    pub reads: Vec<u32>,
    /// In the order in which [`Task::compute`] hands their values back.
    pub writes: Vec<u32>,
}

/// What a step takes beside the sample and what it read.
#[derive(Copy, Clone, Debug)]
pub struct Step<'a> {
    /// Step size of the epoch that the sample is learnt from in.
    pub size: f64,
    /// Intercept to use: that of the model that learning began with, where the task has none.
    pub intercept: f64,
    /// For each parameter read, one over the number of samples that touch it (1 / d_u); empty where the task did not ask
    /// for it ([`Task::weighted`]).
    pub weights: &'a [f32],
    /// What the values read are to be multiplied by, and those written to be divided by: 1 but for a task that
    /// [`Task::decays`].
    pub scale: [f64; 2],
}

/// A task of learning: pure, deterministic, and the only place where a model's values change.
///
/// Parameters are numbered from 0 to [`Task::parameters`] and hold [`Task::width`] numbers each. One shared function
/// serves every scheme, so that what two schemes compute can differ by the order of the samples only.
///
/// A task of one's own: how often each word follows itself or another. A sample has two features, the word before and the
/// word; only the pair's own parameter is written, and the word before is read to tell how sure to be. Its sets are not
/// its features, so it names them.
///
/// ```
/// use isochrone_learn::{Dataset, Model, Options, Rule, Sample, Scheme, Sets, Step, Task, Value, Values, train};
/// use std::ops::ControlFlow;
///
/// struct Follows {
///     words: u32,
/// }
///
/// impl Task for Follows {
///     fn rule(&self) -> Rule {
///         Rule::Own(1000)
///     }
///
///     // A count for each word, and one for each pair of words.
///     fn parameters(&self, words: u32) -> u32 {
///         words + words * words
///     }
///
///     fn sets<V: Value>(&self, sample: &Sample<'_, V>, sets: &mut Sets) {
///         let [before, word] = [sample.features[0], sample.features[1]];
///         let pair = self.words + before * self.words + word;
///         sets.reads.extend([before, pair]);
///         sets.writes.extend([before, pair]);
///     }
///
///     fn compute<V: Value>(&self, _: &Sample<'_, V>, _: &Step<'_>, read: &[f64], write: &mut [f64]) -> f64 {
///         write[0] = read[0] + 1.0;
///         // Moves towards 1 the slower, the more was seen of the word before: what comes first matters.
///         write[1] = read[1] + (1.0 - read[1]) / write[0];
///         0.0
///     }
/// }
///
/// let pairs = vec![0, 1, 0, 2, 1, 0, 0, 1];
/// let values = Values::F32(vec![1.0; 8].into());
/// let data = Dataset::new(vec![0, 2, 4, 6, 8], pairs, values, vec![0.0; 4], 3)?;
/// let task = Follows { words: 3 };
/// let learn = |scheme, threads: usize| {
///     let mut model = Model::zeros(&task, data.width());
///     let options = Options { scheme, threads: threads.try_into().unwrap(), epochs: 2, ..Options::default() };
///     train(&task, &data, None, &mut model, &options, &mut |_| ControlFlow::Continue(())).map(|_| model)
/// };
/// // Bit for bit what one thread learns, though the order of the samples matters.
/// assert_eq!(learn(Scheme::Cop, 2)?, learn(Scheme::Serial, 1)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Task: Sync {
    /// Which sets [`Task::sets`] tells.
    fn rule(&self) -> Rule {
        Rule::Features
    }

    /// How many parameters there are for data with this many features.
    fn parameters(&self, features: u32) -> u32 {
        features
    }

    /// How many numbers a parameter holds: 1 for linear models, the rank for a factorisation.
    fn width(&self) -> usize {
        1
    }

    /// Whether [`Step::weights`] is wanted.
    fn weighted(&self) -> bool {
        false
    }

    /// Whether [`Task::compute`] heeds [`Step::scale`], so that weights can decay ([`crate::Options::decay`]): all of them at
    /// every step, which no step could do to each. Values are kept divided by what has become of a weight of 1 that nothing
    /// else has moved, which follows from the planned order alone.
    fn decays(&self) -> bool {
        false
    }

    /// Whether the sum of what [`Task::compute`] returns is to move an intercept.
    fn intercept(&self) -> bool {
        false
    }

    /// In one line, what tells it from other tasks of its rule and width: a centre that is opened again goes on with what it was
    /// begun with ([`crate::global::Center::open`]), and refuses another line than it was begun with.
    fn settings(&self) -> String {
        String::new()
    }

    /// Writes the sets of a sample into `sets`, which is empty. Never asked under [`Rule::Features`].
    fn sets<V: Value>(&self, sample: &Sample<'_, V>, sets: &mut Sets) {
        sets.reads.extend_from_slice(sample.features);
        sets.writes.extend_from_slice(sample.features);
    }

    /// The new values of the parameters written, from the values of those read: `read` has [`Task::width`] numbers for
    /// each parameter of the read set, `write` as many for each of the write set. Under [`Rule::Features`] both sets are the
    /// features of the sample. Returns the derivative of the loss by the prediction, which moves the intercept.
    fn compute<V: Value>(
        &self,
        sample: &Sample<'_, V>,
        step: &Step<'_>,
        read: &[f64],
        write: &mut [f64],
    ) -> f64;

    /// What [`Task::compute`] has made of these values comes to nothing ([`crate::Scheme::Occ`] begins the sample again): for a task
    /// that keeps account of what it does. The thread that has computed it says so. `write` is room for as many numbers as before.
    fn taken_back<V: Value>(
        &self,
        _sample: &Sample<'_, V>,
        _step: &Step<'_>,
        _read: &[f64],
        _write: &mut [f64],
    ) {
    }
}
