//! The program as people meet it: processes, sockets, signals, messages and exit statuses.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should panic")]

mod admin;
mod audit;
mod backup;
mod census;
mod chaos;
mod cluster;
mod corpus;
mod data_directory;
mod differential;
mod doctor;
mod durability;
mod first_hour;
mod full_disk;
#[path = "../../../node/tests/node/grammar.rs"]
mod grammar;
mod grpc;
mod hand_over;
mod hostile;
mod learn;
mod lists;
mod load;
mod memory;
mod messages;
mod net;
mod one_link;
mod orders;
mod plan;
mod processes;
mod proxy;
mod ranges;
mod ready;
mod recorded;
mod redis;
mod replace;
mod resp;
mod retwis;
mod rules;
mod safety;
mod slow_links;
mod status;
mod transactional;
mod transactions;
mod up;
mod upgrade;
mod verbs;
