//! Sessions that this side dials.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bgp_speaker::bgp_fsm::SessionConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::sockets::dialing;
use crate::{IoError, PeerScope, Security, SessionStream};

/// Dials a neighbor for a session without a speaker.
///
/// ```no_run
/// use bgp_io::bgp_fsm::{PeerAs, SessionConfig};
/// use bgp_io::bgp_proto::{Asn, FamilySet, RouterId};
/// use bgp_io::{Connector, Security};
///
/// # async fn program() -> Result<(), Box<dyn std::error::Error>> {
/// let config = SessionConfig::new(Asn(64512), RouterId("192.0.2.1".parse()?)).with(|config| {
///     config.peer_asn = PeerAs::Exactly(Asn(64513));
///     config.families = FamilySet::UNICAST;
/// });
/// let security = Security::new().with_password("secret").with_ttl_security(1);
/// let connector = Connector::new(config).with_security(security);
/// let mut session = connector.connect("192.0.2.2:179".parse()?).await?;
/// while let Some(event) = session.next().await {
///     println!("{event:?}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Connector {
    config: SessionConfig,
    local: Option<IpAddr>,
    security: Security,
}

impl Connector {
    /// Returns a connector for sessions with this configuration.
    #[must_use]
    pub const fn new(config: SessionConfig) -> Self {
        Self {
            config,
            local: None,
            security: Security::new(),
        }
    }

    /// Returns the same with a local address; otherwise the kernel selects one.
    #[must_use]
    pub fn with_local(self, local: IpAddr) -> Self {
        Self {
            local: Some(local),
            ..self
        }
    }

    /// Returns the same with TCP-MD5 or GTSM.
    #[must_use]
    pub fn with_security(self, security: Security) -> Self {
        Self { security, ..self }
    }

    /// Dials, once, and starts the session. The dial takes at most `SessionConfig::connect_retry_s`.
    ///
    /// # Errors
    ///
    /// The neighbor cannot be reached in this time, or the kernel rejects the key.
    pub async fn connect(&self, remote: SocketAddr) -> Result<SessionStream<TcpStream>, IoError> {
        let Security {
            password,
            ttl_security_hops,
        } = &self.security;
        if let Some(key) = password {
            IoError::check_key(PeerScope::neighbor(remote.ip()), key)?;
        }
        let dial = async {
            let socket = dialing(remote, self.local, *ttl_security_hops, password.as_deref())?;
            let stream = socket.connect(remote).await?;
            SessionStream::new(stream, self.config.clone())
        };
        let limit = Duration::from_secs(self.config.connect_retry_s.max(1).into());
        let dialed = timeout(limit, dial).await;
        dialed
            .unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
            .map_err(|error| IoError::Dial {
                address: remote,
                error,
            })
    }
}
