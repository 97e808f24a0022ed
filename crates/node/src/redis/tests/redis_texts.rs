//! The texts of errors against those of redis-server 7.0.15, taken down from it: programs compare them.

use super::{World, encode};
use crate::gateway::Login;

#[test]
fn wrong_arguments_are_refused_in_the_words_of_redis() {
    let mut wrong = String::new();
    for line in include_str!("redis_texts.txt").lines() {
        let (request, text) = line.split_once(" => ").unwrap();
        let mut world = World::new(Login::Open);
        let words: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
        world.receive(&encode(&words));
        let reply = String::from_utf8_lossy(&world.out).into_owned();
        if reply != format!("-{text}\r\n") || !world.requests.is_empty() {
            wrong.push_str(&format!("{request}\n  redis {text}\n  here  {reply:?} {:?}\n", world.requests));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
