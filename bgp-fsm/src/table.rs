//! RFC 4271 §8.2.2 as data: for each state and event, the next state of a connection and its
//! actions.
//!
//! Each transport of a session runs this table by itself; the session joins the two (collisions,
//! idle hold). A cell without a row, or with two rows, does not compile.
//!
//! Departures from the RFC, with the reasons in `docs/design/session.md`: a failed dial waits in
//! Active instead of Idle; the machine of the transport that the peer dials has no ConnectRetry
//! timer; a NOTIFICATION is never sent in response to one; a malformed header in Established is
//! reported with its own code.

use core::fmt;

/// The states of RFC 4271 §8.2.2, in the order of progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Accepts no connection and dials none.
    #[default]
    Idle,
    /// Waits for its dial to succeed.
    Connect,
    /// Waits for the peer to dial, or for the next dial.
    Active,
    /// Waits for the peer's OPEN.
    OpenSent,
    /// Waits for the KEEPALIVE that accepts the local OPEN.
    OpenConfirm,
    /// Exchanges routes.
    Established,
}

impl State {
    /// All states.
    pub const ALL: [Self; 6] = [
        Self::Idle,
        Self::Connect,
        Self::Active,
        Self::OpenSent,
        Self::OpenConfirm,
        Self::Established,
    ];
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Declares [`Event`] with its list and the RFC's numbers.
macro_rules! events {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)+) => {
        /// An event of a connection (RFC 4271 §8.1).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Event { $($(#[$doc])* $name,)+ }

        impl Event {
            /// All events.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the RFC's numbers of this event.
            #[must_use]
            pub const fn numbers(self) -> &'static str {
                match self { $(Self::$name => $number,)+ }
            }
        }
    };
}

events! {
    /// Start by dialing. Also the end of an idle hold.
    Start = "1, 3, 6, 13",
    /// Start by waiting for the peer.
    StartPassive = "4, 5, 7, 13",
    /// The operator stops the session.
    Stop = "2",
    /// A local limit stops the session for a while.
    AutomaticStop = "8",
    /// The time for a dial, or between two of them, is over.
    ConnectRetryExpires = "9",
    /// The peer has been silent for too long.
    HoldExpires = "10",
    /// The keepalive timer has expired.
    KeepaliveExpires = "11",
    /// The peer has not sent its OPEN within the configured time.
    DelayOpenExpires = "12",
    /// The peer has refused to read for too long (RFC 9687).
    SendHoldExpires = "29",
    /// The transport is open and the local OPEN may be sent.
    TcpOpened = "16, 17",
    /// The transport is open and the local OPEN is delayed.
    TcpOpenedDelayed = "16, 17",
    /// The dial has failed or the transport is lost.
    TcpFailed = "18",
    /// A valid OPEN.
    Open = "19",
    /// A valid OPEN while the local one is delayed.
    OpenDelayed = "20",
    /// Octets that are not a message.
    HeaderError = "21",
    /// An invalid or unacceptable OPEN.
    OpenError = "22",
    /// The other connection is kept, not this one.
    CollisionDump = "23",
    /// The peer uses another version.
    NotificationVersion = "24",
    /// The peer ends the session.
    Notification = "25",
    /// A KEEPALIVE.
    Keepalive = "26",
    /// An UPDATE.
    Update = "27",
    /// An UPDATE error that requires a session reset.
    UpdateError = "28",
    /// A ROUTE-REFRESH (RFC 2918).
    Refresh = "RFC 2918",
    /// The peer has opened a new connection, and its host no longer acknowledges this one (RFC 4724 §5).
    Reopened = "RFC 4724",
    /// A valid OPEN in strict mode while the path is not up.
    OpenStrict = "19",
    /// The same while the local OPEN is delayed.
    OpenDelayedStrict = "20",
    /// A KEEPALIVE in strict mode while the path is not up.
    KeepaliveStrict = "26",
    /// The path that a connection in strict mode waits for is up.
    PathUp = "draft-ietf-idr-bgp-bfd-strict-mode §4",
    /// The session ends without a NOTIFICATION, for a restart (RFC 4724 §4).
    StopForRestart = "RFC 4724",
}

/// An action of a connection on a transition, in the order of the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Request a transport.
    Dial,
    /// Close the transport: timers stopped, waiting UPDATEs dropped, other octets flushed.
    Close,
    /// Count towards the idle hold.
    Fail,
    /// Queue the local OPEN.
    SendOpen,
    /// Queue a KEEPALIVE unless one is waiting.
    SendKeepalive,
    /// Queue the NOTIFICATION that belongs to the event.
    Notify,
    /// Queue the NOTIFICATION for a message that is unexpected in this state (RFC 6608).
    NotifyUnexpected,
    /// (Re)start the timer of the dial.
    StartConnectRetry,
    /// Stop it.
    StopConnectRetry,
    /// Start the timer for the peer's OPEN.
    StartDelayOpen,
    /// Stop it.
    StopDelayOpen,
    /// Start the long hold timer that waits for the OPEN.
    StartOpenHold,
    /// (Re)start the negotiated hold timer.
    StartHold,
    /// (Re)start the keepalive timer.
    StartKeepalive,
    /// Start the send hold timer.
    StartSendHold,
    /// Pass the message on.
    Deliver,
    /// Report the session as established.
    Establish,
}

/// One row: from any of these states, on any of these events, to this state with these actions.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Row {
    /// The current states.
    pub from: &'static [State],
    /// The events.
    pub on: &'static [Event],
    /// The state afterwards.
    pub to: State,
    /// The actions.
    pub actions: &'static [Action],
    /// The section of the RFC.
    pub cite: &'static str,
}

/// Rows as `from | from + event | event => to [actions] "citation";`.
macro_rules! rows {
    ($($($from:ident)|+ + $($on:ident)|+ => $to:ident [$($action:ident),*] $cite:literal;)+) => {
        &[$(Row {
            from: &[$(State::$from),+],
            on: &[$(Event::$on),+],
            to: State::$to,
            actions: &[$(Action::$action),*],
            cite: $cite,
        },)+]
    };
}

/// The transition table.
#[rustfmt::skip]
pub const ROWS: &[Row] = rows! {
    // Idle
    Idle + Start => Connect [StartConnectRetry, Dial] "RFC 4271 §8.2.2 Idle, events 1 and 3";
    Idle + StartPassive => Active [] "RFC 4271 §8.2.2 Idle, events 4 and 5";
    Idle + TcpOpened | TcpOpenedDelayed => Idle [Notify, Close] "RFC 4271 §8.2.2 Idle: refuses connections; RFC 4486 §4";
    Idle + Stop | AutomaticStop | ConnectRetryExpires | HoldExpires | KeepaliveExpires | DelayOpenExpires
         | SendHoldExpires | TcpFailed | Open | OpenDelayed | HeaderError | OpenError | CollisionDump
         | NotificationVersion | Notification | Keepalive | Update | UpdateError | Refresh | Reopened | StopForRestart
         | OpenStrict | OpenDelayedStrict | KeepaliveStrict | PathUp
        => Idle [] "RFC 4271 §8.2.2 Idle: ignored";

    // Connect
    Connect + Start | StartPassive => Connect [] "RFC 4271 §8.2.2 Connect: start events are ignored";
    Connect + Stop => Idle [Notify, Close] "RFC 4271 §8.2.2 Connect, event 2";
    Connect + ConnectRetryExpires => Connect [Close, StartConnectRetry, Dial] "RFC 4271 §8.2.2 Connect, event 9";
    Connect + DelayOpenExpires => OpenSent [SendOpen, StartOpenHold] "RFC 4271 §8.2.2 Connect, event 12";
    Connect + TcpOpened => OpenSent [StopConnectRetry, SendOpen, StartOpenHold] "RFC 4271 §8.2.2 Connect, event 16";
    Connect + TcpOpenedDelayed => Connect [StopConnectRetry, StartDelayOpen] "RFC 4271 §8.2.2 Connect, event 16 with DelayOpen";
    Connect + TcpFailed => Active [Close, StartConnectRetry] "RFC 4271 §8.2.2 Connect, event 18, as with DelayOpen";
    Connect + OpenDelayed => OpenConfirm [StopConnectRetry, StopDelayOpen, SendOpen, SendKeepalive, StartKeepalive, StartHold]
        "RFC 4271 §8.2.2 Connect, event 20";
    Connect + OpenDelayedStrict => OpenConfirm [StopConnectRetry, StopDelayOpen, SendOpen, StartOpenHold]
        "draft-ietf-idr-bgp-bfd-strict-mode §8.3.5: no KEEPALIVE before the path is up";
    Connect + PathUp => Connect [] "draft-ietf-idr-bgp-bfd-strict-mode §8.3.1: no connection waits for it";
    Connect + HeaderError | OpenError => Idle [Notify, Close, Fail] "RFC 4271 §8.2.2 Connect, events 21 and 22";
    Connect + NotificationVersion => Idle [Close] "RFC 4271 §8.2.2 Connect, event 24";
    Connect + StopForRestart => Idle [Close] "RFC 4724 §4";
    Connect + CollisionDump | Reopened => Idle [Notify, Close] "RFC 4271 §6.8, §8.2.2 Connect, event 23";
    Connect + AutomaticStop | HoldExpires | KeepaliveExpires | SendHoldExpires | Open | Notification | Keepalive
         | Update | UpdateError | Refresh | OpenStrict | KeepaliveStrict
        => Idle [Close, Fail] "RFC 4271 §8.2.2 Connect, any other event";

    // Active
    Active + Start | StartPassive => Active [] "RFC 4271 §8.2.2 Active: start events are ignored";
    Active + Stop => Idle [Notify, Close] "RFC 4271 §8.2.2 Active, event 2";
    Active + ConnectRetryExpires => Connect [StartConnectRetry, Dial] "RFC 4271 §8.2.2 Active, event 9";
    Active + DelayOpenExpires => OpenSent [SendOpen, StartOpenHold] "RFC 4271 §8.2.2 Active, event 12";
    Active + TcpOpened => OpenSent [StopConnectRetry, SendOpen, StartOpenHold] "RFC 4271 §8.2.2 Active, event 17";
    Active + TcpOpenedDelayed => Active [StopConnectRetry, StartDelayOpen] "RFC 4271 §8.2.2 Active, event 17 with DelayOpen";
    Active + TcpFailed => Idle [Close, Fail] "RFC 4271 §8.2.2 Active, event 18";
    Active + OpenDelayed => OpenConfirm [StopConnectRetry, StopDelayOpen, SendOpen, SendKeepalive, StartKeepalive, StartHold]
        "RFC 4271 §8.2.2 Active, event 20";
    Active + OpenDelayedStrict => OpenConfirm [StopConnectRetry, StopDelayOpen, SendOpen, StartOpenHold]
        "draft-ietf-idr-bgp-bfd-strict-mode §8.4.5: no KEEPALIVE before the path is up";
    Active + PathUp => Active [] "draft-ietf-idr-bgp-bfd-strict-mode §8.4.1: no connection waits for it";
    Active + HeaderError | OpenError => Idle [Notify, Close, Fail] "RFC 4271 §8.2.2 Active, events 21 and 22";
    Active + NotificationVersion => Idle [Close] "RFC 4271 §8.2.2 Active, event 24";
    Active + StopForRestart => Idle [Close] "RFC 4724 §4";
    Active + CollisionDump | Reopened => Idle [Notify, Close] "RFC 4271 §6.8, §8.2.2 Active, event 23";
    Active + AutomaticStop | HoldExpires | KeepaliveExpires | SendHoldExpires | Open | Notification | Keepalive
         | Update | UpdateError | Refresh | OpenStrict | KeepaliveStrict
        => Idle [Close, Fail] "RFC 4271 §8.2.2 Active, any other event";

    // OpenSent
    OpenSent + Start | StartPassive => OpenSent [] "RFC 4271 §8.2.2 OpenSent: start events are ignored";
    OpenSent + TcpOpened | TcpOpenedDelayed => OpenSent [] "RFC 4271 §8.2.2 OpenSent, events 16 and 17: the session tracks the other";
    OpenSent + Stop => Idle [Notify, Close] "RFC 4271 §8.2.2 OpenSent, event 2";
    OpenSent + AutomaticStop => Idle [Notify, Close, Fail] "RFC 4271 §8.2.2 OpenSent, event 8";
    OpenSent + HoldExpires => Idle [Notify, Close, Fail] "RFC 4271 §8.2.2 OpenSent, event 10";
    OpenSent + TcpFailed => Active [Close, StartConnectRetry] "RFC 4271 §8.2.2 OpenSent, event 18";
    OpenSent + Open => OpenConfirm [StopConnectRetry, SendKeepalive, StartKeepalive, StartHold] "RFC 4271 §8.2.2 OpenSent, event 19";
    OpenSent + OpenStrict => OpenConfirm [StopConnectRetry, StartOpenHold]
        "draft-ietf-idr-bgp-bfd-strict-mode §8.5.5: no KEEPALIVE before the path is up";
    OpenSent + PathUp => OpenSent [] "draft-ietf-idr-bgp-bfd-strict-mode §8.5.1: no connection waits for it";
    OpenSent + HeaderError | OpenError => Idle [Notify, Close, Fail] "RFC 4271 §8.2.2 OpenSent, events 21 and 22";
    OpenSent + StopForRestart => Idle [Close] "RFC 4724 §4";
    OpenSent + CollisionDump | Reopened => Idle [Notify, Close] "RFC 4271 §6.8, §8.2.2 OpenSent, event 23";
    OpenSent + NotificationVersion => Idle [Close] "RFC 4271 §8.2.2 OpenSent, event 24";
    OpenSent + Notification => Idle [Close, Fail] "RFC 4271 §6.4: no answer to a NOTIFICATION";
    OpenSent + ConnectRetryExpires | KeepaliveExpires | DelayOpenExpires | SendHoldExpires | OpenDelayed | Keepalive
         | Update | UpdateError | Refresh | OpenDelayedStrict | KeepaliveStrict
        => Idle [NotifyUnexpected, Close, Fail] "RFC 4271 §8.2.2 OpenSent, any other event; RFC 6608 §3";

    // OpenConfirm
    OpenConfirm + Start | StartPassive => OpenConfirm [] "RFC 4271 §8.2.2 OpenConfirm: start events are ignored";
    OpenConfirm + TcpOpened | TcpOpenedDelayed => OpenConfirm [] "RFC 4271 §8.2.2 OpenConfirm, events 16 and 17: the session tracks the other";
    OpenConfirm + Stop => Idle [Notify, Close] "RFC 4271 §8.2.2 OpenConfirm, event 2";
    OpenConfirm + AutomaticStop => Idle [Notify, Close, Fail] "RFC 4271 §8.2.2 OpenConfirm, event 8";
    OpenConfirm + HoldExpires => Idle [Notify, Close, Fail] "RFC 4271 §8.2.2 OpenConfirm, event 10";
    OpenConfirm + KeepaliveExpires => OpenConfirm [SendKeepalive, StartKeepalive] "RFC 4271 §8.2.2 OpenConfirm, event 11";
    OpenConfirm + TcpFailed | Notification => Idle [Close, Fail] "RFC 4271 §8.2.2 OpenConfirm, events 18 and 25";
    OpenConfirm + NotificationVersion => Idle [Close] "RFC 4271 §8.2.2 OpenConfirm, event 24";
    OpenConfirm + HeaderError | OpenError => Idle [Notify, Close, Fail] "RFC 4271 §8.2.2 OpenConfirm, events 21 and 22";
    OpenConfirm + StopForRestart => Idle [Close] "RFC 4724 §4";
    OpenConfirm + CollisionDump | Reopened => Idle [Notify, Close] "RFC 4271 §6.8, §8.2.2 OpenConfirm, event 23";
    OpenConfirm + Keepalive => Established [StartHold, StartSendHold, Establish] "RFC 4271 §8.2.2 OpenConfirm, event 26; RFC 9687 §3.3";
    OpenConfirm + KeepaliveStrict => OpenConfirm [] "draft-ietf-idr-bgp-bfd-strict-mode §8.5.6: counts when the path is up";
    OpenConfirm + PathUp => OpenConfirm [SendKeepalive, StartKeepalive, StartHold] "draft-ietf-idr-bgp-bfd-strict-mode §8.5.1";
    OpenConfirm + ConnectRetryExpires | DelayOpenExpires | SendHoldExpires | Open | OpenDelayed | Update | UpdateError | Refresh
         | OpenStrict | OpenDelayedStrict
        => Idle [NotifyUnexpected, Close, Fail] "RFC 4271 §8.2.2 OpenConfirm, any other event; RFC 6608 §3";

    // Established
    Established + Start | StartPassive => Established [] "RFC 4271 §8.2.2 Established: start events are ignored";
    Established + TcpOpened | TcpOpenedDelayed => Established [] "RFC 4271 §8.2.2 Established, events 16 and 17: the session tracks the other";
    Established + Stop => Idle [Notify, Close] "RFC 4271 §8.2.2 Established, event 2";
    Established + AutomaticStop => Idle [Notify, Close, Fail] "RFC 4271 §8.2.2 Established, event 8";
    Established + HoldExpires => Idle [Notify, Close, Fail] "RFC 4271 §8.2.2 Established, event 10";
    Established + SendHoldExpires => Idle [Notify, Close, Fail] "RFC 9687 §3.3";
    Established + KeepaliveExpires => Established [SendKeepalive, StartKeepalive] "RFC 4271 §8.2.2 Established, event 11";
    Established + TcpFailed | Notification | NotificationVersion => Idle [Close, Fail] "RFC 4271 §8.2.2 Established, events 18, 24 and 25";
    Established + Keepalive => Established [StartHold] "RFC 4271 §8.2.2 Established, event 26";
    Established + Update => Established [StartHold, Deliver] "RFC 4271 §8.2.2 Established, event 27";
    Established + Refresh => Established [StartHold, Deliver] "RFC 2918 §4";
    Established + UpdateError => Idle [Notify, Close, Fail] "RFC 4271 §8.2.2 Established, event 28";
    Established + HeaderError => Idle [Notify, Close, Fail] "RFC 4271 §6.1";
    Established + CollisionDump => Idle [Notify, Close] "RFC 4271 §8.2.2 Established, event 23; the session never raises it";
    Established + Reopened | StopForRestart => Idle [Close] "RFC 4724 §4, §5";
    Established + PathUp => Established [] "draft-ietf-idr-bgp-bfd-strict-mode §8.7.1: no connection waits for it";
    Established + ConnectRetryExpires | DelayOpenExpires | Open | OpenDelayed | OpenError | OpenStrict | OpenDelayedStrict
         | KeepaliveStrict
        => Idle [NotifyUnexpected, Close, Fail] "RFC 4271 §8.2.2 Established, any other event; RFC 6608 §3";
};

/// Returns the row for `event` in `state`.
#[must_use]
#[allow(clippy::indexing_slicing)] // Enums index tables of their own size, and CELLS is complete.
pub fn row(state: State, event: Event) -> &'static Row {
    &ROWS[usize::from(CELLS[state as usize][event as usize])]
}

/// The index of the row for each state and event.
const CELLS: [[u8; Event::ALL.len()]; State::ALL.len()] = cells();

/// Fills [`CELLS`]; a cell without a row, or with two rows, is a compile error here.
#[allow(clippy::indexing_slicing, clippy::panic)] // At compile time, where a panic is intended.
const fn cells() -> [[u8; Event::ALL.len()]; State::ALL.len()] {
    const NONE: u8 = u8::MAX;
    let mut cells = [[NONE; Event::ALL.len()]; State::ALL.len()];
    let mut index = 0;
    while index < ROWS.len() {
        let row = ROWS[index];
        let mut from = 0;
        while from < row.from.len() {
            let mut on = 0;
            while on < row.on.len() {
                let cell = &mut cells[row.from[from] as usize][row.on[on] as usize];
                assert!(*cell == NONE, "two rows answer the same state and event");
                *cell = index as u8;
                on += 1;
            }
            from += 1;
        }
        index += 1;
    }
    let mut state = 0;
    while state < cells.len() {
        let mut event = 0;
        while event < cells[state].len() {
            assert!(
                cells[state][event] != NONE,
                "no row answers this state and event"
            );
            event += 1;
        }
        state += 1;
    }
    cells
}

/// The table as a graph in the language of Graphviz, without transitions to the same state that
/// have no action.
pub struct Graph;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "// Made from bgp-fsm/src/table.rs; a test keeps the two equal."
        )?;
        writeln!(f, "digraph \"RFC 4271 section 8.2.2\" {{")?;
        writeln!(f, "  rankdir=LR; node [shape=box]; edge [fontsize=9];")?;
        for state in State::ALL {
            writeln!(f, "  {state};")?;
        }
        for row in ROWS
            .iter()
            .filter(|row| !row.actions.is_empty() || !row.from.contains(&row.to))
        {
            for from in row.from {
                write!(f, "  {from} -> {} [label=\"", row.to)?;
                for (index, event) in row.on.iter().enumerate() {
                    write!(f, "{}{event:?}", if index == 0 { "" } else { "\\n" })?;
                }
                writeln!(f, "\" tooltip=\"{}: {:?}\"];", row.cite, row.actions)?;
            }
        }
        writeln!(f, "}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    // Promise (BGP): Every event in every state of a session has a defined action, and the graph
    // in `docs/design/fsm.dot` is drawn from the table of these actions.
    #[test]
    fn every_cell_is_answered_by_exactly_one_row() {
        for state in State::ALL {
            for event in Event::ALL {
                let rows = ROWS
                    .iter()
                    .filter(|row| row.from.contains(&state) && row.on.contains(event));
                assert_eq!(rows.count(), 1, "{state} + {event:?}");
                let row = row(state, *event);
                assert!(
                    row.from.contains(&state) && row.on.contains(event),
                    "{state} + {event:?}"
                );
            }
        }
    }

    /// The documents that the rows cite.
    const CITED: [&str; 2] = ["RFC ", "draft-ietf-idr-bgp-bfd-strict-mode §"];

    #[test]
    fn every_row_cites_a_section_and_every_event_its_number() {
        for row in ROWS {
            assert!(
                CITED.iter().any(|cited| row.cite.starts_with(cited)),
                "{row:?}"
            );
            assert!(row.cite.contains('§'), "{row:?}");
        }
        assert!(Event::ALL.iter().all(|event| !event.numbers().is_empty()));
    }

    #[test]
    fn only_established_delivers_and_only_one_row_establishes() {
        for row in ROWS {
            assert_eq!(
                row.actions.contains(&Action::Deliver),
                row.cite.contains("2918 §4") || row.cite.ends_with("event 27")
            );
            assert_eq!(
                row.actions.contains(&Action::Establish),
                row.to == State::Established && row.from != [State::Established]
            );
        }
    }

    #[test]
    fn leaving_an_open_transport_closes_it() {
        let open = [State::OpenSent, State::OpenConfirm, State::Established];
        for row in ROWS
            .iter()
            .filter(|row| row.from.iter().any(|from| open.contains(from)))
        {
            let leaves = !open.contains(&row.to);
            assert_eq!(leaves, row.actions.contains(&Action::Close), "{row:?}");
        }
    }

    // Promise: as bgp-fsm every_cell_is_answered_by_exactly_one_row
    #[test]
    fn the_drawn_graph_is_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/design/fsm.dot");
        let drawn = std::fs::read_to_string(path).unwrap_or_default();
        let graph = Graph.to_string();
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(path, &graph).expect("docs/design can be written");
        } else {
            assert_eq!(
                drawn, graph,
                "run the test with UPDATE_EXPECT=1 to write it"
            );
        }
    }
}
