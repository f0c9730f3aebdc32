//! An OpenStack controller: etcd, MariaDB, and Neutron with networking-calico.

use std::path::{Path, PathBuf};
use std::time::Duration;

use calico_store::resources::Resources;
use calico_store::{EtcdOptions, EtcdStore, Store as _, TlsFiles};
use interop_tests::{Certificates, Etcd, Ground, Site, foreign};
use netns_lab::{Process, Program, until};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long any step may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// Seconds without a report after which Neutron marks a Felix as down. The first value is never
/// reached, so that ports are bound on a busy machine, too; the second applies once Neutron has been
/// restarted.
const AGENT_DOWN_S: u64 = 600;
const AGENT_DOWN_SOON_S: u64 = 8;

/// The host numbers of the controller and of etcd.
const CONTROLLER: u8 = 8;
const ETCD: u8 = 9;

/// The Python of Debian, with the packages that Neutron needs.
pub(crate) const PYTHON: &str = "/usr/bin/python3";
const PASTE: &str = "/usr/lib/python3/dist-packages/neutron/tests/etc/api-paste.ini";

/// Starts a database server with an empty database, in the memory of the controller's own mount
/// namespace, where `/proc` shows the pid namespace of Neutron.
const DATABASE: &str = "set -eu
export PATH=\"$PATH:/usr/sbin\"
cd /run/cambric
mount -t proc proc /proc
mkdir db
mount -t tmpfs tmpfs db
echo 'create database if not exists neutron;' >create.sql
options='--no-defaults --user=root --datadir=/run/cambric/db/data --innodb-log-file-size=8M'
mariadb-install-db $options --auth-root-authentication-method=normal --skip-test-db
exec mariadbd $options --socket=/run/cambric/db/sock --pid-file=/run/cambric/db/pid \
    --skip-networking --innodb-flush-log-at-trx-commit=0 --init-file=/run/cambric/create.sql";

/// The controller, and the switch to which hosts are attached.
pub(crate) struct Cloud {
    pub(crate) resources: Resources,
    pub(crate) url: String,
    /// The directory of the installed driver.
    pub(crate) driver: PathBuf,
    pub(crate) certificates: Certificates,
    controller: Site,
    server: Process,
    database: Process,
    _etcd: Etcd,
    /// Dropped last: it waits for all processes.
    pub(crate) ground: Ground,
}

/// Returns the driver's directory, which `tools/install-neutron-driver.sh` creates in the build
/// directory.
fn driver() -> Option<PathBuf> {
    let test = std::env::current_exe().expect("a running test has a path");
    let target = test.ancestors().nth(3).expect("the target directory");
    let directory = target.join("networking-calico");
    let found = directory.join("translated-3.12.0").exists();
    if !found {
        println!(
            "skipped: {} is not there; tools/install-neutron-driver.sh does that",
            directory.display()
        );
    }
    found.then_some(directory)
}

impl Cloud {
    /// Starts a controller, which does not answer yet. Returns `None`, with a notice, where a
    /// program of it is not installed.
    pub(crate) async fn start(ground: Ground) -> Option<Self> {
        let driver = driver()?;
        for program in ["mariadbd", "mariadb-install-db"] {
            foreign(program)?;
        }
        if !PathBuf::from(PASTE).exists() {
            println!(
                "skipped: python3-neutron is not installed; tools/install-test-packages.sh does that"
            );
            return None;
        }
        ground.join().await.expect("on the switch");
        let etcd = Etcd::start_secured(&ground, ETCD).await;
        let (etcd, certificates) = etcd.expect("etcd")?;
        let controller = ground.site(CONTROLLER).await.expect("a host");
        std::fs::create_dir(controller.host.directory().join("locks")).expect("made");
        certificates.save(&controller);
        controller.save("neutron.conf", &configuration(AGENT_DOWN_S));
        controller.save("ported.py", include_str!("ported.py"));
        controller.save("server.py", include_str!("server.py"));
        // Neutron needs its database first.
        let program = Program::new("/bin/sh").args(["-c", DATABASE]);
        let database = controller.host.spawn("mariadb", &program).expect("MariaDB");
        let server = neutron(&controller, &driver);

        let url = format!("https://{}", etcd.endpoints()[0]);
        let mut options = EtcdOptions::new([url.as_str()]);
        let file = |name: &str| controller.host.directory().join(name);
        options.tls = Some(TlsFiles {
            ca_file: file("ca.pem"),
            cert_file: Some(file("client.pem")),
            key_file: Some(file("client.key")),
            server_name: None,
        });
        let store = EtcdStore::connect(&options).await.expect("a store");
        eventually("the store answers", async || {
            let answer = store.get("/".into()).await;
            answer.map(drop).map_err(|error| error.to_string())
        })
        .await;
        Some(Self {
            resources: Resources::new(store),
            url,
            driver,
            certificates,
            controller,
            server,
            database,
            _etcd: etcd,
            ground,
        })
    }

    /// Waits until Neutron accepts connections; fails if it has ended.
    pub(crate) async fn answers(&mut self) {
        let answers = until(PATIENCE, "Neutron answers", async || {
            self.database.check()?;
            self.server.check()?;
            let connected = TcpStream::connect((Site::v4(CONTROLLER), 9696)).await;
            Ok::<_, netns_lab::Error>(connected.map(drop).map_err(|error| error.to_string()))
        });
        answers.await.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Kills Neutron.
    pub(crate) async fn kill(&mut self) {
        self.server.kill().await.expect("killed");
    }

    /// Restarts Neutron, which then soon marks silent agents as down.
    pub(crate) async fn restart(&mut self) {
        self.controller
            .save("neutron.conf", &configuration(AGENT_DOWN_SOON_S));
        self.server = neutron(&self.controller, &self.driver);
        self.answers().await;
    }

    /// Returns the end of Neutron's log.
    pub(crate) fn log(&self) -> String {
        self.server.log_tail()
    }

    /// Sends a request to Neutron and returns the response.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: Value) -> Result<Value, String> {
        let text = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let request = format!(
            "{method} /v2.0/{path} HTTP/1.0\r\nContent-Type: application/json\r\n\
             X-Project-Id: {PROJECT}\r\nX-Roles: admin\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        );
        let exchange = async {
            let mut stream = TcpStream::connect((Site::v4(CONTROLLER), 9696)).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        let answer = exchange.await.map_err(|error| error.to_string())?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let good = head
            .split(' ')
            .nth(1)
            .is_some_and(|status| status.starts_with('2'));
        if !good {
            return Err(answer);
        }
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(body).map_err(|error| format!("{error}: {answer}"))
    }

    /// Creates an object of this kind with Neutron's API, and returns it.
    pub(crate) async fn create(&self, kind: &str, mut object: Value) -> Value {
        object["tenant_id"] = json!(PROJECT);
        let path = format!("{kind}s").replace('_', "-");
        let created = self.ask("POST", &path, json!({kind: object})).await;
        let mut created = created.unwrap_or_else(|error| panic!("{kind}: {error}\n{}", self.log()));
        created[kind].take()
    }

    /// Changes fields of a port.
    pub(crate) async fn change_port(&self, id: &str, fields: Value) {
        let changed = self
            .ask("PUT", &format!("ports/{id}"), json!({"port": fields}))
            .await;
        changed.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Waits until Neutron shows a port in this state.
    pub(crate) async fn port_is(&self, id: &str, status: &str) {
        eventually(&format!("port {id} {status}"), async || {
            let port = self.ask("GET", &format!("ports/{id}"), Value::Null).await?;
            let found = &port["port"]["status"];
            (found == status)
                .then_some(())
                .ok_or_else(|| found.to_string())
        })
        .await;
    }

    /// Waits until Neutron shows the Felix of a host as alive, or as down.
    pub(crate) async fn felix_is(&self, host: &str, alive: bool) -> Value {
        eventually(&format!("Felix of {host} alive: {alive}"), async || {
            let agents = self.ask("GET", "agents", Value::Null).await?;
            let all = agents["agents"].as_array().ok_or("no agents")?;
            let found = all
                .iter()
                .find(|agent| agent["host"] == host && agent["alive"] == alive);
            found.cloned().ok_or_else(|| agents.to_string())
        })
        .await
    }

    /// Returns the value of a key, as text.
    pub(crate) async fn stored(&self, key: &str) -> Option<String> {
        let found = self.resources.store().get(key.to_owned().into()).await;
        let item = found.expect("an answer")?;
        Some(String::from_utf8_lossy(&item.value).into_owned())
    }
}

impl Drop for Cloud {
    /// Prints Neutron's log if the test fails.
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.log());
        }
    }
}

/// The project that owns all objects.
pub(crate) const PROJECT: &str = "p1";

/// Waits until the condition holds; the error has what is missing.
pub(crate) async fn eventually<T>(
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let begun = std::time::Instant::now();
    println!("waiting: {what}");
    let asked = until(PATIENCE, what, async || {
        Ok::<_, netns_lab::Error>(probe().await)
    });
    let answer = asked.await.unwrap_or_else(|error| panic!("{error}")).0;
    println!("{what}: after {:.1} s", begun.elapsed().as_secs_f64());
    answer
}

fn neutron(site: &Site, driver: &Path) -> Process {
    let program = Program::new(PYTHON)
        .args(["-B", "/run/cambric/server.py"])
        .args(["--config-file", "/run/cambric/neutron.conf"])
        .env("PYTHONPATH", driver);
    site.host.spawn("neutron", &program).expect("Neutron")
}

/// Returns the operator's configuration (`docs/operate/openstack.md`), and replacements for the
/// rest of a cloud.
fn configuration(agent_down_s: u64) -> String {
    let own = Site::v4(CONTROLLER);
    format!(
        "[DEFAULT]
core_plugin = ml2
service_plugins =
auth_strategy = noauth
transport_url = fake:/
bind_host = {own}
api_workers = 0
rpc_workers = 0
rpc_state_report_workers = 0
state_path = /run/cambric
api_paste_config = {PASTE}
agent_down_time = {agent_down_s}
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
[quotas]
quota_driver = neutron.db.quota.driver_null.DbQuotaDriverNull
[oslo_concurrency]
lock_path = /run/cambric/locks
[database]
connection = mysql+pymysql://root@localhost/neutron?unix_socket=/run/cambric/db/sock
max_retries = -1
retry_interval = 1
[keystone_authtoken]
username = x
password = x
project_name = x
user_domain_name = x
project_domain_name = x
auth_url = http://127.0.0.1:1/
[ml2]
type_drivers = local,flat
tenant_network_types = local
mechanism_drivers = calico
{}",
        driver_configuration()
    )
}

/// Returns the configuration of the driver and its agent for the datastore.
pub(crate) fn driver_configuration() -> String {
    format!(
        "[calico]
etcd_host = {}
etcd_port = 2379
etcd_ca_cert_file = /run/cambric/ca.pem
etcd_cert_file = /run/cambric/client.pem
etcd_key_file = /run/cambric/client.key
",
        Site::v4(ETCD)
    )
}
