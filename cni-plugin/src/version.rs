//! The versions of the specification.

use serde_json::{Value, json};

use crate::failure::{Code, Failure};

/// A supported version, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    /// 0.2.0: Calico's default for a configuration without a version.
    V0_2_0,
    /// 0.3.0.
    V0_3_0,
    /// 0.3.1.
    V0_3_1,
    /// 0.4.0: with CHECK.
    V0_4_0,
    /// 1.0.0.
    V1_0_0,
    /// 1.1.0: with GC and STATUS.
    V1_1_0,
}

impl Version {
    /// All versions.
    pub(crate) const ALL: [Self; 6] = [
        Self::V0_2_0,
        Self::V0_3_0,
        Self::V0_3_1,
        Self::V0_4_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];

    /// Parses the version of a configuration; a missing one means 0.2.0, as in Calico.
    ///
    /// # Errors
    ///
    /// The version is unsupported.
    pub(crate) fn of(text: &str) -> Result<Self, Failure> {
        if text.is_empty() {
            return Ok(Self::V0_2_0);
        }
        let found = Self::ALL.into_iter().find(|version| version.text() == text);
        found.ok_or_else(|| {
            let spoken = Self::ALL.map(Self::text).join(", ");
            Failure::new(
                Code::Version,
                format!("cniVersion {text} is not spoken here"),
            )
            .details(format!("spoken are {spoken}"))
        })
    }

    /// Returns the version as text.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }
}

/// Returns the answer to VERSION, in the version of the request, whatever that is.
pub(crate) fn answer(asked: &str) -> Value {
    let version = if asked.is_empty() { "1.1.0" } else { asked };
    json!({"cniVersion": version, "supportedVersions": Version::ALL.map(Version::text)})
}
