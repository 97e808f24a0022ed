//! Bytes between nodes and from clients: frames, streams with and without TLS, links that dial again,
//! and the emulated wide area.

pub mod emulation;
pub mod frame;
pub mod link;
pub mod stream;

pub use emulation::{Delay, Emulation};
pub use frame::{Frame, FrameBuffer, FrameError, Hello};
pub use link::Target;
pub use stream::{Acceptor, Stream};
