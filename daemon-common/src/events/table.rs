//! The table of events: for each its name, level, message and fields.
//!
//! The enum, the history, the log, the control socket and `docs/operate/events.md` are made from the
//! rows. Names and fields are an interface: they are added, never renamed or removed, unless
//! [`VERSION`] grows. `names.txt` has them as they were committed; a test compares both.

#[macro_use]
mod session;
#[macro_use]
mod route;
#[macro_use]
mod datastore;
#[macro_use]
mod endpoint;
#[macro_use]
mod daemon;
#[macro_use]
mod bfd;
#[macro_use]
mod kubernetes;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use serde_json::{Map, Value};
use tracing::Level;

use super::field::{Field, Text};

/// The version of names and fields.
pub const VERSION: u32 = 1;

/// One row: an event that daemons emit.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The stable name: `session.established`.
    pub name: &'static str,
    /// How severe it is.
    pub level: Level,
    /// Its destinations.
    pub delivery: Delivery,
    /// The message of its log line, which is the same each time.
    pub message: &'static str,
    /// Its meaning.
    pub doc: &'static str,
    /// Its fields, in the order of the log line.
    pub fields: &'static [FieldKind],
}

impl Kind {
    /// Whether its events are about a route.
    pub(super) fn has_prefix(&self) -> bool {
        self.fields.iter().any(|field| field.of == IpNet::TYPE)
    }
}

/// Where the events of a row go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Into the log and the history.
    Kept,
    /// Into the log and the history, where many at once are summarized; each one to the readers that
    /// watch it.
    Each,
    /// To the readers that watch it, and nowhere else.
    OnDemand,
}

/// A field of an event.
#[derive(Clone, Copy, Debug)]
pub struct FieldKind {
    /// The stable name: `neighbor`.
    pub name: &'static str,
    /// The type of its values: `text`, `number`, `address`, …
    pub of: &'static str,
    /// It is missing where it does not apply.
    pub optional: bool,
}

/// The delivery of a row: kept, unless it names another one.
macro_rules! delivery {
    () => {
        Delivery::Kept
    };
    ($delivery:ident) => {
        Delivery::$delivery
    };
}

/// Declares [`Event`] and everything that follows from its rows.
macro_rules! events {
    (() $(
        #[doc = $doc:literal]
        $variant:ident $name:literal $level:ident $([$delivery:ident])? $message:literal {
            $($field:ident: $of:ty,)*
        }
    )+) => {
        /// Something that happened, with its fields.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "docs/operate/events.md has the fields")]
        pub enum Event {
            $(#[doc = $doc] $variant { $($field: $of,)* },)+
        }

        /// The rows, in the order of the variants.
        #[derive(Clone, Copy)]
        enum Row { $($variant,)+ }

        /// All events.
        pub const KINDS: &[Kind] = &[$(Kind {
            name: $name,
            level: Level::$level,
            delivery: delivery!($($delivery)?),
            message: $message,
            doc: $doc,
            fields: &[$(FieldKind {
                name: stringify!($field),
                of: <$of as Field>::TYPE,
                optional: <$of as Field>::OPTIONAL,
            },)*],
        },)+];

        impl Event {
            const fn row(&self) -> Row {
                match self { $(Self::$variant { .. } => Row::$variant,)+ }
            }

            /// Writes the event into the log. `forced`: at any level of the log.
            pub(super) fn log(&self, forced: bool) {
                match self {
                    $(Self::$variant { $($field,)* } if forced => tracing::event!(
                        target: "forced_event", Level::$level, event = $name,
                        $($field = Field::log($field),)* $message
                    ),)+
                    $(Self::$variant { $($field,)* } => tracing::event!(
                        target: "event", Level::$level, event = $name,
                        $($field = Field::log($field),)* $message
                    ),)+
                }
            }

            /// The fields in JSON; a missing one is left out.
            pub fn fields(&self) -> Map<String, Value> {
                let mut map = Map::new();
                match self {
                    $(Self::$variant { $($field,)* } => {
                        $(if let Some(value) = Field::json($field) {
                            map.insert(stringify!($field).to_owned(), value);
                        })*
                    })+
                }
                map
            }

            /// The address of the neighbor that the event is about.
            pub(super) fn address(&self) -> Option<IpAddr> {
                match self {
                    $(Self::$variant { $($field,)* } => {
                        None$(.or_else(|| Field::address($field)))*
                    })+
                }
            }

            /// The prefix of the route that the event is about.
            pub(super) fn prefix(&self) -> Option<IpNet> {
                match self {
                    $(Self::$variant { $($field,)* } => {
                        None$(.or_else(|| Field::prefix($field)))*
                    })+
                }
            }

            /// Octets that the event takes on the heap.
            fn heap_octets(&self) -> usize {
                match self {
                    $(Self::$variant { $($field,)* } => 0 $(+ Field::heap_octets($field))*,)+
                }
            }
        }
    };
}

impl fmt::Display for Event {
    /// The message and the fields, as in a line of the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().message)?;
        let fields = self.fields();
        for field in self.kind().fields {
            if let Some(value) = fields.get(field.name) {
                write!(f, " {}={}", field.name, value)?;
            }
        }
        Ok(())
    }
}

impl Event {
    /// The place of its row in [`KINDS`].
    pub(super) const fn index(&self) -> usize {
        self.row() as usize
    }

    /// Its row.
    pub fn kind(&self) -> &'static Kind {
        &KINDS[self.index()]
    }

    /// Octets that the event takes in memory.
    pub(super) fn octets(&self) -> usize {
        size_of::<Self>() + self.heap_octets()
    }
}

session_events! { (route_events datastore_events endpoint_events daemon_events bfd_events kubernetes_events events) }
