//! A Calico node: a host with a workload, and BIRD configured as confd would do it, or
//! `cambric-bgp-client` in its place.

use std::{fmt::Write as _, net::IpAddr, net::Ipv4Addr, path::PathBuf, time::Duration};

use daemon_common::{Command, Reply, client::call, report};
use ipnet::IpNet;
use netns_lab::{Error, Host, Pinger, Process, Program, VethEnd, until};
use nix::sys::signal::Signal;

use crate::{Ground, PATIENCE, Site, programs};

/// The AS of the fabric.
const ASN: u32 = 64512;
/// BIRD's `rtm_protocol`, and the metric that Calico gives its routes.
const BIRD: u8 = 12;
const METRIC: u32 = 1024;
/// A node with its workload.
#[derive(Debug)]
pub struct Node {
    /// Its host.
    pub site: Site,
    pinger: Pinger,
    _workload: Host,
}

/// A session as confd would have it.
#[derive(Clone, Debug)]
pub struct Peer {
    name: String,
    address: Ipv4Addr,
    passive: bool,
    client: bool,
}

/// How `cambric-bgp-client` runs on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// Beside BIRD, under an address of its own: it receives routes and advertises none.
    Shadow,
    /// In BIRD's place, its peers in a file.
    InPlace,
    /// In BIRD's place, its peers and blocks in the datastore.
    Stored,
}

impl Peer {
    /// Returns a session of the node-to-node mesh: the node whose address sorts first as text is
    /// passive.
    pub fn mesh(own: u8, number: u8) -> Self {
        let (own, address) = (Site::v4(own), Site::v4(number));
        Self {
            passive: address.to_string() > own.to_string(),
            ..Self::named("Mesh", address)
        }
    }

    /// Returns a session that a BGPPeer configures.
    pub fn global(number: u8) -> Self {
        Self::named("Global", Site::v4(number))
    }

    /// Makes the peer a route reflector client (RFC 4456).
    #[must_use]
    pub const fn client(mut self) -> Self {
        self.client = true;
        self
    }

    fn named(kind: &str, address: Ipv4Addr) -> Self {
        Self {
            name: format!("{kind}_{}", address.to_string().replace('.', "_")),
            address,
            passive: false,
            client: false,
        }
    }
}

impl Ground {
    /// Makes a Calico node with a workload, IP forwarding, and an address for a shadow run.
    ///
    /// # Panics
    /// If the kernel refuses any of it.
    pub async fn node(&self, number: u8) -> Node {
        let site = self.site(number).await.expect("a host");
        let workload = self.host(&format!("w{number}")).await.expect("a workload");
        let end = |host, name| VethEnd {
            host,
            name,
            mac: None,
        };
        let links = site.host.links().expect("links");
        let made = async {
            links.add_address("eth0", net(shadow(number), 24)).await?;
            links
                .add_veth(end(&site.host, "caliw"), end(&workload, "eth0"))
                .await?;
            for (key, value) in [
                ("conf/all/forwarding", "1"),
                ("conf/caliw/proxy_arp", "1"),
                ("neigh/caliw/proxy_delay", "0"),
            ] {
                site.host.sysctl(&format!("net/ipv4/{key}"), value)?;
            }
            links.up("caliw").await?;
            let address = net(workload_of(number), 32);
            links.add_route(address, None, "caliw").await?;
            let links = workload.links()?;
            links.add_address("eth0", address).await?;
            let six = IpNet::new(Site::v6(number).into(), 128).expect("a length that fits");
            links.add_address("eth0", six).await?;
            links.up("eth0").await?;
            links
                .add_route(net(Ipv4Addr::UNSPECIFIED, 0), None, "eth0")
                .await
        };
        made.await.expect("a node");
        let pinger = Pinger::open(&workload, workload_of(number), Site::v6(number));
        Node {
            site,
            pinger: pinger.expect("a pinger"),
            _workload: workload,
        }
    }
}

impl Node {
    /// Returns the node's block of addresses.
    pub fn block(number: u8) -> IpNet {
        net(Ipv4Addr::new(10, 65, number, 0), 26)
    }

    /// Returns the route of the node's workload alone.
    pub fn workload(number: u8) -> IpNet {
        net(workload_of(number), 32)
    }

    /// Starts pings from the node's workload to that of another node.
    pub fn pings(&self, to: u8) -> netns_lab::Flow {
        self.pinger
            .flow(workload_of(to).into(), Duration::from_millis(10))
    }

    /// Waits until its workload reaches that of another node.
    ///
    /// # Panics
    /// If it does not.
    pub async fn reaches(&self, to: u8) {
        let what = format!("pings from node {} to node {to}", self.site.number);
        let to = IpAddr::from(workload_of(to));
        let waited = until(PATIENCE, &what, async || {
            let answer = self.pinger.ping(to, Duration::from_millis(200)).await;
            Ok::<_, Error>(answer.map(drop).ok_or_else(|| "no answer".to_owned()))
        });
        waited.await.expect("an answer");
    }

    /// Starts BIRD. With `recover` it takes the routes in the kernel for those of its former
    /// process, and waits for all peers before it changes any (`-R`).
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn bird(&self, peers: &[Peer], cluster: Option<Ipv4Addr>, recover: bool) -> Process {
        let directory = self.site.host.directory();
        let config = self
            .site
            .save("bird.conf", &self.bird_config(peers, cluster));
        let program = Program::new(programs::foreign("bird").expect("BIRD is installed"))
            .args(recover.then_some("-R"))
            .args(["-f", "-c"])
            .arg(config)
            .arg("-s")
            .arg(directory.join("bird.ctl"));
        self.site.host.spawn("bird", &program).expect("BIRD starts")
    }

    /// Returns the configuration that confd renders, in BIRD 2's syntax and with shorter timers:
    /// one block of its own as a blackhole, routes learned from the kernel and left there at
    /// shutdown. Of the routes within the pool it exports the node's own block, but no address
    /// within that block.
    fn bird_config(&self, peers: &[Peer], cluster: Option<Ipv4Addr>) -> String {
        let (own, block) = (Site::v4(self.site.number), Self::block(self.site.number));
        let mut text = format!(
            "log stderr all;\nrouter id {own};\n\
             filter to_kernel {{\n if net ~ 10.65.0.0/16 || source = RTS_BGP then accept;\n \
             reject;\n}}\n\
             filter to_peers {{\n if net = {block} then accept;\n if net ~ {block} then reject;\n \
             if net ~ 10.65.0.0/16 then accept;\n reject;\n}}\n\
             protocol device {{ scan time 2; }}\n\
             protocol direct {{ ipv4; interface -\"cali*\", \"*\"; }}\n\
             protocol static {{ ipv4; route {block} blackhole; }}\n\
             protocol kernel {{\n ipv4 {{ import all; export filter to_kernel; }};\n learn;\n \
             persist;\n scan time 2;\n graceful restart;\n merge paths on;\n metric {METRIC};\n}}\n\
             template bgp calico {{\n local {own} as {ASN};\n multihop;\n \
             ipv4 {{ import all; export filter to_peers; gateway recursive; add paths on; }};\n \
             graceful restart;\n connect delay time 1;\n connect retry time 1;\n \
             error wait time 1, 2;\n}}\n"
        );
        for peer in peers {
            let Peer { name, address, .. } = peer;
            let _ = writeln!(
                text,
                "protocol bgp {name} from calico {{\n neighbor {address} as {ASN};"
            );
            if peer.passive {
                text.push_str(" passive on;\n");
            }
            if let Some(cluster) = cluster.filter(|_| peer.client) {
                let _ = writeln!(text, " rr client;\n rr cluster id {cluster};");
            }
            text.push_str("}\n");
        }
        text
    }

    /// Starts `cambric-bgp-client`, which treats BIRD's kernel routes as its own.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn cambric(&self, peers: &[Peer], run: Run) -> Process {
        let config = self.site.save("bgp-client.toml", &self.config(peers, run));
        let program = Program::new(programs::own("cambric-bgp-client"))
            .arg("--config")
            .arg(config);
        let started = self.site.host.spawn("bgp-client", &program);
        started.expect("the client starts")
    }

    /// Replaces the peers of `cambric-bgp-client`, which runs in BIRD's place.
    ///
    /// # Panics
    /// If the daemon does not accept the configuration.
    pub fn repeer(&self, daemon: &Process, peers: &[Peer]) {
        let config = self.config(peers, Run::InPlace);
        self.site.save("bgp-client.toml", &config);
        daemon.signal(Signal::SIGHUP).expect("a signal");
    }

    fn config(&self, peers: &[Peer], run: Run) -> String {
        match run {
            Run::Stored => self.stored_config(),
            Run::Shadow | Run::InPlace => self.file_config(peers, run),
        }
    }

    fn stored_config(&self) -> String {
        let directory = self.site.host.directory().display();
        let store = crate::store::address();
        let number = self.site.number;
        format!(
            "hostname = \"h{number}\"\nlog = \"debug,h2=info,tower=info,hyper=info\"\n\
             control = \"{directory}/bgp-client.sock\"\n\
             bird_control = \"{directory}/tools.ctl\"\n\
             [kernel]\nprotocol = {BIRD}\nmetric = {METRIC}\n\
             [[kernel.import]]\nprotocols = [4]\ninterfaces = [\"cali*\"]\n\
             [datastore]\nendpoints = [\"http://{store}\"]\n"
        )
    }

    fn file_config(&self, peers: &[Peer], run: Run) -> String {
        let own = match run {
            Run::Shadow => shadow(self.site.number),
            Run::InPlace | Run::Stored => Site::v4(self.site.number),
        };
        let directory = self.site.host.directory().display();
        let in_place = run == Run::InPlace;
        let listen = if in_place {
            format!("\"{own}:179\"")
        } else {
            String::new()
        };
        let mut text = format!(
            "asn = {ASN}\nrouter_id = \"{own}\"\nlisten = [{listen}]\nlog = \"debug\"\n\
             control = \"{directory}/bgp-client.sock\"\nfamilies = [\"ipv4-unicast\"]\n\
             bird_control = \"{directory}/tools.ctl\"\n\
             [kernel]\ninstall = {in_place}\nprotocol = {BIRD}\nmetric = {METRIC}\n\
             [[kernel.import]]\nprotocols = [4]\ninterfaces = [\"cali*\"]\n"
        );
        for peer in peers {
            let Peer { name, address, .. } = peer;
            let _ = write!(
                text,
                "[[neighbor]]\nname = \"{name}\"\naddress = \"{address}\"\nasn = {ASN}\n\
                 source = \"{own}\"\nconnect_retry = 1\npassive = {}\n",
                peer.passive && in_place
            );
            if !in_place {
                text.push_str("export = \"deny\"\n");
            }
        }
        if in_place {
            let _ = write!(
                text,
                "[[neighbor_range]]\nname = \"shadows\"\nprefix = \"10.0.0.96/27\"\n\
                 asn = {ASN}\nlimit = 3\n"
            );
        }
        text
    }

    /// Returns the kernel routes of `cambric-bgp-client`, as it reports them.
    async fn fib(&self) -> Result<report::Fib, String> {
        match call(self.control(), &Command::Fib {}).await {
            Ok(Reply::Fib(fib)) => Ok(fib),
            other => Err(format!("{other:?}")),
        }
    }

    fn control(&self) -> PathBuf {
        self.site.host.directory().join("bgp-client.sock")
    }

    /// Waits until a shadow run finds in the kernel the routes that it would have installed, and no
    /// other route except that of the node's block, which only BIRD installs.
    ///
    /// # Panics
    /// If there is still a difference when the time is over.
    pub async fn shadow_agrees(&self, routes: &[IpNet]) {
        let mut expected = states(routes, "installed");
        expected.extend(states(&[Self::block(self.site.number)], "stray"));
        expected.sort();
        let waited = until(PATIENCE, "a shadow run that agrees", async || {
            Ok::<_, Error>(match self.ours().await {
                Ok(seen) if seen == expected => Ok(()),
                other => Err(format!("{other:?}")),
            })
        });
        waited.await.expect("no difference");
    }

    /// Waits until all sessions are up, and the kernel holds these routes and no others of BIRD's
    /// protocol.
    ///
    /// # Panics
    /// If that does not happen in time.
    pub async fn settles(&self, routes: &[IpNet]) {
        let expected = states(routes, "installed");
        let what = format!("node {} at rest", self.site.number);
        let waited = until(PATIENCE, &what, async || {
            let status = call(self.control(), &Command::Status {}).await;
            let seen = self.ours().await;
            Ok::<_, Error>(match (status, seen) {
                (Ok(Reply::Status(status)), Ok(seen)) if status.ready && seen == expected => Ok(()),
                other => Err(format!("{other:?}")),
            })
        });
        waited.await.expect("rest");
    }

    async fn ours(&self) -> Result<Vec<(String, String)>, String> {
        let fib = self.fib().await?;
        let ours = fib.routes.into_iter().filter(|route| route.source == "bgp");
        let mut seen: Vec<_> = ours
            .filter_map(|route| Some((route.prefix?.to_string(), route.state)))
            .collect();
        seen.sort();
        Ok(seen)
    }

    /// Waits until exactly these routes of BIRD's protocol are in the kernel.
    ///
    /// # Panics
    /// If they are not in time.
    pub async fn kernel_holds(&self, routes: &[IpNet]) {
        let mut expected = routes.to_vec();
        expected.sort();
        let links = self.site.host.links().expect("links");
        let what = format!("the kernel of node {}", self.site.number);
        let waited = until(PATIENCE, &what, async || {
            let found = links.routes().await?;
            let found = found.iter().filter(|route| route.protocol == BIRD);
            let mut found: Vec<_> = found.map(|route| route.net).collect();
            found.sort();
            let agrees = found == expected;
            Ok::<_, Error>(agrees.then_some(()).ok_or_else(|| format!("{found:?}")))
        });
        waited.await.expect("the routes");
    }

    /// Waits until the daemon behind this control socket, BIRD or Cambric, has learned a route from
    /// a peer.
    ///
    /// # Panics
    /// If it has not in time.
    pub async fn learns(&self, socket: &str, from: &str, net: IpNet) {
        let what = format!("{net} from {from} at node {}", self.site.number);
        let waited = until(PATIENCE, &what, async || {
            let words = ["show", "route", "protocol", from];
            let text = self.birdc("birdc", socket, &words).await;
            let found = text.contains(&format!("{net} "));
            Ok::<_, Error>(found.then_some(()).ok_or(text))
        });
        waited.await.expect("the route");
    }

    /// Returns the output of BIRD's own client for a command sent over one of the node's sockets.
    ///
    /// # Panics
    /// If it cannot be run.
    pub async fn birdc(&self, program: &str, socket: &str, words: &[&str]) -> String {
        let program = Program::new(programs::foreign(program).expect("BIRD is installed"))
            .arg("-s")
            .arg(self.site.host.directory().join(socket))
            .args(words);
        let output = self.site.host.output(&program).await;
        let (_, text) = output.expect("an answer");
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// Returns kernel routes in a state, as the daemon reports them.
fn states(routes: &[IpNet], state: &str) -> Vec<(String, String)> {
    let states = routes.iter().map(|net| (net.to_string(), state.to_owned()));
    let mut states: Vec<_> = states.collect();
    states.sort();
    states
}

/// Returns the address of a node's shadow run.
fn shadow(number: u8) -> Ipv4Addr {
    Site::v4(shadow_number(number))
}

/// Returns the host number that corresponds to a shadow's address.
pub const fn shadow_number(number: u8) -> u8 {
    number + 100
}

const fn workload_of(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 65, number, 3)
}

fn net(address: Ipv4Addr, length: u8) -> IpNet {
    IpNet::new(address.into(), length).expect("a length that fits")
}
