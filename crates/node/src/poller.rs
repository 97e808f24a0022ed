//! Waiting for sockets, for other threads and for a deadline, to the tenth of a millisecond.
//!
//! `epoll_wait` counts whole milliseconds, which is as long as a whole commit within a region takes;
//! on Linux a timer of the kernel's, watched like a socket, gives the deadline its precision.

use crate::clock::Clock;
use isochrone_core::{Instant, Span};
use mio::{Events, Poll, Registry, Token, Waker};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The token of the waker.
pub const WAKER: Token = Token(0);
/// The token of the deadline.
pub const DEADLINE: Token = Token(1);
/// The first token that is free for sockets.
pub const FIRST_FREE: usize = 2;

/// What one socket has to say.
#[derive(Copy, Clone, Debug)]
pub struct Ready {
    /// Which.
    pub token: Token,
    /// There is something to read, the end or an error included.
    pub readable: bool,
    /// The other end has closed, or the connection is broken.
    pub closed: bool,
    /// It takes bytes, or never will again.
    pub writable: bool,
}

/// See the module's page.
pub struct Poller {
    poll: Poll,
    events: Events,
    waker: Arc<Waker>,
    #[cfg(target_os = "linux")]
    timer: Timer,
}

impl Poller {
    /// # Errors
    /// The system is out of descriptors.
    pub fn new() -> io::Result<Poller> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        #[cfg(target_os = "linux")]
        let timer = Timer::new(poll.registry())?;
        Ok(Poller {
            poll,
            events: Events::with_capacity(1024),
            waker,
            #[cfg(target_os = "linux")]
            timer,
        })
    }

    /// Where sockets are registered.
    pub fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Ends a wait from another thread.
    pub fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    /// Waits until a socket has news, the waker was used, or `deadline` has come. [`Instant::ZERO`] does
    /// not wait at all.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub fn wait(&mut self, deadline: Instant, clock: Clock) -> io::Result<()> {
        let left = if deadline == Instant::ZERO { Span::ZERO } else { deadline.since(clock.now()) };
        let timeout = if left == Span::ZERO {
            Some(Duration::ZERO)
        } else if deadline == Instant::MAX {
            None
        } else {
            self.sleep(deadline, left)?
        };
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.events.clear();
                Ok(())
            }
            other => other,
        }
    }

    /// What the last wait has found.
    pub fn ready(&self) -> impl Iterator<Item = Ready> + '_ {
        self.events.iter().map(|event| {
            let closed = event.is_read_closed() || event.is_error();
            Ready {
                token: event.token(),
                readable: event.is_readable() || closed,
                closed,
                writable: event.is_writable() || event.is_write_closed() || event.is_error(),
            }
        })
    }

    #[cfg(target_os = "linux")]
    fn sleep(&mut self, deadline: Instant, left: Span) -> io::Result<Option<Duration>> {
        self.timer.arm(deadline, left)?;
        Ok(None)
    }

    #[cfg(not(target_os = "linux"))]
    fn sleep(&mut self, _deadline: Instant, left: Span) -> io::Result<Option<Duration>> {
        Ok(Some(Duration::from_nanos(left.as_nanos())))
    }
}

#[cfg(target_os = "linux")]
struct Timer {
    descriptor: std::os::fd::OwnedFd,
    /// What it is set to.
    deadline: Instant,
}

#[cfg(target_os = "linux")]
impl Timer {
    fn new(registry: &Registry) -> io::Result<Timer> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        use std::os::fd::AsRawFd;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let raw = descriptor.as_raw_fd();
        registry.register(&mut mio::unix::SourceFd(&raw), DEADLINE, mio::Interest::READABLE)?;
        Ok(Timer { descriptor, deadline: Instant::MAX })
    }

    /// Watching is edge-triggered and setting it anew takes back an old edge, so it need not be read.
    fn arm(&mut self, deadline: Instant, left: Span) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        if self.deadline == deadline {
            return Ok(());
        }
        const SECOND: u64 = 1_000_000_000;
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Never zero, which would switch it off: the caller does not wait then.
        let nanos = left.as_nanos();
        let it_value = Timespec { tv_sec: (nanos / SECOND) as _, tv_nsec: (nanos % SECOND) as _ };
        let set = Itimerspec { it_interval: zero, it_value };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::empty(), &set)?;
        self.deadline = deadline;
        Ok(())
    }
}
