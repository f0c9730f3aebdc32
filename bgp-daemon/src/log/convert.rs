//! Conversion of the driver's events to the daemon's.

use std::io;
use std::net::{IpAddr, SocketAddr};

use bgp_io::bgp_speaker::Refusal;
use bgp_io::{Event, Speaker};
use daemon_common::events::{Event as Emitted, Text, is_debugging};

use super::errors::reason;

/// Returns the event of a failed connection. `is_new`: the reason was not reported since the last
/// connection.
pub(super) fn failed_dial(
    name: &str,
    remote: SocketAddr,
    error: &io::Error,
    is_new: bool,
) -> Emitted {
    let neighbor = Text::new(name);
    let (address, port) = (remote.ip(), remote.port().into());
    let errno = error.raw_os_error().and_then(|errno| errno.try_into().ok());
    let reason = Text::new(reason(error));
    match is_new {
        true => Emitted::SessionConnectFailed {
            neighbor,
            address,
            port,
            reason,
            errno,
        },
        false => Emitted::SessionConnectRetried {
            neighbor,
            address,
            port,
            reason,
            errno,
        },
    }
}

/// Returns an event of the driver; `None` for events that are not emitted.
pub(super) fn converted(speaker: &Speaker, event: &Event) -> Option<Emitted> {
    Some(match event {
        Event::Track(track) => {
            tracing::debug!(?track, "next hop");
            return None;
        }
        Event::Refused {
            local,
            remote,
            refusal,
        } => return refused(speaker, *local, *remote, refusal),
        Event::AcceptFailed { local, error } => Emitted::ListenerAcceptFailed {
            local: *local,
            reason: Text::new(reason(error)),
        },
        Event::StrangersDropped => Emitted::ListenerStrangersDropped {},
        Event::StrangersAdmitted { dropped } => {
            Emitted::ListenerStrangersAdmitted { dropped: *dropped }
        }
        Event::OptionFailed { remote, error } => Emitted::ConnectionOptionFailed {
            address: remote.ip(),
            port: remote.port().into(),
            reason: Text::new(reason(error)),
        },
        // The speaker counts the next two as well.
        Event::TooFar { remote, why, .. } if is_debugging() => Emitted::ConnectionTooFar {
            address: remote.ip(),
            port: remote.port().into(),
            reason: Text::new(why),
        },
        Event::Unsigned { remote, .. } if is_debugging() => Emitted::ConnectionUnsigned {
            address: remote.ip(),
            port: remote.port().into(),
        },
        Event::KeyFailed { scope, error } => Emitted::PasswordFailed {
            of: Text::new(scope),
            reason: Text::new(error),
        },
        Event::KeyInstalled(scope) => Emitted::PasswordInstalled {
            of: Text::new(scope),
        },
        Event::ListenFailed(error) => Emitted::ListenerFailed {
            reason: Text::new(error),
        },
        Event::Listening(address) => Emitted::ListenerReady { local: *address },
        // Events of the speaker, failed dials and traced messages are converted elsewhere.
        _ => return None,
    })
}

/// Returns the event of a rejected connection. The speaker counts rejections in ranges, and reports
/// their sums.
fn refused(
    speaker: &Speaker,
    local: SocketAddr,
    remote: SocketAddr,
    refusal: &Refusal,
) -> Option<Emitted> {
    let is_of_range = is_of_range(speaker, remote.ip());
    let (address, port) = (remote.ip(), remote.port().into());
    let reason = || Text::new(refusal);
    match is_of_range {
        true => is_debugging().then(|| Emitted::ConnectionRefusedInRange {
            address,
            port,
            local,
            reason: reason(),
        }),
        false => Some(Emitted::ConnectionRefused {
            address,
            port,
            local,
            reason: reason(),
        }),
    }
}

/// Returns whether an address belongs to a range and to no configured neighbor.
fn is_of_range(speaker: &Speaker, remote: IpAddr) -> bool {
    let config = speaker.config();
    let is_neighbor = config.peers.iter().any(|peer| peer.remote == remote);
    !is_neighbor && config.range_of(remote).is_some()
}
