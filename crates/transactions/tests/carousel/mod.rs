//! Carousel (`specs/carousel.md` 9).

mod latency;
mod mutations;
mod safety;
mod scripts;
