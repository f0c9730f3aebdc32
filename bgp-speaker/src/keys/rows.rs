//! Macros for the rows of the table of keys. Names resolve at the place of the rows.

/// Selects the given expression, or else the first.
macro_rules! or {
    ($default:expr;) => {
        $default
    };
    ($default:expr; $given:expr) => {
        $given
    };
}

/// Makes the rows of a configuration, as in `table.rs`, with their accessors.
macro_rules! rows {
    ($config:ident: $(
        $key:literal:
            [$field:ident $(.$part:ident)? $(+ $field_too:ident.$part_too:ident)?]
            $(: $type:ty = $default:expr)?,
            $meaning:literal,
            $row:expr $(, get $get:expr, set $set:expr)?;
    )*) => {
        &[$(Key {
            name: $key,
            meaning: $meaning,
            fields: &[
                concat!(stringify!($field) $(, ".", stringify!($part))?),
                $(concat!(stringify!($field_too), ".", stringify!($part_too)),)?
            ],
            get: or!(|config: &$config| Field::value(&config.$field $(.$part)?); $($get)?),
            set: or!(
                |config: &mut $config, value: &Value| {
                    if let Some(value) = Field::of(value) {
                        config.$field $(.$part)? = value;
                    }
                };
                $($set)?
            ),
            copy: |from: &$config, to: &mut $config| {
                to.$field $(.$part)?.clone_from(&from.$field $(.$part)?);
                $(to.$field_too.$part_too.clone_from(&from.$field_too.$part_too);)?
            },
            differs: |old: &$config, new: &$config| {
                old.$field $(.$part)? != new.$field $(.$part)?
                    $(|| old.$field_too.$part_too != new.$field_too.$part_too)?
            },
            ..$row
        },)*]
    };
}

/// Makes the rows of a peer, and the struct of their fields.
macro_rules! peer_keys {
    ($(
        $key:literal:
            [$field:ident $(.$part:ident)? $(+ $field_too:ident.$part_too:ident)?]
            $(: $type:ty = $default:expr)?,
            $meaning:literal,
            $row:expr $(, get $get:expr, set $set:expr)?;
    )*) => {
        /// One configured peer, made by
        /// [`SpeakerConfig::neighbor`](crate::SpeakerConfig::neighbor), or from its keys by
        /// [`SpeakerConfig::peer`](crate::SpeakerConfig::peer).
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct PeerConfig {
            /// The session: AS numbers, timers, families, capabilities.
            pub session: SessionConfig,
            /// The checks of its routes' AS_PATHs.
            pub as_path: AsPathChecks,
            $($(
                #[doc = concat!("`", $key, "`: ", $meaning, ".")]
                pub $field: $type,
            )?)*
        }

        impl PeerConfig {
            /// Returns a peer with default settings.
            pub(crate) fn vacant() -> Self {
                Self {
                    session: SessionConfig::default(),
                    as_path: AsPathChecks::default(),
                    $($($field: $default,)?)*
                }
            }
        }

        /// The keys of a neighbor, in the order in which they are read.
        pub const PEER_KEYS: &[PeerKey] = rows! { PeerConfig: $(
            $key: [$field $(.$part)? $(+ $field_too.$part_too)?] $(: $type = $default)?,
                $meaning, $row $(, get $get, set $set)?;
        )* };
    };
}
