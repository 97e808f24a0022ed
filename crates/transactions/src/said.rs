//! What overtakes what between clients and replicas.

use isochrone_core::{Effects, Process, ProcessId};

/// What may be said by processes of a protocol.
pub trait Said {
    /// Whether it carries values, or may be large for another reason. What does not may overtake what does.
    fn carries(&self) -> bool;
}

/// As [`Effects::send`]: ahead of what waits, where it carries nothing.
pub(crate) fn say<P: Process<Message: Said>>(to: ProcessId, message: P::Message, effects: &mut Effects<P>) {
    effects.urgently_if(!message.carries(), |effects| effects.send(to, message));
}

/// As [`say`], by [`Effects::send_ahead`].
pub(crate) fn say_ahead<P: Process<Message: Said>>(
    to: ProcessId,
    message: P::Message,
    effects: &mut Effects<P>,
) {
    effects.urgently_if(!message.carries(), |effects| effects.send_ahead(to, message));
}
