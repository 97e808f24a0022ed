//! The checker's tests. The suite of cases is also run once for each planted error, and must then fail.

mod cases;
mod explanations;
mod files;
mod fixtures;
mod mutations;
mod properties;
mod random;
mod script;
mod transactions;
