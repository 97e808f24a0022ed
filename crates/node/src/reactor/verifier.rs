//! The thread that checks passwords.

use super::clients::Recipient;
use crate::gateway::Secret;
use crate::security;
use isochrone_core::deployment::User;
use mio::Waker;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};

/// Who wants to know.
#[derive(Copy, Clone)]
pub(crate) enum Asker {
    /// A session.
    Session(Recipient),
    /// Calls with this fingerprint of user and password, from this address.
    Calls([u8; 32], IpAddr),
}

/// The thread that checks passwords: each check takes tens of milliseconds of a core and 19 MiB.
pub struct Verifier {
    queue: SyncSender<(Asker, String, Secret)>,
    pub(super) done: Receiver<(Asker, bool)>,
}

impl Verifier {
    /// Starts the thread; it ends with the shard.
    ///
    /// # Errors
    /// The operating system gave no thread.
    pub fn start(users: Vec<User>, waiting: usize, waker: Arc<Waker>) -> io::Result<Verifier> {
        let (queue, asked) = sync_channel::<(Asker, String, Secret)>(waiting);
        let (verdict, done) = channel();
        std::thread::Builder::new().name("passwords".into()).spawn(move || {
            for (to, user, password) in asked {
                if verdict.send((to, security::verify(&users, &user, &password))).is_err() {
                    return;
                }
                // A poll that is gone needs no waking.
                let _ = waker.wake();
            }
        })?;
        Ok(Verifier { queue, done })
    }

    pub(super) fn ask(&self, to: Asker, user: String, password: Secret) -> Result<(), ()> {
        match self.queue.try_send((to, user, password)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(()),
        }
    }
}
