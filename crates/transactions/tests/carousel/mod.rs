//! Carousel (`specs/carousel.md` 9).

mod latency;
mod mutations;
pub mod safety;
mod scripts;
