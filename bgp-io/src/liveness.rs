//! The kernel's knowledge of a peer's host: whether it has acknowledged anything since a probe
//! began.

use std::os::fd::AsFd;
use std::time::Duration;

use bgp_speaker::bgp_fsm::{Instant, Probed};

use crate::limits::AGE_ROUNDING;
use crate::sockopt::{TcpFigures, tcp_figures};

/// The figures of a connection when a probe of it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Baseline {
    at: Instant,
    figures: TcpFigures,
}

impl Baseline {
    pub(crate) fn take(socket: &impl AsFd, now: Instant) -> std::io::Result<Self> {
        let figures = tcp_figures(socket)?;
        Ok(Self { at: now, figures })
    }

    /// Returns what has happened since the probe began.
    pub(crate) fn compare(&self, now: Instant, figures: &TcpFigures) -> Probed {
        let age = Duration::from_millis(u64::from(figures.received_ms_ago));
        let since = now.saturating_duration_since(self.at);
        // The count excludes segments from just before the probe; the age excludes segments that
        // TCP did not accept, for example outside the window.
        if figures.segments_in != self.figures.segments_in && age <= since + AGE_ROUNDING {
            return Probed::Answered;
        }
        let sent = figures.data_out.wrapping_sub(self.figures.data_out);
        let before = self.figures.in_flight + self.figures.repeats;
        let unanswered = before.saturating_add(sent);
        Probed::Silent { unanswered, sent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN: Instant = Instant(5_000_000_000);

    fn figures() -> TcpFigures {
        TcpFigures {
            repeats: 0,
            probes: 0,
            in_flight: 0,
            received_ms_ago: 3,
            segments_in: 100,
            data_out: 50,
        }
    }

    /// The result of a probe after so many milliseconds.
    fn after(ms: u64, before: TcpFigures, now: TcpFigures) -> Probed {
        let (at, figures) = (BEGAN, before);
        Baseline { at, figures }.compare(BEGAN + Duration::from_millis(ms), &now)
    }

    #[test]
    fn segment_since_the_probe_began_is_an_answer() {
        let now = TcpFigures {
            received_ms_ago: 30,
            segments_in: 101,
            data_out: 51,
            ..figures()
        };
        assert_eq!(after(40, figures(), now), Probed::Answered);
    }

    #[test]
    fn silence_counts_what_was_sent() {
        let now = TcpFigures {
            received_ms_ago: 43,
            data_out: 52,
            ..figures()
        };
        let expected = Probed::Silent {
            unanswered: 2,
            sent: 2,
        };
        assert_eq!(after(40, figures(), now), expected);
    }

    #[test]
    fn segment_just_before_the_probe_is_no_answer() {
        // The age alone, as rounded by the kernel, might be younger than the probe.
        let before = TcpFigures {
            received_ms_ago: 0,
            ..figures()
        };
        let now = TcpFigures {
            received_ms_ago: 40,
            ..figures()
        };
        assert!(matches!(after(40, before, now), Probed::Silent { .. }));
    }

    #[test]
    fn segment_that_tcp_did_not_accept_is_no_answer() {
        let now = TcpFigures {
            received_ms_ago: 9_040,
            segments_in: 105,
            ..figures()
        };
        let before = TcpFigures {
            received_ms_ago: 9_000,
            ..figures()
        };
        assert!(matches!(after(40, before, now), Probed::Silent { .. }));
    }

    #[test]
    fn unanswered_segments_from_before_the_probe_count() {
        let before = TcpFigures {
            repeats: 3,
            in_flight: 2,
            ..figures()
        };
        let now = TcpFigures {
            received_ms_ago: 203,
            data_out: 51,
            ..before
        };
        let expected = Probed::Silent {
            unanswered: 6,
            sent: 1,
        };
        assert_eq!(after(200, before, now), expected);
    }
}
