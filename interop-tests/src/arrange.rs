//! What the labs have in common: where they run, and who stands where.

use crate::{Ground, Kind, Route, Setup, Site, Speaker, Table};

/// Runs a lab with these programs in it, where labs are allowed and the programs are installed.
///
/// # Panics
/// If the lab cannot be made, and of course if the test does.
pub fn in_ground(kinds: &[Kind], name: &str, test: impl AsyncFnOnce(Ground)) {
    if !netns_lab::allowed(name) || !kinds.iter().all(|kind| kind.is_installed()) {
        return;
    }
    netns_lab::in_lab(name, async |lab| {
        test(Ground::new(lab).await.expect("a ground")).await;
    });
}

impl Ground {
    /// Starts a speaker on host `number`, which is put on the switch for it.
    ///
    /// # Panics
    /// If it cannot be started.
    pub async fn speaker(&self, kind: Kind, number: u8, setup: &Setup) -> Speaker {
        let site = self.site(number).await.expect("a host");
        let started = Speaker::start(kind, site, setup).await;
        started.expect("a speaker")
    }

    /// The same for one of Cambric's programs that the store tells everything.
    ///
    /// # Panics
    /// If it cannot be started.
    pub async fn stored(&self, kind: Kind, number: u8) -> Speaker {
        self.stored_with(kind, number, "").await
    }

    /// The same, with further lines at the top of its file.
    ///
    /// # Panics
    /// If it cannot be started.
    pub async fn stored_with(&self, kind: Kind, number: u8, keys: &str) -> Speaker {
        let site = self.site(number).await.expect("a host");
        let stores = [crate::store::address()];
        Speaker::start_stored_with(kind, site, &stores, keys).expect("a speaker")
    }
}

impl Setup {
    /// Adds a session with a host, or two, as the foreign program at either end can have them.
    #[must_use]
    pub fn peering(self, kind: Kind, number: u8, asn: u32) -> Self {
        match kind {
            Kind::Gobgp | Kind::Frr | Kind::Openbgpd => self.neighbor_apart(number, asn),
            Kind::Client | Kind::Reflector | Kind::Bird => self.neighbor(Site::v4(number), asn),
        }
    }
}

/// A table written down.
///
/// # Panics
/// If a prefix is none.
pub fn table(routes: impl IntoIterator<Item = (&'static str, Route)>) -> Table {
    let routes = routes.into_iter();
    routes
        .map(|(net, route)| (net.parse().expect("a prefix"), route))
        .collect()
}

/// What a speaker announces or passes on to internal peers, as it reaches the others: FRR says
/// MED 0 where there is none.
pub fn told(kind: Kind, route: Route) -> Route {
    match kind {
        Kind::Frr => Route {
            med: route.med.or(Some(0)),
            ..route
        },
        _ => route,
    }
}

/// How a speaker shows a route from an external peer: BIRD and OpenBGPD with LOCAL_PREF 100.
pub fn shown_external(kind: Kind, route: Route) -> Route {
    match kind {
        Kind::Bird | Kind::Openbgpd => route.local_pref(100),
        _ => route,
    }
}
