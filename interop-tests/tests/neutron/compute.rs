//! Compute hosts, and the objects that Nova would make on them.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::time::Duration;

use interop_tests::{Site, own};
use ipnet::IpNet;
use netns_lab::{Host, Pinger, Process, Program, VethEnd};
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tokio::time::timeout;

use crate::cloud::{Cloud, eventually};

/// The answer of the metadata service.
pub(crate) const METADATA: &str = "instance-id\nlocal-ipv4\n";

/// How long to wait for an answer before the request is repeated.
const SOON: Duration = Duration::from_millis(300);

/// A compute host, whose name is `h<number>`.
pub(crate) struct Compute {
    pub(crate) site: Site,
    pub(crate) felix: Process,
    _client: Process,
}

impl Compute {
    /// Starts Felix and BGP.
    pub(crate) async fn start(cloud: &Cloud, number: u8) -> Self {
        let site = cloud.ground.site(number).await.expect("a host");
        // A host of a data center has a default route; without one it does not answer for gateways.
        let links = site.host.links().expect("links");
        let out = links.add_route(
            everything(Site::v4(254).into()),
            Some(Site::v4(254).into()),
            "eth0",
        );
        out.await.expect("a default route");
        cloud.certificates.save(&site);
        let datastore = format!(
            "[datastore]\nendpoints = [\"{}\"]\ntls.ca_file = \"/run/cambric/ca.pem\"\n\
             tls.cert_file = \"/run/cambric/client.pem\"\ntls.key_file = \"/run/cambric/client.key\"\n",
            cloud.url
        );
        let felix = format!(
            "hostname = \"h{number}\"\n{datastore}\
             [felix_configuration]\nreportingInterval = \"2s\"\nreportingTTL = \"5s\"\n"
        );
        site.save("felix.toml", &felix);
        let path = site.save(
            "bgp-client.toml",
            &format!("hostname = \"h{number}\"\n{datastore}"),
        );
        let client = Program::new(own("cambric-bgp-client"))
            .arg("--config")
            .arg(path);
        Self {
            felix: felix_of(&site),
            _client: site.host.spawn("bgp-client", &client).expect("BGP"),
            site,
        }
    }

    /// Starts a file server at the address of the metadata service; it answers once this returns.
    pub(crate) async fn serve_metadata(&self) -> Process {
        let files = self.site.host.directory().join("latest");
        std::fs::create_dir(&files).expect("made");
        std::fs::write(files.join("meta-data"), METADATA).expect("written");
        let program = Program::new("/usr/bin/python3")
            .args(["-u", "-m", "http.server", "8775", "--bind", "127.0.0.1"])
            .args(["--directory", "/run/cambric"]);
        let server = self.site.host.spawn("metadata", &program);
        let server = server.expect("a server");
        let asks = || TcpStream::connect((Ipv4Addr::LOCALHOST, 8775));
        eventually("the metadata service", async || {
            let connected = self.site.host.run(asks).expect("a thread");
            connected.map(drop).map_err(|error| error.to_string())
        })
        .await;
        server
    }

    /// Restarts Felix.
    pub(crate) fn restart(&mut self) {
        self.felix = felix_of(&self.site);
    }

    /// Waits until the host has these rules.
    pub(crate) async fn rules_are(&self, expected: &str) {
        eventually("the rules of before", async || {
            let now = self.rules().await;
            (now == expected).then_some(()).ok_or(now)
        })
        .await;
    }

    /// Returns the lines of the host's rules, sorted: after another program has changed its own
    /// rules Felix may write its table again, and the order of sets and chains is the order of
    /// their creation. Counters are left out, and the elements that packets add to dynamic sets.
    pub(crate) async fn rules(&self) -> String {
        let program = Program::new("nft").args(["-s", "list", "table", "inet", "cambric-felix"]);
        let (_, output) = self.site.host.output(&program).await.expect("it runs");
        let text = String::from_utf8_lossy(&output);
        let mut lines: Vec<&str> = without_metered(&text);
        lines.sort_unstable();
        lines.join("\n")
    }
}

/// Returns the lines of rules without the elements of dynamic sets, which change with packets.
fn without_metered(rules: &str) -> Vec<&str> {
    let (mut is_dynamic, mut is_element) = (false, false);
    let mut lines = rules.lines().collect::<Vec<_>>();
    lines.retain(|line| {
        let line = line.trim();
        is_dynamic = match line.split(' ').next() {
            Some("set" | "map" | "chain") => false,
            Some("flags") => line.contains("dynamic"),
            _ => is_dynamic,
        };
        let starts = is_dynamic && line.starts_with("elements");
        let is_left_out = is_element || starts;
        is_element = is_left_out && !line.ends_with('}');
        !is_left_out
    });
    lines
}

/// Returns the prefix of all addresses of this address's family.
fn everything(like: IpAddr) -> IpNet {
    let any: IpAddr = match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    IpNet::new(any, 0).expect("a length that fits")
}

fn felix_of(site: &Site) -> Process {
    let path = site.host.directory().join("felix.toml");
    let program = Program::new(own("cambric-felix")).arg("--config").arg(path);
    site.host.spawn("felix", &program).expect("Felix")
}

/// A port of Neutron with its machine.
pub(crate) struct Port {
    pub(crate) id: String,
    pub(crate) tap: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) address_v6: Ipv6Addr,
    pub(crate) mac: String,
    pub(crate) device: String,
    pub(crate) host: String,
    machine: Option<Machine>,
}

/// A machine with its interface.
struct Machine {
    host: Host,
    pinger: Pinger,
    listeners: Mutex<Vec<TcpListener>>,
}

impl Port {
    /// Has Neutron make a port on a host, as Nova does before it makes the machine.
    pub(crate) async fn create(cloud: &Cloud, name: &str, at: &Compute, mut fields: Value) -> Self {
        let (device, host) = (format!("vm-{name}"), format!("h{}", at.site.number));
        fields["device_owner"] = json!("compute:nova");
        fields["device_id"] = json!(device);
        fields["binding:host_id"] = json!(host);
        let port = cloud.create("port", fields).await;
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        // The driver has bound it: the Felix of its host is alive.
        assert_eq!(port["binding:vif_type"], "tap", "{port}");
        let id = text(&port["id"]);
        let addresses = port["fixed_ips"].as_array().expect("addresses");
        let addresses: Vec<IpAddr> = addresses
            .iter()
            .map(|fixed| text(&fixed["ip_address"]).parse().expect("an address"))
            .collect();
        let v4 = addresses.iter().find_map(|address| match address {
            IpAddr::V4(v4) => Some(*v4),
            IpAddr::V6(_) => None,
        });
        let v6 = addresses.iter().find_map(|address| match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(v6) => Some(*v6),
        });
        Self {
            tap: format!("tap{}", &id[..11]),
            address: v4.expect("an IPv4 address"),
            address_v6: v6.expect("an IPv6 address"),
            mac: text(&port["mac_address"]),
            id,
            device,
            host,
            machine: None,
        }
    }

    /// Makes the machine and its interface as Nova does.
    pub(crate) async fn machine(&self, cloud: &Cloud, at: &Compute) -> Host {
        let machine = cloud.ground.host(&self.device).await.expect("a machine");
        let octets: Vec<u8> = self
            .mac
            .split(':')
            .map(|octet| u8::from_str_radix(octet, 16).expect("hex"))
            .collect();
        let end = |host, name, mac| VethEnd { host, name, mac };
        let links = at.site.host.links().expect("links");
        let mac = octets.try_into().expect("six octets");
        links
            .add_veth(
                end(&at.site.host, &self.tap, None),
                end(&machine, "eth0", Some(mac)),
            )
            .await
            .expect("an interface");
        links.up(&self.tap).await.expect("up");
        let inside = machine.links().expect("links");
        inside.up("eth0").await.expect("up");
        machine
    }

    /// Makes the machine, and assigns its addresses as DHCP would.
    pub(crate) async fn plug(&mut self, cloud: &Cloud, at: &Compute) {
        let machine = self.machine(cloud, at).await;
        let inside = machine.links().expect("links");
        let gateways: [(IpAddr, u8, IpAddr); 2] = [
            (self.address.into(), 24, Ipv4Addr::new(10, 65, 0, 1).into()),
            (
                self.address_v6.into(),
                128,
                Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).into(),
            ),
        ];
        for (address, length, gateway) in gateways {
            let own = IpNet::new(address, length).expect("a length that fits");
            inside.add_address("eth0", own).await.expect("an address");
            let out = inside.add_route(everything(address), Some(gateway), "eth0");
            out.await.expect("a default route");
        }
        self.runs(machine);
    }

    /// Assigns the machine's addresses.
    pub(crate) fn runs(&mut self, host: Host) {
        let pinger = Pinger::open(&host, self.address, self.address_v6).expect("sockets");
        self.machine = Some(Machine {
            host,
            pinger,
            listeners: Mutex::default(),
        });
    }

    /// Returns the machine's answer from the metadata service, at once: only the host's redirect
    /// makes that address reachable.
    pub(crate) fn reads_metadata(&self) -> std::io::Result<String> {
        let read = || {
            let address = (Ipv4Addr::new(169, 254, 169, 254), 80).into();
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
            stream.write_all(b"GET /latest/meta-data HTTP/1.0\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text).map(|_| text)
        };
        self.inside().host.run(read).expect("a thread")
    }

    fn inside(&self) -> &Machine {
        self.machine.as_ref().expect("a machine")
    }

    /// Returns the pinger of the machine.
    pub(crate) fn pinger(&self) -> &Pinger {
        &self.inside().pinger
    }

    /// Accepts connections of the machine to these ports.
    pub(crate) fn listens(&self, ports: impl IntoIterator<Item = u16>) {
        let mut listeners = self.inside().listeners.lock().expect("whole");
        for port in ports {
            let listen = || TcpListener::bind((Ipv6Addr::UNSPECIFIED, port));
            let listener = self.inside().host.run(listen).expect("a thread");
            listeners.push(listener.expect("a listener"));
        }
    }

    async fn connected(&self, address: IpAddr, port: u16) -> bool {
        let open = match address {
            IpAddr::V4(_) => TcpSocket::new_v4,
            IpAddr::V6(_) => TcpSocket::new_v6,
        };
        let socket = self.inside().host.run(open).expect("a thread");
        let connection = socket.expect("a socket").connect((address, port).into());
        timeout(SOON, connection).await.is_ok_and(|end| end.is_ok())
    }

    /// Waits until the machine can connect to a port.
    pub(crate) async fn connects(&self, address: IpAddr, port: u16) {
        let what = format!("{} speaks to {address} port {port}", self.device);
        eventually(&what, async || {
            let connected = self.connected(address, port).await;
            connected
                .then_some(())
                .ok_or_else(|| "no answer".to_owned())
        })
        .await;
    }

    /// Waits until the machine cannot connect to a port.
    pub(crate) async fn connects_not(&self, address: IpAddr, port: u16) {
        let what = format!("{} does not speak to {address} port {port}", self.device);
        eventually(&what, async || {
            for _ in 0..2 {
                if self.connected(address, port).await {
                    return Err("an answer".to_owned());
                }
            }
            Ok(())
        })
        .await;
    }

    /// Adds an address to the machine.
    pub(crate) async fn adds(&self, address: IpAddr) {
        let links = self.inside().host.links().expect("links");
        let added = links.add_address("eth0", address.into());
        added.await.expect("an address");
    }

    /// Waits until the machine gets an answer from another machine, with one of its additional
    /// addresses as source.
    pub(crate) async fn receives_from(&self, own: IpAddr, other: &Self) {
        let (v4, v6, to) = match own {
            IpAddr::V4(own) => (own, Ipv6Addr::UNSPECIFIED, other.address.into()),
            IpAddr::V6(own) => (Ipv4Addr::UNSPECIFIED, own, other.address_v6.into()),
        };
        let pinger = Pinger::open(&self.inside().host, v4, v6).expect("sockets");
        eventually(&format!("pings from {own} to {to}"), async || {
            let answer = pinger.ping(to, SOON).await;
            answer.map(drop).ok_or_else(|| "no answer".to_owned())
        })
        .await;
    }

    /// Returns the machine's addresses.
    pub(crate) fn addresses(&self) -> [IpAddr; 2] {
        [self.address.into(), self.address_v6.into()]
    }

    /// Waits until the machine gets answers from another machine's addresses.
    pub(crate) async fn reaches(&self, other: &Self) {
        for address in other.addresses() {
            self.receives(address).await;
        }
    }

    /// Waits until the machine gets an answer from an address.
    pub(crate) async fn receives(&self, address: IpAddr) {
        let what = format!("pings from {} to {address}", self.device);
        eventually(&what, async || {
            let answer = self.pinger().ping(address, SOON).await;
            answer.map(drop).ok_or_else(|| "no answer".to_owned())
        })
        .await;
    }

    /// Waits until the machine gets no answer from another machine's addresses.
    pub(crate) async fn reaches_not(&self, other: &Self) {
        let [v4, v6] = other.addresses();
        tokio::join!(self.receives_no(v4), self.receives_no(v6));
    }

    /// Waits until the machine gets no answer from an address.
    pub(crate) async fn receives_no(&self, address: IpAddr) {
        let what = format!("no pings from {} to {address}", self.device);
        eventually(&what, async || {
            for _ in 0..3 {
                if self.pinger().ping(address, SOON).await.is_some() {
                    return Err("an answer".to_owned());
                }
            }
            Ok(())
        })
        .await;
    }

    /// Returns the key under which Felix reports the port.
    pub(crate) fn status_key(&self) -> String {
        format!(
            "/calico/felix/v2/no-region/host/{}/workload/openstack/openstack%2f{}/endpoint/{}",
            self.host, self.device, self.id
        )
    }

    /// Returns the key under which the driver writes the port.
    pub(crate) fn endpoint_key(&self) -> String {
        let dashed = |text: &str| text.replace('-', "--");
        format!(
            "/calico/resources/v3/projectcalico.org/workloadendpoints/openstack/{}-openstack-{}-{}",
            dashed(&self.host),
            dashed(&self.device),
            dashed(&self.id)
        )
    }
}
