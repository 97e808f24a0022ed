//! CURP: an update is durable with witnesses, in no order, while the one that leads orders and executes it; who
//! asked has the result and its durability after one round trip.
//!
//! Source: Park and Ousterhout, *Exploiting Commutativity For Practical Fast Replication*, NSDI '19, as restated in
//! `specs/curp.md`. What its two forms share lies here: the store of a [`witness`].

pub mod witness;
