//! The events of sessions.

use std::net::IpAddr;

use bfd::{Change, State};
use daemon_common::events::{Event, Text, emit};

use crate::resolve::Way;

/// Emits the event of a change.
pub(super) fn emit_change(way: &Way, change: &Change) {
    let (address, local_address) = (way.remote, way.local);
    match (change.from, change.to) {
        (State::Up, State::Up) => {}
        (_, State::Up) => emit(Event::BfdSessionUp {
            address,
            local_address,
        }),
        (State::Up, _) => emit(Event::BfdSessionDown {
            address,
            local_address,
            reason: Text::new(change.liveness),
        }),
        (_, to) => emit(Event::BfdSessionState {
            address,
            local_address,
            state: Text::new(to),
        }),
    }
}

/// Emits the event of a problem: a session with a path has another one than a session without it.
pub(super) fn emit_problem(client: &str, address: IpAddr, has_path: bool, problem: &str) {
    let (client, reason) = (Text::new(client), Text::new(problem));
    emit(match has_path {
        true => Event::BfdSessionProblem {
            client,
            address,
            reason,
        },
        false => Event::BfdNoPath {
            client,
            address,
            reason,
        },
    });
}
