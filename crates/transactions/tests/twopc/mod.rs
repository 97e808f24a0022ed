//! Layered two-phase commit (`specs/carousel.md` 6.2).

mod latency;
mod mutations;
pub mod safety;
mod scripts;
