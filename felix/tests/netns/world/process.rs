//! Felix as a process, with a served datastore.

use std::fs;
use std::process::{Child, Command};
use std::sync::Arc;

use calico_store::Store;
use calico_store::resources::Resources;
use etcd_lite::serve::{ServeConfig, Server};

use super::host::Host;
use super::run;

/// Creates a host with a served and ready datastore, and without a Felix. Returns the address of
/// the datastore too.
pub(crate) fn served() -> (Host, String) {
    let mut address = String::new();
    let host = Host::with(async || {
        let config = ServeConfig {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            ..ServeConfig::default()
        };
        let server = Server::bind(config).await.unwrap();
        address = format!("http://{}", server.addresses()[0]);
        let store = Arc::new(server.store());
        tokio::spawn(server.run(std::future::pending()));
        let ready = Resources::from(Arc::clone(&store) as Arc<dyn Store>);
        ready.declare_ready().await.unwrap();
        store as Arc<dyn Store>
    });
    (host, address)
}

/// A running Felix, killed when dropped.
pub(crate) struct Process(Child);

impl Process {
    /// Starts Felix with these lines in its file. `CAMBRIC_FELIX` selects another program.
    pub(crate) fn start(host: &Host, store: &str, lines: &str) -> Self {
        Self::configure(host, store, lines);
        let file = |name: &str| host.directory().join(name);
        let program = std::env::var("CAMBRIC_FELIX");
        let program = program.unwrap_or_else(|_| env!("CARGO_BIN_EXE_cambric-felix").to_owned());
        let log = fs::File::create(file("felix.log")).unwrap();
        let process = Command::new(program)
            .arg("--config")
            .arg(file("felix.toml"))
            .stderr(log)
            .spawn();
        Self(process.unwrap())
    }

    /// Writes the file of Felix.
    pub(crate) fn configure(host: &Host, store: &str, lines: &str) {
        let text = format!(
            "{lines}\nhostname = \"n1\"\ncontrol = \"{}\"\nlog = \"info\"\n\
             endpoint_status_path_prefix = \"\"\n[datastore]\nendpoints = [\"{store}\"]\n",
            host.socket().display(),
        );
        fs::write(host.directory().join("felix.toml"), text).unwrap();
    }

    /// Makes it read its file again.
    pub(crate) fn reload(&self) {
        run(&format!("kill -HUP {}", self.id()));
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
