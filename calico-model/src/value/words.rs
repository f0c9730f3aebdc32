//! Enumerations whose variants are words of the data model.

/// The text is not one of the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not {0}")]
pub struct WordError(pub(crate) &'static str);

/// Defines an enumeration by its words, with `Display`, `FromStr` and serde through them. It is
/// closed: an unknown word changes the meaning of a resource, so it makes the resource unreadable,
/// and the last valid one stays in effect.
macro_rules! words {
    (
        $(#[$attribute:meta])* $name:ident, $expecting:literal;
        $($(#[$doc:meta])* $variant:ident $word:literal,)*
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $word,)*
                })
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::value::words::WordError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err($crate::value::words::WordError($expecting)),
                }
            }
        }

        $crate::value::serde_as_text!($name, $expecting);
    };
}
pub(crate) use words;
