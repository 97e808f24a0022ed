//! TAPIR (`specs/carousel.md` 6.1, 9).

mod latency;
