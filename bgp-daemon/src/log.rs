//! What happens, in the log.

use bgp_io::{Event, Speaker};
use intent::report::{self, Weight};

/// Logs one event of the driver.
pub(crate) fn event(speaker: &Speaker, event: &Event) {
    match event {
        Event::Speaker(event) => {
            let line = report::line(speaker, event);
            match line.weight {
                Weight::Debug => tracing::debug!("{}", line.text),
                Weight::Info => tracing::info!("{}", line.text),
                Weight::Warn => tracing::warn!("{}", line.text),
            }
        }
        Event::Track(track) => tracing::debug!(?track, "next hop"),
        Event::Gone(_) => {}
        Event::Refused {
            remote, refusal, ..
        } => {
            tracing::warn!("connection of {remote} refused: {refusal}");
        }
        Event::DialFailed {
            peer,
            remote,
            error,
        } => {
            tracing::debug!(
                "neighbor {}: dialling {remote}: {error}",
                speaker.peer_name(*peer)
            );
        }
        Event::AcceptFailed { local, error } => {
            tracing::warn!("cannot accept connections on {local} for now: {error}");
        }
        Event::OptionFailed { remote, error } => {
            tracing::warn!(
                "connection with {remote} closed: TCP-MD5 or GTSM cannot be set on it: {error}"
            );
        }
        Event::Unsigned { remote, .. } => {
            tracing::warn!(
                "connection of {remote} closed: there is a password, but the connection came \
                 before the kernel had it"
            );
        }
        Event::KeyFailed { error, .. } => {
            tracing::error!("{error}; nobody it is for is let in until then");
        }
        Event::KeySettled(whose) => tracing::info!("{whose}: the kernel has the password now"),
        Event::ListenFailed(error) => tracing::error!("{error}; it is tried again"),
        Event::Listening(address) => tracing::info!("listening on {address}"),
    }
}
