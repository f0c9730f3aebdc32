//! Capabilities for people: one short line each.

use core::fmt;

use super::capability::{AddPathMode, Capability};

impl fmt::Display for AddPathMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Receive => "receive",
            Self::Send => "send",
            Self::Both => "both",
        })
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { code, data } => {
                write!(f, "{}", self.code().name().unwrap_or("unknown"))?;
                write!(f, " (code {code}, ")?;
                data.iter().try_for_each(|octet| write!(f, "{octet:02x}"))?;
                f.write_str(")")
            }
            _ => {
                write!(f, "{}", self.code())?;
                self.fmt_value(f)
            }
        }
    }
}

impl Capability {
    fn fmt_value(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MultiProtocol(family) => write!(f, " {family}"),
            Self::Role(role) => write!(f, " {role}"),
            Self::FourOctetAsn(asn) => write!(f, " {asn}"),
            Self::Fqdn { hostname, domain } if domain.is_empty() => {
                write!(f, " {}", hostname.escape_debug())
            }
            Self::Fqdn { hostname, domain } => {
                write!(f, " {}.{}", hostname.escape_debug(), domain.escape_debug())
            }
            Self::SoftwareVersion(version) => write!(f, " {}", version.escape_debug()),
            Self::AddPath(entries) => entries
                .iter()
                .try_for_each(|(family, mode)| write!(f, " {family}={mode}")),
            Self::PathsLimit(entries) => entries
                .iter()
                .try_for_each(|(family, limit)| write!(f, " {family}={limit}")),
            Self::DynamicCapability(codes) => {
                codes.iter().try_for_each(|code| write!(f, " {code}"))
            }
            _ => self.fmt_list(f),
        }
    }

    fn fmt_list(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GracefulRestart(graceful) => {
                write!(f, " {}s", graceful.time_s)?;
                f.write_str(if graceful.restart_state {
                    " restarted"
                } else {
                    ""
                })?;
                f.write_str(if graceful.notification {
                    " notification"
                } else {
                    ""
                })?;
                graceful
                    .families
                    .iter()
                    .try_for_each(|(family, forwarding)| {
                        write!(
                            f,
                            " {family}{}",
                            if *forwarding { "=forwarding" } else { "" }
                        )
                    })
            }
            Self::LongLivedGracefulRestart(entries) => entries.iter().try_for_each(|entry| {
                write!(f, " {}={}s", entry.family, entry.stale_time_s)?;
                f.write_str(if entry.forwarding { ",forwarding" } else { "" })
            }),
            Self::ExtendedNextHop(entries) => entries.iter().try_for_each(|entry| {
                write!(
                    f,
                    " afi-{}-safi-{}=afi-{}",
                    entry.afi, entry.safi, entry.next_hop_afi
                )
            }),
            Self::OutboundRouteFiltering(entries) => entries.iter().try_for_each(|entry| {
                write!(f, " {}", entry.family)?;
                entry
                    .types
                    .iter()
                    .try_for_each(|(kind, mode)| write!(f, ",{kind}={mode}"))
            }),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
