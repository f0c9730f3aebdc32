//! Reports for operators.

use bfd::{Hops, Instant, Random};
use daemon_common::report::{BfdFigures, BfdSession, BfdSessions, Limit};

use crate::config::Limits;
use crate::engine::{Engine, View};

/// The name of the daemon.
pub const DAEMON: &str = "cambric-bfd";

/// Returns all sessions.
pub(crate) fn sessions<R: Random>(engine: &Engine<R>, now: Instant) -> BfdSessions {
    let mut sessions: Vec<BfdSession> = engine.views().map(|view| session(&view, now)).collect();
    sessions.sort_by(|one, other| (one.remote, &one.client).cmp(&(other.remote, &other.client)));
    BfdSessions { sessions }
}

fn session(view: &View<'_>, now: Instant) -> BfdSession {
    let mut report = BfdSession {
        client: view.client.name.clone(),
        remote: Some(view.wanted.remote),
        wanted_interval_ms: view.wanted.interval_ms,
        wanted_receive_ms: view.wanted.receive_ms,
        interface: view.interface.map(str::to_owned),
        problem: view.problem.map(str::to_owned),
        state: "none".to_owned(),
        expires_in_s: view
            .expires
            .map(|at| at.saturating_duration_since(now).as_secs()),
        ..BfdSession::default()
    };
    let Some((way, session)) = view.session else {
        return report;
    };
    let stats = session.stats();
    report.local = Some(way.local);
    report.hops = match way.path.hops() {
        Hops::Single => "single".to_owned(),
        Hops::Multi => "multi".to_owned(),
    };
    report.state = session.state().to_string();
    report.liveness = session.liveness().to_string();
    report.diagnostic = session.diagnostic().to_string();
    report.remote_state = session.remote_state().to_string();
    report.remote_diagnostic = session.remote_diagnostic().to_string();
    report.remote_independent = session.is_remote_control_plane_independent();
    report.local_discriminator = session.local_discriminator().get();
    report.remote_discriminator = session.remote_discriminator().map(|id| id.get());
    report.interval_ms = session
        .transmit_interval()
        .map(|interval| interval.as_secs_f64() * 1000.0);
    report.detection_ms = session.detection_time().as_secs_f64() * 1000.0;
    report.authentication = session.config().authentication.as_ref().map(|auth| {
        let count = auth.keys().count();
        let keys = if count == 1 { "key" } else { "keys" };
        format!("{}, {count} {keys}", auth.auth_type())
    });
    report.sent = stats.sent;
    report.received = stats.received;
    report.discarded = stats.discarded;
    report.ups = stats.ups;
    report.downs = stats.downs;
    report
}

/// Returns the numbers for metrics.
pub(crate) fn figures<R: Random>(engine: &Engine<R>) -> BfdFigures {
    let mut figures = BfdFigures {
        clients: engine.clients() as u64,
        discarded: engine.discarded(),
        ..BfdFigures::default()
    };
    for view in engine.views() {
        figures.sessions += 1;
        if let Some((_, session)) = view.session {
            figures.up += u64::from(session.state() == bfd::State::Up);
        }
    }
    figures
}

/// Returns the limits of each user.
pub(crate) fn client_limits<R: Random>(
    engine: &Engine<R>,
    limits: &Limits,
) -> impl Iterator<Item = Limit> {
    let further = "a further session is rejected, and its client logs the reason";
    engine.loads().flat_map(move |(uid, load)| {
        let limit = |what: &str, limit: u32, key: &str, used: u64| Limit {
            of: Some(format!("user {uid}")),
            key: Some(key.to_owned()),
            ..Limit::new(what, limit.into(), further).used(used)
        };
        [
            limit("sessions", limits.sessions, "sessions", load.sessions),
            limit(
                "packets per second",
                limits.packets_per_second,
                "packets_per_second",
                load.packets_per_second(),
            ),
        ]
    })
}
