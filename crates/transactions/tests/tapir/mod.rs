//! TAPIR (`specs/carousel.md` 6.1, 9).

mod cluster;
mod faults;
mod latency;
mod load;
mod scripted;
