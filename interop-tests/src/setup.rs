//! The configuration of one speaker of a lab, for every program.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

/// The autonomous system of the fabric.
const FABRIC_AS: u32 = 64512;

/// The configuration of one speaker.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its autonomous system.
    pub asn: u32,
    /// Its neighbors.
    pub neighbors: Vec<Neighbor>,
    /// The neighbors that it accepts by address range; Cambric's programs only.
    pub ranges: Vec<Range>,
    /// The routes that it originates from the start.
    pub own: Vec<Own>,
    /// Its CLUSTER_ID, if it is a route reflector.
    pub cluster_id: Option<Ipv4Addr>,
    /// How many equal-cost paths it uses; Cambric's programs only.
    pub multipath: Option<u16>,
    /// Whether routes of a neighbor that is down are retained as stale (RFC 4724); Cambric's
    /// programs only.
    pub graceful_restart: bool,
    /// The restart time in seconds for which its neighbors are to retain its routes, if it is to
    /// restart gracefully (RFC 4724): Cambric's programs, BIRD, GoBGP and FRR.
    pub restart_time_s: Option<u16>,
    /// The long-lived stale time in seconds, of all families, if it has long-lived graceful restart (RFC 9494):
    /// Cambric's programs, BIRD, FRR and GoBGP.
    pub long_lived_s: Option<u32>,
    /// Whether this start is a graceful restart: BIRD and GoBGP need an option for it.
    pub restarted: bool,
    /// The value of the key `bfd` of Cambric's neighbors, if all have BFD. BIRD and FRR have BFD then, too.
    pub bfd: Option<&'static str>,
    /// The type of the authentication of BFD as a value of `bfd_auth`, if all neighbors have it, with
    /// one key: Cambric's programs and BIRD.
    pub bfd_auth: Option<&'static str>,
    /// Whether the session of BFD is independent of the control plane (RFC 5882 §3.2): FRR only.
    pub bfd_c_bit: bool,
    /// The bandwidth of its link in Mbit/s, sent with its routes: FRR, and Cambric's programs, of which a client
    /// also weighs next hops by it.
    pub link_bandwidth: Option<u32>,
    /// Whether kernel routes share nexthop objects: Cambric's client only.
    pub nexthop_objects: bool,
    /// Further configuration in BIRD's syntax; BIRD only.
    pub extra: String,
}

/// The key 7 of BFD in labs.
pub(crate) const BFD_SECRET: &str = "lab of bfd";

/// One neighbor.
#[derive(Clone, Debug)]
pub struct Neighbor {
    /// Its address: an IPv4 session carries both families unless `families` restricts them.
    pub address: IpAddr,
    /// Its autonomous system.
    pub asn: u32,
    /// Whether it is a route reflector client of this speaker.
    pub client: bool,
    /// Which families the session carries.
    pub families: Families,
    /// Its cluster, if it is a client in another cluster than the other clients; Cambric and BIRD
    /// only.
    pub cluster_id: Option<Ipv4Addr>,
    /// TCP-MD5 key.
    pub password: Option<&'static str>,
    /// Whether packets that passed a router are dropped (RFC 5082).
    pub ttl_security: bool,
    /// Whether only the neighbor opens connections; not GoBGP.
    pub passive: bool,
    /// Whether both ends may send several paths of a prefix (RFC 7911).
    pub add_path: bool,
    /// Whether its AS_PATHs may contain AS_SETs (RFC 9774); Cambric's programs only.
    pub as_sets: bool,
}

/// Neighbors by address range: internal peers and route reflector clients.
#[derive(Clone, Debug)]
pub struct Range {
    /// The range of their addresses.
    pub prefix: &'static str,
    /// The most neighbors at once.
    pub limit: u16,
    /// TCP-MD5 key.
    pub password: Option<&'static str>,
}

/// The families of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// IPv4 and IPv6 unicast.
    Both,
    /// Only the family of the session's addresses.
    OfAddress,
    /// These families, by their names in Cambric's configuration.
    Named(&'static [&'static str]),
}

/// A route that a speaker originates.
#[derive(Clone, Debug)]
pub struct Own {
    /// The prefix.
    pub net: IpNet,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// COMMUNITIES, as `asn:value`.
    pub communities: Vec<(u16, u16)>,
    /// LARGE_COMMUNITIES.
    pub large_communities: Vec<(u32, u32, u32)>,
}

impl Own {
    /// Returns a route without optional attributes.
    pub const fn plain(net: IpNet) -> Self {
        Self {
            net,
            med: None,
            communities: Vec::new(),
            large_communities: Vec::new(),
        }
    }

    /// Returns the name of its family.
    pub(crate) const fn family(&self) -> &'static str {
        unicast(matches!(self.net, IpNet::V4(_)))
    }
}

const fn unicast(v4: bool) -> &'static str {
    if v4 { "ipv4-unicast" } else { "ipv6-unicast" }
}

impl Neighbor {
    /// Returns the families of the session by name.
    pub(crate) fn family_names(&self) -> Vec<&'static str> {
        match self.families {
            Families::Both => vec![unicast(true), unicast(false)],
            Families::OfAddress => vec![unicast(self.address.is_ipv4())],
            Families::Named(names) => names.to_vec(),
        }
    }
}

impl Setup {
    /// Returns an empty setup of a speaker of `asn`.
    pub fn of(asn: u32) -> Self {
        Self {
            asn,
            neighbors: vec![],
            ranges: vec![],
            own: vec![],
            cluster_id: None,
            multipath: None,
            graceful_restart: true,
            restart_time_s: None,
            long_lived_s: None,
            restarted: false,
            bfd: None,
            bfd_auth: None,
            bfd_c_bit: false,
            link_bandwidth: None,
            nexthop_objects: false,
            extra: String::new(),
        }
    }

    /// Returns an empty setup of a speaker of the fabric's autonomous system.
    pub fn fabric() -> Self {
        Self::of(FABRIC_AS)
    }

    /// Adds a neighbor.
    #[must_use]
    pub fn neighbor(mut self, address: impl Into<IpAddr>, asn: u32) -> Self {
        self.neighbors.push(Neighbor {
            address: address.into(),
            asn,
            client: false,
            families: Families::Both,
            cluster_id: None,
            password: None,
            ttl_security: false,
            passive: false,
            add_path: false,
            as_sets: false,
        });
        self
    }

    /// Accepts AS_SETs from the neighbor added last (RFC 9774).
    #[must_use]
    pub fn allowing_as_sets(mut self) -> Self {
        self.last().as_sets = true;
        self
    }

    /// Adds a neighbor with one session per family, for programs that cannot give an IPv6 next hop
    /// on an IPv4 session.
    #[must_use]
    pub fn neighbor_apart(mut self, number: u8, asn: u32) -> Self {
        for address in [
            IpAddr::from(super::Site::v4(number)),
            super::Site::v6(number).into(),
        ] {
            self = self.neighbor(address, asn);
            self.last().families = Families::OfAddress;
        }
        self
    }

    /// Sets the families of the session with the neighbor added last.
    #[must_use]
    pub fn carrying(mut self, families: &'static [&'static str]) -> Self {
        self.last().families = Families::Named(families);
        self
    }

    /// Puts the neighbor added last into a cluster of its own (RFC 4456 §7).
    #[must_use]
    pub fn in_cluster(mut self, cluster_id: Ipv4Addr) -> Self {
        self.last().cluster_id = Some(cluster_id);
        self
    }

    /// Sets a TCP-MD5 key for the neighbor added last.
    #[must_use]
    pub fn password(mut self, password: &'static str) -> Self {
        self.last().password = Some(password);
        self
    }

    /// Sets GTSM for the neighbor added last (RFC 5082).
    #[must_use]
    pub fn ttl_security(mut self) -> Self {
        self.last().ttl_security = true;
        self
    }

    /// Leaves it to the neighbor added last to open connections.
    #[must_use]
    pub fn passive(mut self) -> Self {
        self.last().passive = true;
        self
    }

    /// Negotiates ADD-PATH in both directions with the neighbor added last (RFC 7911).
    #[must_use]
    pub fn add_path(mut self) -> Self {
        self.last().add_path = true;
        self
    }

    fn last(&mut self) -> &mut Neighbor {
        self.neighbors.last_mut().expect("a neighbor was added")
    }

    /// Accepts clients from a range of addresses.
    #[must_use]
    pub fn range(mut self, range: Range) -> Self {
        self.ranges.push(range);
        self
    }

    /// Sets the restart time for which neighbors retain its routes.
    #[must_use]
    pub const fn restarting_within(mut self, seconds: u16) -> Self {
        self.restart_time_s = Some(seconds);
        self
    }

    /// Sets the long-lived stale time.
    #[must_use]
    pub const fn stale_within(mut self, seconds: u32) -> Self {
        self.long_lived_s = Some(seconds);
        self
    }

    /// Removes the routes of a neighbor when its session ends.
    #[must_use]
    pub const fn without_graceful_restart(mut self) -> Self {
        self.graceful_restart = false;
        self
    }

    /// Monitors the paths to all neighbors with BFD.
    #[must_use]
    pub const fn monitored(mut self, bfd: &'static str) -> Self {
        self.bfd = Some(bfd);
        self
    }

    /// Authenticates packets of BFD.
    #[must_use]
    pub const fn authenticated(mut self, bfd_auth: &'static str) -> Self {
        self.bfd_auth = Some(bfd_auth);
        self
    }

    /// Sets the bandwidth of its link in Mbit/s.
    #[must_use]
    pub const fn with_link_bandwidth(mut self, megabits: u32) -> Self {
        self.link_bandwidth = Some(megabits);
        self
    }

    /// Declares BFD independent of the control plane.
    #[must_use]
    pub const fn with_c_bit(mut self) -> Self {
        self.bfd_c_bit = true;
        self
    }

    /// Makes all neighbors so far route reflector clients.
    #[must_use]
    pub fn reflecting(mut self, cluster_id: Ipv4Addr) -> Self {
        self.cluster_id = Some(cluster_id);
        for neighbor in &mut self.neighbors {
            neighbor.client = true;
        }
        self
    }

    /// Adds a plain route.
    #[must_use]
    pub fn announcing(mut self, net: &str) -> Self {
        let net = net.parse().expect("a prefix");
        self.own.push(Own {
            net,
            med: None,
            communities: vec![],
            large_communities: vec![],
        });
        self
    }

    /// Gives the route added last all optional attributes.
    #[must_use]
    pub fn adorned(mut self) -> Self {
        let own = self.own.last_mut().expect("a route to adorn");
        own.med = Some(7);
        own.communities = vec![(64999, 1), (64999, 20)];
        own.large_communities = vec![(64999, 4, 9)];
        self
    }
}
