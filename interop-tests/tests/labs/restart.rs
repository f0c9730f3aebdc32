//! Restarts (RFC 4724, RFC 8538) and refreshes (RFC 7313) with other implementations. When a
//! speaker at either end is killed, no peer loses a route if the speaker comes back in time, and
//! every peer does if it stays away.
//!
//! Known difference: FRR 8.4 sends its End-of-RIB marker after a restart before its routes, so its
//! own restart is not hitless with any helper, and not tested here. Nor is that of GoBGP: its
//! routes are added by commands after its start, and it may have sent its marker by then.
//!
//! Another: OpenBGPD always sends the Restart State bit, FRR for two minutes after its start. RFC
//! 4724 §4.1 requires not to wait for the routes of such a peer. So the routes that survive a restart
//! of Cambric's reflector are those of a Cambric client where these two are the helpers.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use interop_tests::{
    Ground, Kind, PATIENCE, Route, Setup, Site, Speaker, as_received, in_ground, table,
};
use ipnet::IpNet;
use netns_lab::{Error, until};

const CLUSTER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
const V4: &[&str] = &["ipv4-unicast"];

/// How long routes are retained, in seconds, over a restart of a speaker that comes back: longer
/// than any program takes to dial again.
const COMES_BACK_S: u16 = 240;

/// The same for a speaker that stays away.
const STAYS_AWAY_S: u16 = 5;

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

/// Returns Cambric's reflector on host 1 for hosts 2 and 3, by address or by range.
fn reflector(dynamic: bool) -> Setup {
    let setup = Setup::fabric().restarting_within(COMES_BACK_S);
    if dynamic {
        let range = interop_tests::Range {
            prefix: "10.0.0.0/24",
            limit: 10,
            password: None,
        };
        return setup.range(range).reflecting(CLUSTER);
    }
    let both = setup.neighbor(Site::v4(2), 64512).carrying(V4);
    both.neighbor(Site::v4(3), 64512)
        .carrying(V4)
        .reflecting(CLUSTER)
}

/// Returns a client of the reflector.
fn client() -> Setup {
    let setup = Setup::fabric().restarting_within(COMES_BACK_S);
    setup.neighbor(Site::v4(1), 64512).carrying(V4)
}

/// Returns the kind of speaker that originates the routes which others of this kind must retain.
const fn source(kind: Kind) -> Kind {
    match kind {
        Kind::Frr | Kind::Openbgpd => Kind::Client,
        _ => kind,
    }
}

/// Returns a route of host `number`, as the other peers hold it.
fn reflected(from: Kind, number: u8) -> Route {
    as_received(
        from,
        Route::via(Site::v4(number))
            .local_pref(100)
            .reflected(Site::v4(number), CLUSTER),
    )
}

/// Asserts repeatedly that `holder` has a route to `net`, until `while_` completes.
async fn never_lost<T>(holder: &Speaker, net: IpNet, while_: impl Future<Output = T>) -> T {
    let watch = async {
        loop {
            // A speaker that does not answer in time has lost nothing.
            if let Ok(found) = holder.learned().await {
                assert!(
                    found.contains_key(&net),
                    "{net} lost\n{}",
                    holder.log_tail()
                );
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = watch => unreachable!("watches for ever"),
        done = while_ => done,
    }
}

/// Waits until `holder` has no route to `net`.
async fn lost(holder: &Speaker, net: IpNet) {
    let gone = until(PATIENCE, "the route goes", async || {
        Ok::<_, Error>(match holder.learned().await {
            Ok(found) if found.contains_key(&net) => Err("still there".to_owned()),
            Ok(_) => Ok(()),
            Err(silent) => Err(silent),
        })
    });
    gone.await.expect("time-bounded");
}

/// Waits until Cambric's reflector has saved the peers for which its next start waits.
async fn remembered(ours: &Speaker) {
    let file = ours.site.host.directory().join("route-reflector.restart");
    let written = until(PATIENCE, "the clients are written down", async || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let both = ["10.0.0.2", "10.0.0.3"]
            .iter()
            .all(|client| text.contains(client));
        Ok::<_, Error>(if both { Ok(()) } else { Err(text) })
    });
    written.await.expect("written down");
}

/// Kills Cambric's reflector twice: first it comes back, then it stays away.
async fn our_reflector_is_killed(kind: Kind, dynamic: bool, ground: Ground) {
    let setup = reflector(dynamic);
    let mut ours = ground.speaker(Kind::Reflector, 1, &setup).await;
    let one = ground.speaker(kind, 2, &client()).await;
    let two = ground
        .speaker(source(kind), 3, &client().announcing("10.65.3.1/32"))
        .await;
    let first = ("10.65.3.1/32", reflected(source(kind), 3));
    one.holds(&table([first.clone()])).await;
    if dynamic {
        remembered(&ours).await;
    }

    ours.kill().await.expect("killed");
    let more = Setup::fabric().announcing("10.65.3.2/32").own.remove(0);
    let again = setup.restarting_within(STAYS_AWAY_S);
    let back = async {
        let ours = ours.start_again(&again).await.expect("started again");
        two.announce(&more).await.expect("announced");
        let second = ("10.65.3.2/32", reflected(source(kind), 3));
        one.holds(&table([first.clone(), second])).await;
        ours
    };
    let mut ours = never_lost(&one, net("10.65.3.1/32"), back).await;

    ours.kill().await.expect("killed");
    lost(&one, net("10.65.3.1/32")).await;
}

/// Shuts Cambric's reflector down, as for an upgrade.
async fn our_reflector_is_upgraded(kind: Kind, ground: Ground) {
    let setup = reflector(false);
    let mut ours = ground.speaker(Kind::Reflector, 1, &setup).await;
    let one = ground.speaker(kind, 2, &client()).await;
    let two = ground
        .speaker(source(kind), 3, &client().announcing("10.65.3.1/32"))
        .await;
    let first = ("10.65.3.1/32", reflected(source(kind), 3));
    one.holds(&table([first.clone()])).await;
    let more = Setup::fabric().announcing("10.65.3.2/32").own.remove(0);
    let upgrade = async {
        ours.stop().await.expect("left");
        let ours = ours.start_again(&setup).await.expect("started again");
        two.announce(&more).await.expect("announced");
        let second = ("10.65.3.2/32", reflected(source(kind), 3));
        one.holds(&table([first.clone(), second])).await;
        ours
    };
    never_lost(&one, net("10.65.3.1/32"), upgrade).await;
}

/// Kills a foreign client twice: first it comes back, then it stays away.
async fn their_client_is_killed(kind: Kind, dynamic: bool, ground: Ground) {
    let _ours = ground
        .speaker(Kind::Reflector, 1, &reflector(dynamic))
        .await;
    let one = ground.speaker(Kind::Client, 2, &client()).await;
    let setup = client().announcing("10.65.3.1/32");
    let mut two = ground.speaker(kind, 3, &setup).await;
    let first = ("10.65.3.1/32", reflected(kind, 3));
    one.holds(&table([first.clone()])).await;

    two.kill().await.expect("killed");
    let mut again = setup.announcing("10.65.3.2/32");
    again.restarted = true;
    again.restart_time_s = Some(STAYS_AWAY_S);
    let back = async {
        let two = two.start_again(&again).await.expect("started again");
        let second = ("10.65.3.2/32", reflected(kind, 3));
        one.holds(&table([first.clone(), second])).await;
        two
    };
    let mut two = never_lost(&one, net("10.65.3.1/32"), back).await;

    let begun = Instant::now();
    two.kill().await.expect("killed");
    lost(&one, net("10.65.3.1/32")).await;
    let (kept, least) = (begun.elapsed(), Duration::from_secs(STAYS_AWAY_S.into()));
    assert!(kept >= least, "kept for the restart time: {kept:?}");
}

/// Kills Cambric's client: its announced routes are retained, and its learned routes stay in its
/// kernel.
async fn our_client_is_killed(kind: Kind, ground: Ground) {
    let setup = client().announcing("10.65.2.1/32");
    let hub = reflector(false);
    let _hub = ground.speaker(kind, 1, &hub).await;
    let mut ours = ground.speaker(Kind::Client, 2, &setup).await;
    let two = ground
        .speaker(Kind::Client, 3, &client().announcing("10.65.3.1/32"))
        .await;
    let first = ("10.65.2.1/32", reflected(Kind::Client, 2));
    two.holds(&table([first.clone()])).await;

    ours.kill().await.expect("killed");
    let back = async {
        let again = client();
        let ours = ours.start_again(&again).await.expect("started again");
        let more = Setup::fabric().announcing("10.65.2.2/32").own.remove(0);
        ours.announce(&more).await.expect("announced");
        let second = ("10.65.2.2/32", reflected(Kind::Client, 2));
        two.holds(&table([first.clone(), second])).await;
        ours
    };
    never_lost(&two, net("10.65.2.1/32"), back).await;
}

/// Tests refreshes in both directions, with the BoRR and EoRR markers.
async fn refreshes_are_marked(ground: Ground) {
    let ours = ground.speaker(Kind::Reflector, 1, &reflector(false)).await;
    let one = ground.speaker(Kind::Bird, 2, &client()).await;
    let two = ground
        .speaker(Kind::Bird, 3, &client().announcing("10.65.3.1/32"))
        .await;
    let held = table([("10.65.3.1/32", reflected(Kind::Bird, 3))]);
    one.holds(&held).await;
    one.command("debug peer0 all").await.expect("accepted");
    let asked = async {
        one.command("reload in peer0").await.expect("accepted");
        one.writes("Got END-OF-RR").await;
    };
    never_lost(&one, net("10.65.3.1/32"), asked).await;
    one.writes("Got BEGIN-OF-RR").await;
    two.command("reload out peer0").await.expect("accepted");
    one.holds(&held).await;
    // The other direction: BIRD's markers.
    ours.refresh("n10-0-0-3").await;
    ours.writes("event=\"session.refreshed\" neighbor=\"n10-0-0-3\"")
        .await;
    one.holds(&held).await;
}

macro_rules! labs {
    ($($kind:ident as $module:ident: $($lab:ident($($more:expr),*) as $name:ident),+;)+) => { $(
        mod $module {
            $(
                #[test]
                fn $name() {
                    let name = concat!(stringify!($name), " with ", stringify!($kind));
                    let kind = super::Kind::$kind;
                    super::in_ground(&[kind], name, async |ground| {
                        super::$lab(kind, $($more,)* ground).await;
                    });
                }
            )+
        }
    )+ };
}

labs! {
    Bird as bird:
        our_reflector_is_killed(false) as our_reflector_is_killed,
        our_reflector_is_killed(true) as our_reflector_is_killed_with_clients_of_a_range,
        our_reflector_is_upgraded() as our_reflector_is_upgraded,
        their_client_is_killed(false) as their_client_is_killed,
        their_client_is_killed(true) as their_client_of_a_range_is_killed,
        our_client_is_killed() as our_client_is_killed;
    Gobgp as gobgp:
        our_reflector_is_killed(false) as our_reflector_is_killed,
        our_reflector_is_upgraded() as our_reflector_is_upgraded;
    Frr as frr:
        our_reflector_is_killed(false) as our_reflector_is_killed,
        our_reflector_is_upgraded() as our_reflector_is_upgraded;
    Openbgpd as openbgpd:
        our_reflector_is_killed(false) as our_reflector_is_killed,
        our_reflector_is_upgraded() as our_reflector_is_upgraded;
}

#[test]
fn refreshes_with_bird_are_marked() {
    in_ground(&[Kind::Bird], "refreshes", async |ground| {
        refreshes_are_marked(ground).await;
    });
}
