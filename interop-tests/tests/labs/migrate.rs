//! Migration from calico-node's BIRD to Cambric, node by node, and back, during traffic between
//! workloads.

use std::net::Ipv4Addr;

use interop_tests::{
    Ground, Kind, PATIENCE, Setup, Site,
    calico::{Node, Peer, Run, shadow_number},
    in_ground,
};
use ipnet::IpNet;
use netns_lab::{Flow, Process};
use nix::sys::signal::Signal;

const NODES: [u8; 3] = [1, 2, 3];

fn others(number: u8) -> Vec<u8> {
    NODES.into_iter().filter(|other| *other != number).collect()
}

fn mesh(number: u8) -> Vec<Peer> {
    let others = others(number).into_iter();
    others.map(|other| Peer::mesh(number, other)).collect()
}

/// Returns the mesh peers and the shadows of the other nodes, as a global BGPPeer for each shadow
/// would add them.
fn mesh_and_shadows(number: u8) -> Vec<Peer> {
    let shadows = others(number).into_iter();
    let shadows = shadows.map(|other| Peer::global(shadow_number(other)));
    mesh(number).into_iter().chain(shadows).collect()
}

/// Returns the route that a node announces: BIRD its block, Cambric with a file its workload.
fn announced_by(number: u8, moved: &[u8]) -> IpNet {
    match moved.contains(&number) {
        true => Node::workload(number),
        false => Node::block(number),
    }
}

/// Replaces BIRD by Cambric: a shadow run first, which leaves its state for the run that follows.
async fn replace(node: &Node, daemon: &mut Process, peers: &[Peer], routes: &[IpNet], run: Run) {
    let mut shadow = node.cambric(peers, Run::Shadow);
    node.shadow_agrees(routes).await;
    shadow.signal(Signal::SIGTERM).expect("a signal");
    shadow.wait(PATIENCE).await.expect("it ends");
    daemon.kill().await.expect("BIRD is killed");
    *daemon = node.cambric(peers, run);
}

/// How many pings each flow still sends once the fabric is stable: those of one second.
const AFTERWARDS: u32 = 100;

/// Asserts that no ping was lost, during the changes or afterwards.
async fn nothing_was_lost(mut flows: Vec<Flow>) {
    for flow in &mut flows {
        flow.sends(AFTERWARDS).await;
    }
    for flow in flows {
        let report = flow.stop().await;
        assert!(report.sent > AFTERWARDS, "{report:?}");
        assert_eq!(report.lost(), 0, "{report:?}");
    }
}

/// The BGP daemon of each node.
struct Fabric {
    nodes: Vec<Node>,
    daemons: Vec<Process>,
    moved: Vec<u8>,
    flows: Vec<Flow>,
}

impl Fabric {
    /// Starts all nodes with BIRD, and pings from every workload to every other.
    async fn on_bird(ground: &Ground) -> Self {
        let mut nodes = Vec::new();
        for number in NODES {
            nodes.push(ground.node(number).await);
        }
        let started = nodes.iter().map(|node| {
            let peers = mesh_and_shadows(node.site.number);
            node.bird(&peers, None, false)
        });
        let daemons = started.collect();
        let mut flows = Vec::new();
        for node in &nodes {
            for other in others(node.site.number) {
                node.reaches(other).await;
            }
        }
        for node in &nodes {
            let number = node.site.number;
            flows.extend(others(number).iter().map(|other| node.pings(*other)));
        }
        Self {
            nodes,
            daemons,
            moved: Vec::new(),
            flows,
        }
    }

    fn at(&mut self, number: u8) -> (&Node, &mut Process) {
        let index = usize::from(number - 1);
        (&self.nodes[index], &mut self.daemons[index])
    }

    async fn move_over(&mut self, number: u8) {
        let announced = others(number).into_iter();
        let routes: Vec<IpNet> = announced
            .map(|other| announced_by(other, &self.moved))
            .collect();
        let (node, daemon) = self.at(number);
        replace(node, daemon, &mesh(number), &routes, Run::InPlace).await;
        self.moved.push(number);
        self.rests().await;
    }

    /// Moves a node back to BIRD, which must have no shadows as peers: it would wait for them.
    async fn move_back(&mut self, number: u8) {
        let (node, daemon) = self.at(number);
        daemon.signal(Signal::SIGTERM).expect("a signal");
        daemon.wait(PATIENCE).await.expect("it ends");
        *daemon = node.bird(&mesh(number), None, true);
        self.moved.retain(|moved| *moved != number);
        self.rests().await;
    }

    /// Waits until every node has exactly the routes that all others announce, in daemon and
    /// kernel.
    async fn rests(&self) {
        for node in &self.nodes {
            let number = node.site.number;
            let announced = others(number).into_iter();
            let mut routes: Vec<IpNet> = announced
                .map(|other| announced_by(other, &self.moved))
                .collect();
            if self.moved.contains(&number) {
                node.settles(&routes).await;
            } else {
                routes.push(Node::block(number));
            }
            node.kernel_holds(&routes).await;
        }
    }
}

/// Asserts that BIRD's own clients understand the answers of a migrated node.
async fn tools_are_answered(node: &Node) {
    for program in ["birdc", "birdcl"] {
        let text = node
            .birdc(program, "tools.ctl", &["show", "protocols"])
            .await;
        let row = text.lines().find(|line| line.starts_with("Mesh_10_0_0_2 "));
        let row: Vec<_> = row
            .unwrap_or_else(|| panic!("{text}"))
            .split_whitespace()
            .collect();
        assert_eq!(
            (row[1], row[3], row[5]),
            ("BGP", "up", "Established"),
            "{text}"
        );
        let text = node
            .birdc(program, "tools.ctl", &["-r", "show", "statu"])
            .await;
        assert!(
            text.contains("Access restricted")
                && text.contains("Router ID is 10.0.0.1")
                && text.contains("Daemon is up and running"),
            "{text}"
        );
    }
    let text = node.birdc("birdc", "tools.ctl", &["sh", "route"]).await;
    assert!(
        text.contains("10.65.2.0/26       via 10.0.0.2 on eth0 [Mesh_10_0_0_2 ")
            && text.contains("10.65.1.3/32       dev caliw [kernel1 "),
        "{text}"
    );
    let details = ["show", "protocols", "all", "Mesh_10_0_0_3"];
    let text = node.birdc("birdc", "tools.ctl", &details).await;
    assert!(text.contains("Neighbor address: 10.0.0.3"), "{text}");
    let text = node
        .birdc("birdc", "tools.ctl", &["disable", "Mesh_10_0_0_3"])
        .await;
    assert!(text.contains("Access denied"), "{text}");
}

// Promise (Daemons): A node moves from Calico's BIRD to Cambric and back without a lost packet.
#[test]
fn nodes_of_a_mesh_move_over_and_back_and_no_ping_is_lost() {
    in_ground(&[Kind::Bird], "moving a mesh", async |ground| {
        let mut fabric = Fabric::on_bird(&ground).await;
        fabric.rests().await;
        fabric.move_over(1).await;
        tools_are_answered(&fabric.nodes[0]).await;
        fabric.move_over(2).await;
        fabric.move_over(3).await;
        fabric.move_back(2).await;
        nothing_was_lost(fabric.flows).await;
    });
}

// Promise: as interop-tests nodes_of_a_mesh_move_over_and_back_and_no_ping_is_lost
#[test]
fn node_moves_to_the_store_and_back_without_lost_ping() {
    in_ground(&[Kind::Bird], "moving to the store", async |ground| {
        let store = ground.store().await.expect("a store");
        for number in NODES {
            let address = Site::v4(number);
            let node = format!(r#"{{"spec":{{"bgp":{{"ipv4Address":"{address}/24"}}}}}}"#);
            store.put("nodes", &format!("h{number}"), &node).await;
            store.block(number, &Node::block(number).to_string()).await;
        }
        let mut fabric = Fabric::on_bird(&ground).await;
        fabric.rests().await;
        // It has the same block as before, so other nodes see no difference.
        let blocks = NODES.map(Node::block);
        let (node, daemon) = fabric.at(1);
        replace(node, daemon, &mesh(1), &blocks[1..], Run::Stored).await;
        node.settles(&blocks).await;
        for node in &fabric.nodes {
            node.kernel_holds(&blocks).await;
        }
        tools_are_answered(&fabric.nodes[0]).await;
        fabric.move_back(1).await;
        nothing_was_lost(fabric.flows).await;
    });
}

const RR: u8 = 4;
const SECOND_RR: u8 = 5;
const CLUSTER: Ipv4Addr = Ipv4Addr::new(244, 0, 0, 1);

/// Returns a reflector for both nodes and the shadow of one, for either program.
fn reflector() -> Setup {
    let clients = [1, 2, shadow_number(2)].into_iter();
    let with = |setup: Setup, client| {
        let setup = setup.neighbor(Site::v4(client), 64512);
        setup.carrying(&["ipv4-unicast"])
    };
    clients.fold(Setup::fabric(), with).reflecting(CLUSTER)
}

#[test]
fn clients_and_reflector_move_without_lost_ping() {
    in_ground(&[Kind::Bird], "moving a reflector", async |ground| {
        let nodes = [ground.node(1).await, ground.node(2).await];
        let peers = [Peer::global(RR), Peer::global(SECOND_RR)];
        let mut bird = ground.speaker(Kind::Bird, RR, &reflector()).await;
        let _first = nodes[0].bird(&peers, None, false);
        let mut second = nodes[1].bird(&peers, None, false);
        nodes[0].reaches(2).await;
        nodes[1].reaches(1).await;
        let flows = vec![nodes[0].pings(2), nodes[1].pings(1)];

        // A client is replaced. It restarts, and would wait for a reflector that is not running
        // yet.
        replace(
            &nodes[1],
            &mut second,
            &peers[..1],
            &[Node::block(1)],
            Run::InPlace,
        )
        .await;
        nodes[0]
            .kernel_holds(&[Node::block(1), Node::workload(2)])
            .await;

        // The reflector is replaced: the second one serves before the first one stops.
        let both_learn = async |rr: u8| {
            let from = format!("Global_{}", Site::v4(rr).to_string().replace('.', "_"));
            nodes[0].learns("bird.ctl", &from, Node::workload(2)).await;
            nodes[1].learns("tools.ctl", &from, Node::block(1)).await;
        };
        let mut cambric = ground
            .speaker(Kind::Reflector, SECOND_RR, &reflector())
            .await;
        nodes[1].repeer(&second, &peers);
        both_learn(SECOND_RR).await;
        nodes[1].kernel_holds(&[Node::block(1)]).await;
        bird.stop().await.expect("BIRD ends");
        nodes[0]
            .kernel_holds(&[Node::block(1), Node::workload(2)])
            .await;

        // And back to BIRD.
        let _bird = bird.start_again(&reflector()).await.expect("BIRD starts");
        both_learn(RR).await;
        cambric.stop().await.expect("the reflector ends");
        nodes[0]
            .kernel_holds(&[Node::block(1), Node::workload(2)])
            .await;
        nodes[1].kernel_holds(&[Node::block(1)]).await;
        nothing_was_lost(flows).await;
    });
}
