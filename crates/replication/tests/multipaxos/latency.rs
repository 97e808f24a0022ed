//! Without load, a command takes exactly the way to the leader and back and the leader's majority round.
