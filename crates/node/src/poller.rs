//! Waiting for sockets, for other threads and for a deadline, to the tenth of a millisecond.
//!
//! `epoll_wait` counts whole milliseconds, which is as long as a whole commit within a region takes;
//! on Linux a timer of the kernel's, watched like a socket, gives the deadline its precision.
//!
//! A processor that was left idle takes tens of microseconds to be woken, on a virtual machine more, which beside few
//! clients is most of what a commit within a site takes. Where a node has `idle_poll`, its loop therefore looks again
//! and again for a while before it sleeps ([`IdlePoll`]).

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
    idle: IdlePoll,
    #[cfg(target_os = "linux")]
    timer: Timer,
}

impl Poller {
    /// Looks for at most `idle_poll` before it sleeps.
    ///
    /// # Errors
    /// The system is out of descriptors.
    pub fn new(idle_poll: Span) -> io::Result<Poller> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        #[cfg(target_os = "linux")]
        let timer = Timer::new(poll.registry())?;
        Ok(Poller {
            poll,
            events: Events::with_capacity(1024),
            waker,
            idle: IdlePoll::new(idle_poll),
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
        if deadline == Instant::ZERO {
            return self.look(Some(Duration::ZERO));
        }
        let began = clock.now();
        let mut now = began;
        let until = deadline.min(began + self.idle.window);
        while now < until {
            self.look(Some(Duration::ZERO))?;
            now = clock.now();
            if !self.events.is_empty() {
                self.idle.spent += now.since(began);
                return Ok(());
            }
            // Whoever else wants this processor goes first: what is awaited may come from there.
            std::thread::yield_now();
        }
        self.idle.spent += now.since(began);
        let left = deadline.since(now);
        let timeout = if left == Span::ZERO {
            Some(Duration::ZERO)
        } else if deadline == Instant::MAX {
            None
        } else {
            self.sleep(deadline, left)?
        };
        self.look(timeout)?;
        if self.idle.most > Span::ZERO {
            self.idle.slept(clock.now().since(began));
        }
        Ok(())
    }

    /// How long it has looked again and again, instead of sleeping, since it was made.
    pub fn idle_polled(&self) -> Span {
        self.idle.spent
    }

    fn look(&mut self, timeout: Option<Duration>) -> io::Result<()> {
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

/// For how long to look again and again before sleeping: as long as that has paid of late.
///
/// Doubles when a sleep turns out to have been short, halves when it was not, and ends at nothing, so that a node whose
/// news is rare sleeps at once. (Linux' governor `haltpoll` does the same for idle processors of virtual machines.)
struct IdlePoll {
    most: Span,
    window: Span,
    spent: Span,
}

impl IdlePoll {
    fn new(most: Span) -> IdlePoll {
        IdlePoll { most, window: Span::ZERO, spent: Span::ZERO }
    }

    /// It slept, and news or a deadline came so long after it began to wait.
    fn slept(&mut self, waited: Span) {
        let (window, most) = (self.window.as_nanos(), self.most.as_nanos());
        let window = if waited < self.most {
            (window * 2).clamp(most / 4, most)
        } else if window / 2 < most / 8 {
            0
        } else {
            window / 2
        };
        self.window = Span::from_nanos(window);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_grows_while_sleeps_are_short_and_ends_when_they_are_not() {
        let mut idle = IdlePoll::new(Span::from_micros(200));
        let micros = |idle: &IdlePoll| idle.window.as_nanos() / 1_000;
        assert_eq!(micros(&idle), 0, "a node that has heard nothing sleeps at once");
        let grown: Vec<u64> = (0..4)
            .map(|_| {
                idle.slept(Span::from_micros(199));
                micros(&idle)
            })
            .collect();
        assert_eq!(grown, [50, 100, 200, 200]);
        let shrunk: Vec<u64> = (0..4)
            .map(|_| {
                idle.slept(Span::from_millis(100));
                micros(&idle)
            })
            .collect();
        assert_eq!(shrunk, [100, 50, 25, 0]);
    }

    #[test]
    fn what_comes_while_it_looks_is_found_without_a_sleep() {
        let clock = Clock::start();
        // Far longer than this test takes, so that only finding something ends the look.
        let mut poller = Poller::new(Span::from_secs(3_600)).unwrap();
        poller.idle.window = poller.idle.most;
        let waker = poller.waker();
        let sent = std::thread::spawn(move || waker.wake());
        poller.wait(Instant::MAX, clock).unwrap();
        sent.join().unwrap().unwrap();
        assert_eq!(poller.ready().map(|ready| ready.token).collect::<Vec<_>>(), [WAKER]);
        assert!(poller.idle_polled() > Span::ZERO);
        assert_eq!(
            poller.idle.window, poller.idle.most,
            "a look that found something says nothing of sleeps"
        );
    }

    #[test]
    fn a_look_ends_at_the_deadline_and_one_in_vain_is_followed_by_a_sleep() {
        let clock = Clock::start();
        let mut poller = Poller::new(Span::from_secs(3_600)).unwrap();
        poller.idle.window = poller.idle.most;
        let deadline = clock.now() + Span::from_millis(1);
        poller.wait(deadline, clock).unwrap();
        assert!(clock.now() >= deadline);
        assert_eq!(poller.ready().count(), 0);

        // A window that is over long before the deadline, and a sleep longer than pays.
        let mut poller = Poller::new(Span::from_micros(80)).unwrap();
        poller.idle.window = poller.idle.most;
        let deadline = clock.now() + Span::from_millis(1);
        poller.wait(deadline, clock).unwrap();
        assert!(clock.now() >= deadline);
        assert_eq!(poller.idle.window, Span::from_micros(40));
        assert!(poller.idle_polled() >= Span::from_micros(80));
    }
}
