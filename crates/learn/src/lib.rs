//! Conflict order planning: learning with many threads, bit for bit what one thread would have learnt.
//!
//! A step of stochastic gradient descent is a transaction over the parameters of a model, and which parameters a sample
//! touches is known before it is learnt from. One pass over the samples ([`Plan`]) writes down which version of each
//! parameter each sample has to read and to replace; the threads then compare integers instead of taking locks.
//! Source: Nawab, *Global-Scale Data Management with Strong Consistency Guarantees*, chapter 6.
//!
//! | room | what it holds |
//! |---|---|
//! | [`data`] | samples in compressed sparse rows, owned or borrowed |
//! | [`generate`] | synthetic data with the conflicts of the published experiments |
//! | [`global`] | data that is born in several regions, learnt from at one centre, exactly once |
//! | [`plan`] | the order of conflicts: planning it, its two forms |
//! | [`read`] | samples from files: svmlight and Vowpal Wabbit text, compressed or not, whole or in batches |
//! | [`saved`] | models in files, ready to predict |
//! | [`task`] | what is learnt: which parameters a sample touches, and what it makes of them |
//! | [`exec`] | five schemes of execution, from one thread to many |
//! | [`write`](mod@write) | files that are there whole or not at all |
//! | [`tasks`] | linear models and factorisation, ready to use, and what their predictions are worth |

pub mod data;
pub mod exec;
pub mod generate;
pub mod global;
mod memory;
pub mod plan;
pub mod read;
pub mod saved;
mod shares;
pub mod task;
pub mod tasks;
pub mod write;

pub use data::{DataError, Dataset, Rows, Sample, Value, Values};
pub use exec::{EpochEnd, Mode, Model, Options, Report, Schedule, Scheme, Stop, TrainError, train};
pub use memory::{NoRoom, can_hold, can_hold_thread};
pub use plan::Plan;
pub use task::{Rule, Sets, Step, Task};
