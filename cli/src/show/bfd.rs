//! Sessions of BFD.

use std::net::IpAddr;

use daemon_common::report::{BfdSession, BfdSessions};

use super::blocks::Block;
use super::cells::{clean, or_dash};
use super::grid::{finish, table};

/// Returns all sessions as a table, or all facts about those with an address.
pub(super) fn print(report: &BfdSessions, address: Option<IpAddr>) -> String {
    let Some(address) = address else {
        return all(report);
    };
    let sessions = report.sessions.iter();
    let chosen: Vec<String> = sessions
        .filter(|session| session.remote == Some(address))
        .map(details)
        .collect();
    match chosen.is_empty() {
        true => format!("no session with {address}\n"),
        false => chosen.join("\n"),
    }
}

fn all(report: &BfdSessions) -> String {
    let mut table = table(&[
        "Neighbor",
        "Local",
        "Hops",
        "State",
        "Interval",
        "Detection",
        "Downs",
        "Client",
        "Problem",
    ]);
    for session in &report.sessions {
        table.add_row([
            or_dash(session.remote),
            or_dash(session.local),
            session.hops.clone(),
            session.state.clone(),
            or_dash(session.interval_ms.map(milliseconds)),
            milliseconds(session.detection_ms),
            session.downs.to_string(),
            client(session),
            or_dash(session.problem.as_ref()),
        ]);
    }
    finish(&table)
}

fn client(session: &BfdSession) -> String {
    let name = clean(&session.client);
    match session.expires_in_s {
        Some(seconds) => format!("{name} (away, {seconds}s left)"),
        None => name,
    }
}

fn milliseconds(time: f64) -> String {
    format!("{time:.0}ms")
}

fn details(session: &BfdSession) -> String {
    let title = format!("{} by {}", or_dash(session.remote), client(session));
    let mut block = Block::titled(&title);
    block.fact("state", &session.state);
    block.fact("result", &session.liveness);
    block.fact("problem", &or_dash(session.problem.as_ref()));
    block.fact("diagnostic", &session.diagnostic);
    block.fact("local address", &or_dash(session.local));
    block.fact("interface", &or_dash(session.interface.as_ref()));
    block.fact("hops", &session.hops);
    let wanted = format!(
        "{}ms sent, {}ms received",
        session.wanted_interval_ms, session.wanted_receive_ms
    );
    block.fact("wanted intervals", &wanted);
    block.fact("interval", &or_dash(session.interval_ms.map(milliseconds)));
    block.fact("detection time", &milliseconds(session.detection_ms));
    let authentication = session.authentication.as_deref().unwrap_or("none");
    block.fact("authentication", authentication);
    block.fact("remote state", &session.remote_state);
    block.fact("remote diagnostic", &session.remote_diagnostic);
    let independent = match session.remote_independent {
        true => "independent of its control plane (C=1)",
        false => "part of its control plane (C=0)",
    };
    block.fact("remote BFD", independent);
    let discriminators = format!(
        "{} local, {} remote",
        session.local_discriminator,
        or_dash(session.remote_discriminator)
    );
    block.fact("discriminators", &discriminators);
    let packets = format!(
        "{} sent, {} received, {} discarded",
        session.sent, session.received, session.discarded
    );
    block.fact("packets", &packets);
    block.fact(
        "changes",
        &format!("{} up, {} down", session.ups, session.downs),
    );
    block.text
}
