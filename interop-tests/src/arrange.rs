//! Helpers that all labs share: where a lab runs, and which speaker runs on which host.

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

/// Makes a test of each lab with each kind of speaker: a module a lab with a test for each kind, or, with
/// `Kind as module:`, a module a kind with a test for each lab. A lab is a function of the file that takes
/// the kind and the [`Ground`].
#[macro_export]
macro_rules! labs {
    ($($lab:ident: $($kind:ident)+;)+) => { $(
        #[allow(non_snake_case)]
        mod $lab {
            $( $crate::labs!(@ $kind, $lab, $kind); )+
        }
    )+ };
    ($($kind:ident as $module:ident: $($lab:ident),+;)+) => { $(
        mod $module {
            $( $crate::labs!(@ $lab, $lab, $kind); )+
        }
    )+ };
    (@ $test:ident, $lab:ident, $kind:ident) => {
        #[test]
        fn $test() {
            let name = concat!(stringify!($lab), " with ", stringify!($kind));
            let kind = $crate::Kind::$kind;
            $crate::in_ground(&[kind], name, async |ground| super::$lab(kind, ground).await);
        }
    };
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

    /// Starts one of Cambric's programs whose whole configuration is in the datastore.
    ///
    /// # Panics
    /// If it cannot be started.
    pub async fn stored(&self, kind: Kind, number: u8) -> Speaker {
        self.stored_with(kind, number, "").await
    }

    /// Does the same as [`Self::stored`], with further lines at the top of the configuration file.
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
    /// Adds one session with a host, or one per address family where the foreign program at either
    /// end needs two.
    #[must_use]
    pub fn peering(self, kind: Kind, number: u8, asn: u32) -> Self {
        match kind {
            Kind::Gobgp | Kind::Frr | Kind::Openbgpd => self.neighbor_apart(number, asn),
            Kind::Client | Kind::Reflector | Kind::Bird => self.neighbor(Site::v4(number), asn),
        }
    }
}

/// Returns a [`Table`] of these prefixes and routes.
///
/// # Panics
/// If a prefix is invalid.
pub fn table(routes: impl IntoIterator<Item = (&'static str, Route)>) -> Table {
    let routes = routes.into_iter();
    routes
        .map(|(net, route)| (net.parse().expect("a prefix"), route))
        .collect()
}

/// Returns a route that a speaker originates or reflects as its internal peers receive it: FRR
/// sends MED 0 where the route has no MED.
pub fn as_received(kind: Kind, route: Route) -> Route {
    match kind {
        Kind::Frr => Route {
            med: route.med.or(Some(0)),
            ..route
        },
        _ => route,
    }
}

/// Returns a route from an external peer as this speaker shows it: BIRD and OpenBGPD show
/// LOCAL_PREF 100.
pub fn shown_external(kind: Kind, route: Route) -> Route {
    match kind {
        Kind::Bird | Kind::Openbgpd => route.local_pref(100),
        _ => route,
    }
}
