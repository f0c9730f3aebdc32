//! RFC 5880 §6.2 and §6.8.6 as data: for each state and event, the next state of a session and its
//! actions.
//!
//! A cell without a row, or with two rows, does not compile.

use core::fmt;

/// The states of RFC 5880 §6.2, in the order of their codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Disabled by the operator.
    AdminDown,
    /// No packets are received, or the remote system does not receive the local ones.
    #[default]
    Down,
    /// Packets are received; the remote system has not confirmed that it receives the local ones.
    Init,
    /// Both directions work.
    Up,
}

impl State {
    /// All states.
    pub const ALL: [Self; 4] = [Self::AdminDown, Self::Down, Self::Init, Self::Up];

    /// Returns the code of the field Sta.
    pub(crate) const fn bits(self) -> u8 {
        self as u8
    }

    /// Returns the state with the code in the lowest two bits.
    pub(crate) const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::AdminDown,
            1 => Self::Down,
            2 => Self::Init,
            _ => Self::Up,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Declares [`Event`] with its list.
macro_rules! events {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// An event of a session.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Event { $($(#[$doc])* $name,)+ }

        impl Event {
            /// All events.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];
        }
    };
}

events! {
    /// A valid packet of a remote session in the state AdminDown.
    ReceivedAdminDown,
    /// A valid packet of a remote session in the state Down.
    ReceivedDown,
    /// A valid packet of a remote session in the state Init.
    ReceivedInit,
    /// A valid packet of a remote session in the state Up.
    ReceivedUp,
    /// No valid packet was received for the detection time.
    DetectionTimeExpires,
    /// The operator disables the session.
    Disable,
    /// The operator enables the session.
    Enable,
}

impl Event {
    /// Returns the event that a packet of a remote session in `state` causes.
    pub(crate) const fn received(state: State) -> Self {
        match state {
            State::AdminDown => Self::ReceivedAdminDown,
            State::Down => Self::ReceivedDown,
            State::Init => Self::ReceivedInit,
            State::Up => Self::ReceivedUp,
        }
    }
}

/// An action of a session on a transition, in the order of the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Set the diagnostic to "control detection time expired".
    DiagnoseExpired,
    /// Set the diagnostic to "neighbor signaled session down".
    DiagnoseNeighbor,
    /// Set the diagnostic to "administratively down".
    DiagnoseAdministrative,
    /// Forget the variables of the remote system.
    Forget,
    /// Use the configured transmit interval, by a Poll Sequence.
    Accelerate,
    /// Keep the transmit interval for one detection time of the remote system, unless it leaves Up.
    Repeat,
    /// Transmit at most one packet per second.
    Slow,
    /// Send a packet at once: its contents have changed.
    Send,
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
    // AdminDown
    AdminDown + ReceivedAdminDown | ReceivedDown | ReceivedInit | ReceivedUp => AdminDown []
        "RFC 5880 §6.8.6: the packet is discarded";
    AdminDown + DetectionTimeExpires => AdminDown [Forget] "RFC 5880 §6.8.1, bfd.RemoteDiscr";
    AdminDown + Disable => AdminDown [] "RFC 5880 §6.8.16: already disabled";
    AdminDown + Enable => Down [Send] "RFC 5880 §6.8.16";

    // Down
    Down + ReceivedAdminDown | ReceivedUp => Down [] "RFC 5880 §6.8.6: no transition";
    Down + ReceivedDown => Init [Send] "RFC 5880 §6.8.6";
    Down + ReceivedInit => Up [Accelerate, Send] "RFC 5880 §6.8.6";
    Down + DetectionTimeExpires => Down [Forget] "RFC 5880 §6.8.1, bfd.RemoteDiscr";
    Down + Disable => AdminDown [DiagnoseAdministrative, Send] "RFC 5880 §6.8.16";
    Down + Enable => Down [] "RFC 5880 §6.8.16: already enabled";

    // Init
    Init + ReceivedAdminDown => Down [DiagnoseNeighbor, Send] "RFC 5880 §6.8.6";
    Init + ReceivedDown => Init [] "RFC 5880 §6.8.6: no transition";
    Init + ReceivedInit | ReceivedUp => Up [Accelerate, Send] "RFC 5880 §6.8.6";
    Init + DetectionTimeExpires => Down [DiagnoseExpired, Forget, Send] "RFC 5880 §6.8.4";
    Init + Disable => AdminDown [DiagnoseAdministrative, Send] "RFC 5880 §6.8.16";
    Init + Enable => Init [] "RFC 5880 §6.8.16: already enabled";

    // Up
    Up + ReceivedAdminDown | ReceivedDown => Down [DiagnoseNeighbor, Slow, Send] "RFC 5880 §6.8.6";
    Up + ReceivedInit | ReceivedUp => Up [] "RFC 5880 §6.8.6: no transition";
    Up + DetectionTimeExpires => Down [DiagnoseExpired, Forget, Slow, Send] "RFC 5880 §6.8.4";
    Up + Disable => AdminDown [DiagnoseAdministrative, Repeat, Slow, Send] "RFC 5880 §6.8.16";
    Up + Enable => Up [] "RFC 5880 §6.8.16: already enabled";
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
            "// Made from bfd/src/table.rs; a test keeps the two equal."
        )?;
        writeln!(f, "digraph \"RFC 5880 section 6.2\" {{")?;
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
    use std::string::ToString;

    #[test]
    fn every_cell_is_answered_by_exactly_one_row() {
        for state in State::ALL {
            for event in Event::ALL {
                let rows = ROWS
                    .iter()
                    .filter(|row| row.from.contains(&state) && row.on.contains(event));
                assert_eq!(rows.count(), 1, "{state} + {event:?}");
                let row = row(state, *event);
                assert!(row.from.contains(&state) && row.on.contains(event));
            }
        }
    }

    #[test]
    fn every_row_cites_its_section() {
        assert!(ROWS.iter().all(|row| row.cite.starts_with("RFC 5880 §")));
    }

    #[test]
    fn every_change_of_state_is_sent_and_rate_follows_it() {
        for row in ROWS {
            let changes = !row.from.contains(&row.to);
            assert_eq!(changes, row.actions.contains(&Action::Send), "{row:?}");
            let accelerates = changes && row.to == State::Up;
            let has = |action| row.actions.contains(&action);
            assert_eq!(accelerates, has(Action::Accelerate), "{row:?}");
            let slows = changes && row.from == [State::Up];
            assert_eq!(slows, has(Action::Slow), "{row:?}");
            let repeats = slows && row.to == State::AdminDown;
            assert_eq!(repeats, has(Action::Repeat), "{row:?}");
            let expires = row.on == [Event::DetectionTimeExpires];
            assert_eq!(expires, has(Action::Forget), "{row:?}");
        }
    }

    #[test]
    fn codes_of_states_are_those_of_the_rfc() {
        for (code, state) in State::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(state.bits()), code);
            assert_eq!(State::from_bits(state.bits()), state);
        }
    }

    #[test]
    fn the_drawn_graph_is_the_table() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/design");
        if !std::path::Path::new(directory).is_dir() {
            // A published crate has no documents of the repository.
            std::eprintln!("skipped: {directory} is missing");
            return;
        }
        let path = std::format!("{directory}/bfd.dot");
        let drawn = std::fs::read_to_string(&path).unwrap_or_default();
        let graph = Graph.to_string();
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&path, &graph).expect("docs/design can be written");
        } else {
            assert_eq!(
                drawn, graph,
                "run the test with UPDATE_EXPECT=1 to write it"
            );
        }
    }
}
